"""CLEVR's labels are VTAB's, from CLEVR's own scene files; files that do not tell them are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from flexpredict.data.scenes.scenes import SceneBatch, draw_scenes, nearest_bins
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation import clevr_images
from flexpredict.evaluation.clevr_images import ClevrTask, clevr_sources, depth_bin
from flexpredict.evaluation.probe import evaluate_clevr
from flexpredict.randomness import sample_keys, uniform

pytestmark = pytest.mark.usefixtures("few_penalties")

MINI = Path(__file__).parents[3] / "shared" / "data" / "clevr_mini"
QUICK: dict[str, Any] = {"l2": 0.1, "out": None, "accelerator": "cpu"}


def vtab_distance(depths: list[float]) -> int:
    """VTAB's rule: the last of these thresholds that is below the distance of the nearest object."""
    thresholds = np.array([0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0])
    return int(np.max(np.where(thresholds - min(depths) < 0)))


def write_clevr(folder: Path, train: int = 40, val: int = 20) -> Path:
    """Scenes of 3 to 5 objects in CLEVR's layout, listed in an order that is not that of their names."""
    for split, count in (("train", train), ("val", val)):
        (folder / "images" / split).mkdir(parents=True)
        (folder / "scenes").mkdir(exist_ok=True)
        numbers = uniform(sample_keys(3, torch.arange(count)), 20).numpy()
        scenes = []
        for index in range(count):
            name = f"CLEVR_{split}_{index:06d}.png"
            Image.fromarray((numbers[index, :12] * 255).astype(np.uint8).reshape(2, 2, 3)).resize((48, 32)).save(
                folder / "images" / split / name
            )
            objects = [
                {"pixel_coords": [100, 80, round(7.5 + 4 * float(numbers[index, 15 + number]), 3)], "shape": "cube"}
                for number in range(3 + index % 3)
            ]
            scenes.append({"image_index": index, "image_filename": name, "split": split, "objects": objects})
        path = folder / "scenes" / f"CLEVR_{split}_scenes.json"
        path.write_text(json.dumps({"info": {"split": split}, "scenes": scenes[::-1]}))
    return folder


def scenes_of(folder: Path, split: str) -> dict[str, list[float]]:
    written = json.loads((folder / "scenes" / f"CLEVR_{split}_scenes.json").read_text())["scenes"]
    return {scene["image_filename"]: [thing["pixel_coords"][2] for thing in scene["objects"]] for scene in written}


def rewrite(folder: Path, change: Any) -> None:
    path = folder / "scenes" / "CLEVR_train_scenes.json"
    written = json.loads(path.read_text())
    change(written["scenes"])
    path.write_text(json.dumps(written))


@pytest.mark.parametrize("depth", [0.1, 7.999, 8.0, 8.001, 8.25, 8.5, 9.0, 9.01, 9.5, 9.7, 10.0, 10.001, 30.0])
def test_distances_fall_into_the_bins_of_vtab(depth: float) -> None:
    assert depth_bin([depth, depth + 1, 50.0]) == vtab_distance([50.0, depth, depth + 1])


@pytest.mark.parametrize("split", ["train", "val"])
def test_each_image_has_the_labels_of_its_scene(split: str, tmp_path: Path) -> None:
    folder = write_clevr(tmp_path / "clevr")
    truth = scenes_of(folder, split)
    which = "train" if split == "train" else "test"
    count, dist = clevr_sources(str(folder), which)
    assert len(count) == len(dist) == len(truth)
    assert count.labels is not None and count.classes is not None and dist.labels is not None
    assert len(dist.classes or ()) == 6
    for index in range(len(count)):
        depths = truth[Path(count.describe(index)).name]
        assert count.classes[int(count.labels[index])] == f"{len(depths)} objects"
        assert int(dist.labels[index]) == vtab_distance(depths)
    assert count.fingerprint() == dist.fingerprint(), "both tasks share one extraction"


