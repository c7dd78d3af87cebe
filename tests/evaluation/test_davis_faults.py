"""Faulty DAVIS trees, masks and settings are refused before any frame is encoded."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_davis import SIZE, PatchColors, evaluate, scored

from flexpredict.errors import UserError
from flexpredict.evaluation.index_masks import write_mask


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def _as_rgb(path: Path) -> None:
    with Image.open(path) as image:
        image.convert("RGB").save(path)


def _resized(path: Path) -> None:
    with Image.open(path) as image:
        image.resize((20, 10), Image.Resampling.NEAREST).save(path)


def _only(number: int) -> Callable[[Path], None]:
    return lambda path: write_mask(np.full((SIZE, SIZE + 16), number, np.uint8), path)


MASK, FRAME = "Annotations/480p/second/{}.png", "JPEGImages/480p/second/{}.jpg"


@pytest.mark.parametrize(
    ("what", "damage", "message"),
    [
        ("Annotations", shutil.rmtree, "lacks Annotations/480p"),
        ("JPEGImages", shutil.rmtree, "lacks JPEGImages/480p"),
        ("ImageSets/2017/val.txt", Path.unlink, r"val\.txt is missing"),
        ("ImageSets/2017/val.txt", lambda path: path.write_text("\n"), "lists no sequence"),
        ("JPEGImages/480p/second", shutil.rmtree, "1 of the 2 sequences.*second"),
        (MASK.format("00003"), Path.unlink, r"1 frames have no mask \(00003\)"),
        (FRAME.format("00003"), Path.unlink, r"1 masks have no frame \(00003\)"),
        (MASK.format("00003"), _resized, r"00003\.png has 10x20 pixels.*has 48x64"),
        (MASK.format("00003"), _as_rgb, r"00003\.png is an image of mode RGB, not an index mask"),
        (MASK.format("00003"), lambda path: path.write_text("no image"), r"00003\.png cannot be read"),
        (FRAME.format("00003"), lambda path: path.write_text("no image"), r"00003\.jpg"),
        (MASK.format("00000"), _truncate, r"00000\.png cannot be read"),
        (MASK.format("00000"), _only(0), "no object in the first mask of sequence second"),
        (MASK.format("00000"), _only(255), "year=2016"),
    ],
)
def test_a_faulty_tree_is_refused_before_any_frame_is_encoded(
    tree: Path, tmp_path: Path, what: str, damage: Callable[[Path], Any], message: str
) -> None:
    damage(tree / what)
    encoder = PatchColors()
    with pytest.raises(UserError, match=message):
        evaluate(tree, tmp_path / "out", encoder)
    assert encoder.shown == 0
    assert not (tmp_path / "out").exists()


def test_a_grayscale_picture_is_not_taken_for_a_hundred_objects(tree: Path, tmp_path: Path) -> None:
    picture = np.arange(SIZE * (SIZE + 16), dtype=np.uint32).reshape(SIZE, SIZE + 16) % 250
    Image.fromarray(picture.astype(np.uint8)).save(tree / MASK.format("00000"))
    with pytest.raises(UserError, match="249 different numbers"):
        evaluate(tree, tmp_path / "out")


def test_a_folder_above_the_tree_is_told_where_the_tree_is(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"There is one in {tree}"):
        evaluate(tree.parent, tmp_path / "out")
    with pytest.raises(UserError, match="There is no folder"):
        evaluate(tree / "nowhere", tmp_path / "out")
    with pytest.raises(UserError, match="Did you mean 'val'"):
        evaluate(tree, tmp_path / "out", split="vall")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("size=none", "whole number"),
        ("frames=2", "at least 3"),
        ("0", "at least 1"),
        ("frame=8", "'frames'"),
        ("where=2", "where is 2"),
    ],
)
def test_wrong_options_of_the_scenes_are_refused(options: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        evaluate(f"scenes:{options}", tmp_path / "out")


def test_an_encoder_that_cannot_take_color_frames_is_refused(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="3 channels"):
        evaluate(tree, tmp_path / "out", PatchColors(channels=1))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("what", "damage", "message"),
    [
        ("second", shutil.rmtree, "lacks 1 of 2 sequences: second"),
        ("second/00002.png", Path.unlink, r"lacks 1 of the 3 masks that are scored: 00002\.png"),
        ("second/00002.png", _resized, r"00002\.png has 10x20 pixels"),
        ("second/00002.png", _as_rgb, "mode RGB"),
        ("second/00002.png", _only(77), "names the object 77"),
    ],
)
def test_faulty_predictions_are_refused(
    tree: Path, tmp_path: Path, what: str, damage: Callable[[Path], Any], message: str
) -> None:
    masks = tmp_path / "masks"
    shutil.copytree(tree / "Annotations" / "480p", masks)
    damage(masks / what)
    with pytest.raises(UserError, match=message):
        scored(masks, tree, tmp_path / "out")
    assert not (tmp_path / "out").exists()
