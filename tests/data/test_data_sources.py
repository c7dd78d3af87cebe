"""Opening folders and scenes."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from flexpredict.data.augmentation import crop_arrays, draw_crops
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.folders import FolderSource
from flexpredict.data.sources.opening import ArraySource, absolute_names, open_images
from flexpredict.data.sources.streams import identity
from flexpredict.errors import UserError
from flexpredict.randomness import uniform
from flexpredict.settings.augmentation import PRESETS, Augmentation


def picture(height: int = 40, width: int = 60, seed: int = 0) -> Image.Image:
    """Smooth, so that JPEG keeps it, and without any symmetry."""
    coarse = uniform(torch.tensor(seed), 5 * 7 * 3).mul(256).to(torch.uint8).view(5, 7, 3)
    return Image.fromarray(coarse.numpy()).resize((width, height), Image.Resampling.BICUBIC)


def save(path: Path, image: Image.Image | None = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (image or picture()).save(path, **options)
    return path


def names(source: object) -> list[str]:
    assert isinstance(source, FolderSource)
    return [os.path.relpath(source.describe(index), source.name) for index in range(len(source))]


def test_a_nested_folder_is_listed_in_sorted_order_without_hidden_and_foreign_files(tmp_path: Path) -> None:
    for name in ("b/two.png", "b/one.JPG", "a/x/deep.png", "top.jpeg", ".hidden.png", ".git/no.png", "b/.no.png"):
        save(tmp_path / name)
    (tmp_path / "readme.txt").write_text("not an image")
    source = open_images(str(tmp_path))
    assert names(source) == ["top.jpeg", "a/x/deep.png", "b/one.JPG", "b/two.png"]
    assert source.labels is None and source.classes is None


def test_folders_directly_below_are_classes(tmp_path: Path) -> None:
    for name in ("zebra/1.png", "ant/1.png", "ant/2.png"):
        save(tmp_path / name)
    source = open_images(str(tmp_path))
    assert source.classes == ("ant", "zebra")
    assert source.labels is not None and source.labels.tolist() == [0, 0, 1]
    assert source.labels.dtype == torch.int64


@pytest.mark.parametrize("extra", ["top.png", "ant/deeper/1.png"])
def test_a_tree_of_any_other_shape_has_no_classes(tmp_path: Path, extra: str) -> None:
    for name in ("zebra/1.png", "ant/1.png", extra):
        save(tmp_path / name)
    assert open_images(str(tmp_path)).labels is None


def test_one_folder_alone_is_no_class(tmp_path: Path) -> None:
    save(tmp_path / "images/1.png")
    assert open_images(str(tmp_path)).labels is None


def test_linked_folders_are_followed_but_never_in_a_circle(tmp_path: Path) -> None:
    save(tmp_path / "elsewhere/far.png")
    save(tmp_path / "data/near.png")
    (tmp_path / "data/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data/up").symlink_to(tmp_path / "data")
    (tmp_path / "elsewhere/back").symlink_to(tmp_path / "data")
    (tmp_path / "data/broken.png").symlink_to(tmp_path / "nowhere.png")
    # The broken link is listed, for the one who reads it to say so.
    assert names(open_images(str(tmp_path / "data"))) == ["broken.png", "near.png", "linked/far.png"]


def test_names_that_are_not_utf8_can_be_read(tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff\xe4.png")
    try:
        picture().save(odd)
    except OSError:
        pytest.skip("this file system only takes UTF-8 names")
    source = open_images(str(tmp_path))
    assert source.describe(0) == odd
    assert not source.read(torch.tensor([0]), draw_crops(PRESETS["none"], torch.tensor([0])), (8, 8))[1]


def test_sizes_are_those_of_evenly_spaced_upright_images(tmp_path: Path) -> None:
    for index in range(10):
        save(tmp_path / f"{index}.png", picture(20 + index, 50))
    assert open_images(str(tmp_path)).sizes(4) == [(20, 50), (23, 50), (26, 50), (29, 50)]
    assert len(open_images(str(tmp_path)).sizes()) == 10


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: str(folder / "misssing"), r"no folder.*Did you mean 'missing_letter'"),
        (lambda folder: str(folder / "text"), r"no folder.*Did you mean 'texts'\?"),  # and not text.sh
        (lambda folder: "", "no folder ''"),
        (lambda folder: f"stream:{folder}", "stream: is for shards.* is a folder of image files.*Leave stream: out"),
        (lambda folder: "stream:scenes:10", "stream: is for shards.* scenes:10 are drawn in memory"),
        (lambda folder: str(folder / "missing_letter"), "no images in .*or below"),
        (lambda folder: str(folder / "texts"), r"no images in .*1 \.txt"),
        (lambda folder: str(folder / "texts/a.txt"), "is a file.*Give the folder"),
        (lambda folder: str(folder / "broken"), r"3 were tried and none could be read; for example .*0\.png: "),
        (lambda folder: "hf:cifar10", "'hf:' .*not a kind of data set"),
        (lambda folder: "scene:100", "Did you mean 'scenes'"),
        (lambda folder: "scenes:10,sise=64", "'sise'.*Did you mean 'size'"),
        (lambda folder: "scenes:many", "count=many in scenes:many must be a whole number"),
        (lambda folder: "scenes:0", "whole number"),
        (lambda folder: "scenes:9,frames=3", "'frames' in scenes:9,frames=3 is not an option"),
        (lambda folder: "scenes:9,were=1", "'were'.*Did you mean 'where'.*Options: count, size,"),
        (
            lambda folder: "scenes:9,where=abc",
            "where=abc in scenes:9,where=abc must be a number",
        ),
        (lambda folder: "scenes:9,where=", "where= in scenes:9,where= must be a number"),
        (lambda folder: "scenes:9,where=2", "where is 2; use a number from 0 .* to 1"),
        (lambda folder: "scenes:9,where=-0.1", "where is -0.1; use"),
        (lambda folder: "scenes:9,where=nan", "where is nan; use"),
    ],
)
def test_what_cannot_be_opened_says_why(tmp_path: Path, make: Callable[[Path], str], said: str) -> None:
    (tmp_path / "missing_letter").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "text.sh").touch()
    (tmp_path / "texts/a.txt").write_text("text")
    (tmp_path / "broken").mkdir()
    for index in range(3):
        (tmp_path / f"broken/{index}.png").write_bytes(b"not a picture")
    with pytest.raises(UserError, match=said):
        open_images(make(tmp_path))


def test_a_few_broken_files_do_not_keep_a_folder_from_being_opened(tmp_path: Path) -> None:
    for index in range(20):
        (tmp_path / f"{index:02}.png").write_bytes(b"not a picture")
    save(tmp_path / "99.png")
    source = open_images(str(tmp_path))
    assert len(source) == 21
    assert source.sizes() == [(40, 60)]


def test_scenes_are_the_same_images_each_time_with_labels_that_name_classes() -> None:
    source = open_images("scenes:12,size=32,seed=3,split=test")
    assert isinstance(source, ArraySource)
    assert source.images.shape == (12, 32, 32, 3) and source.sizes() == [(32, 32)] * 12
    assert source.labels is not None and source.labels.shape == (12,) and source.classes is not None
    assert int(source.labels.min()) >= 0 and int(source.labels.max()) < len(source.classes)
    again, other = (open_images(f"scenes:12,size=32,seed={seed},split=test") for seed in (3, 4))
    assert isinstance(again, ArraySource) and isinstance(other, ArraySource)
    assert torch.equal(source.images, again.images) and not torch.equal(source.images, other.images)


def test_the_name_and_the_identity_of_scenes_tell_where_their_parts_are() -> None:
    opened = [open_images(f"scenes:12,size=32{where}") for where in ("", ",where=0", ",where=0.5", ",where=1")]
    assert [one.name for one in opened][2] == "scenes:12,size=32,where=0.5"
    assert len({identity(one)["list_of_images"] for one in opened}) == 4
    assert len({one.fingerprint() for one in opened}) == 4


def test_a_name_means_the_same_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept = ["scenes", "scenes:20,size=32", "scenes,part=0-0.5", "hf://NAME:train", "stream:hf://NAME", "pipe:a"]
    assert absolute_names(kept) == kept
    moved = ["images", "./scenes", "scenes_mine/train,part=0-0.5", "stream:a.tar"]
    named = absolute_names(moved)
    assert isinstance(named, list)
    assert [name.replace(f"{tmp_path}/", "") for name in named] == [name.removeprefix("./") for name in moved]
    assert all(str(tmp_path) in name for name in named)


def test_files_and_arrays_give_the_same_crops(tmp_path: Path) -> None:
    images = [picture(50, 70, seed) for seed in range(6)]
    for index, image in enumerate(images):
        save(tmp_path / f"{index}.png", image)
    crops = draw_crops(Augmentation(flip=0.5), torch.arange(6) * 7919)
    files, unreadable = open_images(str(tmp_path)).read(torch.arange(6), crops, (24, 32))
    arrays = crop_arrays(torch.from_numpy(np.stack([np.asarray(image) for image in images])), crops, (24, 32))
    assert not unreadable
    assert (files.int() - arrays.int()).abs().max() <= 1


def test_a_source_can_be_sent_to_another_process(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/2.png"):
        save(tmp_path / name)
    folder = open_images(str(tmp_path))
    crops = draw_crops(PRESETS["ijepa"], torch.arange(2))
    for source in (folder, ArraySource("noise", torch.arange(96, dtype=torch.uint8).view(2, 4, 4, 3))):
        sent = pickle.loads(pickle.dumps(source))
        assert torch.equal(
            sent.read(torch.arange(2), crops, (8, 8))[0], source.read(torch.arange(2), crops, (8, 8))[0]
        )
        assert sent.classes == source.classes
    assert str(pickle.loads(pickle.dumps(UnreadableImage("x.png", "broken")))) == "x.png: broken"


def test_small_images_are_enlarged(tmp_path: Path) -> None:
    save(tmp_path / "x.png", Image.new("RGB", (1, 2), (10, 20, 30)))
    crops = draw_crops(PRESETS["ijepa"], torch.arange(1))
    images, unreadable = open_images(str(tmp_path)).read(torch.tensor([0]), crops, (32, 32))
    assert not unreadable and (images[0].permute(1, 2, 0) == torch.tensor([10, 20, 30])).all()