def test_both_tasks_are_probed_and_the_second_reads_the_features_of_the_first(
    encoder: ViTEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_clevr(tmp_path / "clevr", train=60, val=20)
    seen = []
    pooled = encoder.pooled
    monkeypatch.setattr(encoder, "pooled", lambda images, *more: seen.append(len(images)) or pooled(images, *more))
    count, dist = evaluate_clevr(encoder, str(folder), **QUICK)
    assert (count.task, dist.task) == ("clevr count", "clevr dist")
    assert count.protocol["train"]["images"] == 60 and count.protocol["test"]["images"] == 20
    assert sum(seen) == 80
    assert count.protocol["classes"] == 3


@pytest.mark.parametrize(
    ("damage", "task", "message"),
    [
        (lambda scenes: scenes[3]["objects"][0].pop("pixel_coords"), "dist", "pixel_coords"),
        (lambda scenes: scenes[3]["objects"][0]["pixel_coords"].pop(), "dist", "the third of which is the depth"),
        (lambda scenes: scenes[3].pop("objects"), "count", "'objects'"),
        (lambda scenes: scenes[3].pop("image_filename"), "count", "image_filename"),
        (lambda scenes: scenes[3].update(image_filename=7), "count", "image_filename"),
        (
            lambda scenes: scenes[3].update(image_filename="none.png"),
            "count",
            "names 1 images that .* for example none.png",
        ),
        (lambda scenes: scenes[3]["objects"].clear(), "dist", "not a complete file of CLEVR scenes"),
        (lambda scenes: scenes.clear(), "count", "has no scenes"),
    ],
)
def test_scenes_that_do_not_tell_the_label_are_refused(
    damage: Any, task: ClevrTask, message: str, tmp_path: Path
) -> None:
    folder = write_clevr(tmp_path / "clevr", train=8, val=2)
    rewrite(folder, damage)
    with pytest.raises(UserError, match=f"CLEVR_train_scenes.json.*{message}"):
        clevr_sources(str(folder), "train", [task])


def test_counting_does_not_need_depths(tmp_path: Path) -> None:
    folder = write_clevr(tmp_path / "clevr", train=8, val=2)
    rewrite(folder, lambda scenes: [thing.pop("pixel_coords") for scene in scenes for thing in scene["objects"]])
    (source,) = clevr_sources(str(folder), "train", ["count"])
    assert source.labels is not None


def test_a_damaged_file_and_another_folder_are_refused(tmp_path: Path) -> None:
    folder = write_clevr(tmp_path / "clevr", train=8, val=2)
    path = folder / "scenes" / "CLEVR_val_scenes.json"
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UserError, match=r"CLEVR_val_scenes.json is not a complete file of CLEVR scenes \(JSON"):
        clevr_sources(str(folder), "test")
    path.write_text("[1, 2]")
    with pytest.raises(UserError, match="not a complete file"):
        clevr_sources(str(folder), "test")
    with pytest.raises(UserError, match=r"is not CLEVR's folder: there is no .*Give the unpacked CLEVR_v1.0"):
        clevr_sources(str(tmp_path), "train")


def test_the_built_in_scenes_stand_in_for_clevr(encoder: ViTEncoder) -> None:
    results = evaluate_clevr(encoder, "scenes:100,size=32", **QUICK)
    assert [result.protocol["test"]["images"] for result in results] == [20, 20]
    count, dist = clevr_sources("scenes:100,size=32", "train")
    drawn = draw_scenes(np.arange(100), size=32)
    assert count.classes is not None and count.labels is not None and dist.labels is not None
    assert [count.classes[label] for label in count.labels] == [f"{number} objects" for number in drawn.counts]
    assert dist.labels.tolist() == nearest_bins(drawn.nearest).tolist()
    for wrong, said in (("many", "whole number"), ("30,sise=3", "Did you mean 'size'"), ("30,40", "'40' in")):
        with pytest.raises(UserError, match=said):
            clevr_sources(f"scenes:{wrong}", "train")


def test_parts_of_objects_are_not_counted_as_objects() -> None:
    whole, with_parts = (clevr_sources(f"scenes:60,size=32{where}", "test") for where in ("", ",where=1"))
    for plain, parts in zip(whole, with_parts, strict=True):
        assert plain.labels is not None and parts.labels is not None
        assert plain.labels.tolist() == parts.labels.tolist()
        assert plain.fingerprint() != parts.fingerprint() and "where=1" in parts.name


def test_scenes_are_drawn_once_for_both_tasks(encoder: ViTEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def draw(indices: NDArray[np.int64], **how: Any) -> SceneBatch:
        drawn.append(len(indices))
        return draw_scenes(indices, **how)

    monkeypatch.setattr(clevr_images, "draw_scenes", draw)
    evaluate_clevr(encoder, "scenes:100,size=32", **QUICK)
    assert drawn == [100, 20]


@pytest.mark.skipif(not MINI.is_dir(), reason="no ../shared/data/clevr_mini")
def test_renders_of_clevr_can_be_read_and_unknown_counts_are_refused(encoder: ViTEncoder) -> None:
    (dist,) = evaluate_clevr(encoder, str(MINI), **QUICK, tasks=["dist"])
    assert dist.protocol["test"]["images"] > 10
    with pytest.raises(UserError, match=r"classes of .*val have no image in .*train: \d+ objects"):
        evaluate_clevr(encoder, str(MINI), **QUICK, tasks=("count",))
