"""Images with masks in every layout, and masks that cannot be used: refused before any work."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from masked_pictures import ade20k, cityscapes, two_folders, voc, write_pair
from mean_color import MeanColor
from PIL import Image

from flexpredict.errors import UserError
from flexpredict.evaluation.dense import evaluate_segmentation
from flexpredict.evaluation.dense.classes import Classes, MaskSurvey, share_below_a_patch
from flexpredict.evaluation.dense.layouts import open_masked_images
from flexpredict.evaluation.dense.patches import EncodedSize
from flexpredict.evaluation.index_masks import read_mask, write_mask
from flexpredict.evaluation.results import Result


def evaluated(train: str | Path, test: str | Path | None = None, **options: Any) -> Result:
    return evaluate_segmentation(MeanColor(), train, test or train, out=None, neighbors=0, **options)


def shown(result: Result) -> dict[str, float]:
    """IoU of the classes that are there."""
    classes = result.details["classes"]
    return {name: entry["IoU"]["linear"] for name, entry in classes.items() if entry["pixels"]}


def test_all_layouts_of_the_same_pictures_give_the_same_numbers(tmp_path: Path) -> None:
    results = [
        evaluated(cityscapes(tmp_path / "ids", "labelIds")),
        evaluated(cityscapes(tmp_path / "trains", "labelTrainIds")),
        evaluated(two_folders(tmp_path / "train", 12), two_folders(tmp_path / "test", 6, first=12)),
    ]
    assert [len(result.details["classes"]) for result in results] == [19, 19, 3]
    assert [list(shown(result)) for result in results] == [
        ["road", "sidewalk", "building"],
        ["road", "sidewalk", "building"],
        ["class 0", "class 1", "class 2"],
    ]
    for result in results[1:]:
        assert list(shown(result).values()) == pytest.approx(list(shown(results[0]).values()))
    assert min(shown(results[0]).values()) > 0.5


def test_photos_of_voc_and_ade_are_found_through_their_lists_and_numbers(tmp_path: Path) -> None:
    of_voc, of_ade = evaluated(voc(tmp_path / "VOC2012")), evaluated(ade20k(tmp_path / "ADE"))
    assert list(shown(of_voc)) == ["background", "aeroplane", "bicycle"]
    assert list(shown(of_ade)) == ["class 1", "class 2", "class 3"]
    assert list(shown(of_ade).values()) == pytest.approx(list(shown(of_voc).values()))
    assert [result.protocol["train"]["images"] for result in (of_voc, of_ade)] == [12, 12]
    assert [result.protocol["test"]["images"] for result in (of_voc, of_ade)] == [6, 6]
    (tmp_path / "ADE" / "objectInfo150.txt").write_text("Idx\tRatio\tName\n2\t0.1\tbuilding, edifice \n")
    _, labels = open_masked_images(str(tmp_path / "ADE"), "test")
    assert labels.names is not None and [labels.names[number] for number in (1, 2)] == [
        "class 1",
        "building, edifice",
    ]


def test_a_split_or_a_part_is_taken_when_it_is_named(tmp_path: Path) -> None:
    root = voc(tmp_path / "VOC2012")
    images, _ = open_masked_images(f"{root},split=val", "train")
    assert len(images) == 6 and images.name.endswith("VOC2012, val")
    half, _ = open_masked_images(f"{root},split=val,part=0-0.5", "train")
    assert len(half) == 3
    whole = {images.source.describe(index): images.describe_map(index) for index in range(6)}
    assert all(whole[half.source.describe(index)] == half.describe_map(index) for index in range(3))


def test_void_pixels_count_for_nothing(tmp_path: Path) -> None:
    data = two_folders(tmp_path, 10)
    for mask in (tmp_path / "masks").iterdir():
        numbers = read_mask(mask)
        numbers[:8] = 255
        write_mask(numbers, mask)
    before = evaluated(data)
    for image in (tmp_path / "images").iterdir():
        pixels = np.array(Image.open(image))
        pixels[:8] = 0
        Image.fromarray(pixels).save(image)
    after = evaluated(data)
    # The scores of the first row of patches reach a little into the second, where pixels count.
    assert after.numbers["linear mIoU"] == pytest.approx(before.numbers["linear mIoU"], abs=8)
    assert after.protocol["patches"] == before.protocol["patches"]
    assert after.protocol["l2"] == before.protocol["l2"]


def test_a_file_names_the_classes_and_void_leaves_some_out(tmp_path: Path) -> None:
    data = two_folders(tmp_path / "data", 10)
    (tmp_path / "plain.txt").write_text("# of our camera\ngray\nred\n\ngreen\n")
    (tmp_path / "numbered.txt").write_text("2: green\n0: gray\n1: red\n")
    assert list(shown(evaluated(data, classes=tmp_path / "plain.txt"))) == ["gray", "red", "green"]
    assert list(shown(evaluated(data, classes=tmp_path / "numbered.txt"))) == ["green", "gray", "red"]
    assert list(shown(evaluated(data, classes=tmp_path / "plain.txt", void=[0]))) == ["red", "green"]


def test_images_without_a_label_and_patches_larger_than_what_they_show_are_told(tmp_path: Path) -> None:
    data = two_folders(tmp_path, 10)
    empty = tmp_path / "masks" / "004.png"
    write_mask(np.full_like(read_mask(empty), 255), empty)
    *warnings, shared = evaluated(data).warnings
    assert "All 10 test images are also training images" in shared
    assert len(warnings) == 2 and all("1 of 10" in warning and "004.png" in warning for warning in warnings)
    for number in range(10):
        mask = np.zeros_like(read_mask(tmp_path / "masks" / f"{number:03d}.png"))
        mask[:8, :8] = 1
        mask[20:22, 20:22] = 2
        write_mask(mask, tmp_path / "masks" / f"{number:03d}.png")
    assert not any("smaller than one patch" in warning for warning in evaluated(data).warnings)
    assert any("smaller than one patch" in warning for warning in evaluated(data, image_size=24).warnings)


def test_they_are_told_before_hours_of_encoding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = two_folders(tmp_path, 10)
    empty = tmp_path / "masks" / "004.png"
    write_mask(np.full_like(read_mask(empty), 255), empty)
    encoder = MeanColor()
    encoder.fails_after = 0
    with pytest.raises(KeyboardInterrupt):
        evaluate_segmentation(encoder, data, data, out=None)
    assert "WARNING: 1 of 10 training images have no labeled pixel" in capsys.readouterr().out


def test_a_large_background_does_not_hide_that_objects_are_smaller_than_patches() -> None:
    images, _ = open_masked_images("scenes:2,size=32", "test")
    counts = np.zeros((2, 256), np.int64)
    counts[:, 0], counts[:, 7] = 924, 100  # a tenth of the image
    survey, encoder = MaskSurvey(images, "test", counts, [(32, 32)] * 2), MeanColor()
    named, unnamed = (Classes((name, "ball"), (0, 7)) for name in ("background", "class 0"))
    coarse, fine = EncodedSize(16, encoder), EncodedSize(32, encoder)  # 4 patches, 16 patches
    assert share_below_a_patch(survey, named, coarse, encoder) == 1
    assert share_below_a_patch(survey, unnamed, coarse, encoder) == 1
    assert share_below_a_patch(survey, named, fine, encoder) == 0


def make_too_small(root: Path) -> None:
    write_mask(np.zeros((8, 8), np.uint8), root / "masks" / "003.png")


def make_out_of_range(root: Path) -> None:
    numbers = read_mask(root / "masks" / "003.png")
    numbers[0, 0] = 42
    write_mask(numbers, root / "masks" / "003.png")


def make_colorful(root: Path) -> None:
    Image.open(root / "images" / "003.png").save(root / "masks" / "003.png")


def make_cut_off(root: Path) -> None:
    path = root / "images" / "003.png"
    path.write_bytes(path.read_bytes()[:20])


def make_all_void(root: Path) -> None:
    for mask in (root / "masks").iterdir():
        write_mask(np.full_like(read_mask(mask), 255), mask)


def make_all_one(root: Path) -> None:
    for mask in (root / "masks").iterdir():
        write_mask(np.ones_like(read_mask(mask)), mask)


def take_away(root: Path) -> None:
    (root / "masks" / "003.png").unlink()


def leave_few(root: Path) -> None:
    for number in range(4, 10):
        (root / "images" / f"{number:03d}.png").unlink()


def test_training_masks_without_any_label_are_named_even_if_the_test_masks_have_some(tmp_path: Path) -> None:
    train, test = two_folders(tmp_path / "train", 10), two_folders(tmp_path / "test", 10)
    make_all_void(tmp_path / "train")
    with pytest.raises(UserError, match=r"No training image of .*train/images has a label"):
        evaluated(train, test)


@pytest.mark.parametrize(
    ("spoil", "options", "said"),
    [
        (make_too_small, {}, r"masks/003.png has 8x8 pixels .* but its image .*images/003.png has 32x32"),
        (take_away, {}, r"1 of the 10 images of .*images have no mask: 003.png. The first needs .*masks/003.png"),
        (make_out_of_range, {"classes": True}, r"003.png has pixels of number 42, which is none of the 3 classes"),
        (make_colorful, {}, r"003.png is an image of mode RGB, not an index mask"),
        (make_cut_off, {}, r"The image .*003.png"),
        (make_all_void, {}, r"No training image of .* has a label"),
        (make_all_one, {}, r"show only one class, class 1"),
        (leave_few, {}, r"has 4 image\(s\), but at least 5 are needed"),
        (None, {"void": [256]}, r"void=256 is out of range"),
        (None, {"classes": "nothing.txt"}, r"classes=nothing.txt cannot be read"),
        (None, {"image_size": "30x30"}, r"image_size=32x32"),
        (None, {"layers": 2}, r"layers=2 is out of range for"),
        (None, {"patches": 5}, r"patches=5 is out of range"),
        (None, {"neighbors": 101, "patches": 100}, r"neighbors=101 is more than patches=100"),
        (None, {"pictures": -1}, r"pictures=-1"),
    ],
)
def test_what_cannot_be_used_is_refused_before_any_image_is_encoded(
    spoil: Callable[[Path], None] | None, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    data = two_folders(tmp_path, 10)
    if spoil is not None:
        spoil(tmp_path)
    if options.get("classes") is True:
        (tmp_path / "classes.txt").write_text("gray\nred\ngreen\n")
        options = {"classes": tmp_path / "classes.txt"}
    encoder = MeanColor()
    with pytest.raises(UserError, match=said):
        evaluate_segmentation(encoder, data, data, out=tmp_path / "results", **({"neighbors": 0} | options))
    assert encoder.seen == 0
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("nowhere", "There is no folder 'nowhere'"),
        ("{root}", "has no masks in a known layout. Did you mean .*VOC2012?"),
        ("{root}/VOC2012,split=vla", "There is no split 'vla'.* Did you mean 'val'?"),
        ("{root}/VOC2012,masks=nowhere", "There is no folder nowhere"),
        ("{root}/VOC2012,maks=nowhere", "'maks' in .* is not an option. Did you mean 'masks'?"),
        ("scenes:12,sice=32", "'sice' in scenes:12,sice=32 is not an option"),
    ],
)
def test_names_that_stand_for_nothing_are_refused_with_the_nearest_that_do(
    data: str, said: str, tmp_path: Path
) -> None:
    voc(tmp_path / "VOC2012")
    with pytest.raises(UserError, match=said.replace("?", r"\?")):
        open_masked_images(data.format(root=tmp_path), "train")


def test_a_list_with_an_image_that_is_not_there_is_refused(tmp_path: Path) -> None:
    root = voc(tmp_path / "VOC2012")
    (root / "JPEGImages" / "2007_000002.jpg").unlink()
    with pytest.raises(UserError, match=re.escape("1 of the 12 images that are listed are not in")):
        open_masked_images(str(root), "train")


def test_data_sets_that_number_their_classes_differently_are_not_mixed(tmp_path: Path) -> None:
    write_pair(0, tmp_path / "a.png", tmp_path / "b.png")
    with pytest.raises(UserError, match="number their classes differently"):
        evaluated(voc(tmp_path / "VOC2012"), ade20k(tmp_path / "ADE"))
