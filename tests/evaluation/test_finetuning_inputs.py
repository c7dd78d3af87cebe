"""Which images are trained on, and which settings are refused before anything is written."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_finetuning import SETTINGS, refused, scenes

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.sources.derived import SubsetSource
from flexpredict.data.sources.opening import ArraySource
from flexpredict.encoders.timm_encoder import TimmEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.finetuning import finetune
from flexpredict.evaluation.labeled_images import choose, hold_out, with_labels
from flexpredict.model.timm_parts import timm
from flexpredict.settings.augmentation import PRESETS


def test_a_subset_gives_the_images_it_names() -> None:
    source = scenes()
    subset = SubsetSource(source, torch.tensor([7, 3, 150]))
    crops = draw_crops(PRESETS["none"], torch.arange(2))
    assert torch.equal(
        subset.read(torch.tensor([2, 1]), crops, (16, 16))[0], source.read(torch.tensor([150, 3]), crops, (16, 16))[0]
    )
    assert source.labels is not None and torch.equal(subset.labels, source.labels[[7, 3, 150]])  # type: ignore[arg-type]
    assert len(subset) == 3 and subset.describe(0) == source.describe(7) and subset.sizes() == [(32, 32)] * 3


def test_held_out_images_and_the_rest_are_all_of_them() -> None:
    chosen = choose(with_labels(scenes(), "training"), None, 0.5, seed=1)
    rest, aside = hold_out(chosen, 0.2, seed=1)
    assert aside is not None and len(chosen) == 100 and len(aside) == 20
    assert isinstance(rest.source, SubsetSource) and isinstance(aside.source, SubsetSource)
    together = torch.cat((rest.source.indices, aside.source.indices)).sort().values
    assert torch.equal(together, torch.arange(100))


class NamedPictures(ArraySource):
    def describe(self, index: int) -> str:
        return f"/data/{'cats' if index < 3 else 'dogs'}/{index % 3}.png"


def test_a_list_names_the_images_to_train_on(tmp_path: Path) -> None:
    pictures = torch.zeros(6, 8, 8, 3, dtype=torch.uint8)
    source = NamedPictures("pets", pictures, ("cat", "dog"), torch.tensor([0, 0, 0, 1, 1, 1]))
    listed = tmp_path / "list.txt"

    def chosen(*names: str) -> list[int]:
        listed.write_text("\n".join(names))
        found = choose(with_labels(source, "training"), str(listed), 1.0, seed=0).source
        assert isinstance(found, SubsetSource)
        return found.indices.tolist()

    assert chosen("dogs/1.png", "", "cats/2.png", "/data/cats/2.png") == [2, 4]
    with pytest.raises(UserError, match=r"1 of 2 images .* cats/7\.png.*for example /data/cats/0\.png"):
        chosen("cats/7.png", "dogs/1.png")
    with pytest.raises(UserError, match=r"stand for several images of pets: 1\.png"):
        chosen("1.png")
    with pytest.raises(UserError, match=r"no training image among those listed in .*list\.txt: cat"):
        chosen("dogs/1.png")


def test_images_without_a_label_are_left_out() -> None:
    source = scenes()
    assert source.labels is not None
    source.labels[::2] = -1
    labeled = with_labels(source, "training")
    assert len(labeled) == 100 and torch.equal(labeled.labels, source.labels[1::2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fraction": 0.01}, "leaves some of the 10 classes without an image. Use fraction=0.05 or more"),
        ({"fraction": 1.5}, "fraction=1.5 is out of range: it must be more than 0 and at most 1"),
        ({"fraction": 0.05, "held_out": 0.5}, "classes have no training image once"),
        ({"image_size": 36}, "image_size=32"),
        ({"image_size": "32,64"}, "names several sizes"),
        ({"batch_size": 7}, "in pairs, as mixup needs them. Use batch_size=8"),
        ({"pooling": "class"}, "Use pooling=mean"),
        ({"image_list": "nowhere.txt"}, "nowhere.txt cannot be read"),
        ({"layer_decay": 0.0}, "layer_decay=0.0 is out of range: it must be more than 0 and at most 1"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_written(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    assert message in refused(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_an_encoder_whose_layers_cannot_be_told_apart_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    resnet = TimmEncoder(timm.create_model("resnet10t", num_classes=0), "timm:resnet10t", "a resnet", (64, 64))
    with pytest.raises(UserError, match="layer_decay=1"):
        finetune(resnet, scenes(), scenes("test", 60), out=tmp_path / "run", **SETTINGS)
    assert not (tmp_path / "run").exists()


def test_other_classes_and_missing_labels_are_refused(tmp_path: Path) -> None:
    test = scenes("test", 60)
    assert test.classes is not None
    test.classes = (*test.classes[:-1], test.classes[-1] + "s")
    message = refused(tmp_path / "run", test=test)
    assert f"{test.classes[-1]}. Did you mean '{test.classes[-1][:-1]}'?" in message
    test.labels = None
    assert "have no labels" in refused(tmp_path / "run", test=test)
