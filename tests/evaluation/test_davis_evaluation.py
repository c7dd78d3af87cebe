"""`evaluate davis` from a tree to masks, scores and films, on from where it was interrupted."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_davis import FRAMES, NAMES, SIZE, PatchColors, evaluate, scored
from torch import nn

from flexpredict.errors import UserError
from flexpredict.evaluation.index_masks import PALETTE, read_mask, write_mask


def test_a_tree_becomes_masks_scores_and_films(tree: Path, tmp_path: Path) -> None:
    result = evaluate(tree, tmp_path / "out", overlays="gif")
    assert result.protocol["fingerprint"] == PatchColors().fingerprint()
    for name in NAMES:
        masks = sorted((tmp_path / "out" / "masks" / name).iterdir())
        assert [mask.name for mask in masks] == [f"{number:05d}.png" for number in range(FRAMES)]
        first, last = (tree / "Annotations" / "480p" / name / f"{number:05d}.png" for number in (0, FRAMES - 1))
        np.testing.assert_array_equal(read_mask(masks[0]), read_mask(first))
        assert read_mask(masks[-1]).shape == read_mask(last).shape
        with Image.open(tmp_path / "out" / "overlays" / f"{name}.gif") as film:
            assert film.n_frames == FRAMES
            assert film.size == (SIZE + 16, SIZE)
    objects = (tmp_path / "out" / "scores.csv").read_text().splitlines()
    assert len(objects) == 1 + result.protocol["objects"]
    assert objects[0] == "object,J&F,J mean,J recall,J decay,F mean,F recall,F decay"
    again = scored(tmp_path / "out" / "masks", tree, tmp_path / "scored")
    assert again.numbers == result.numbers
    assert (tmp_path / "scored" / "result.json").is_file()


def test_masks_that_are_the_truth_score_100(tree: Path, tmp_path: Path) -> None:
    result = scored(tree / "Annotations" / "480p", tree, tmp_path / "out")
    assert result.numbers["J&F"] == 100
    assert result.numbers["J decay"] == 0


def test_predictions_need_neither_the_first_nor_the_last_mask_nor_frames(tree: Path, tmp_path: Path) -> None:
    masks = tmp_path / "masks"
    shutil.copytree(tree / "Annotations" / "480p", masks)
    shutil.rmtree(tree / "JPEGImages")
    for name in NAMES:
        (masks / name / "00000.png").unlink()
        (masks / name / f"{FRAMES - 1:05d}.png").unlink()
    assert scored(masks, tree, tmp_path / "out").numbers["J&F"] == 100


def test_the_title_names_settings_other_than_the_defaults_and_the_encoder_once(tmp_path: Path) -> None:
    result = evaluate("scenes:1,size=48,frames=3", tmp_path / "out", radius=3)
    assert result.protocol["settings"] == f"radius 3, height {SIZE}"


def test_the_scenes_need_no_files(tmp_path: Path) -> None:
    result = evaluate("scenes:2,size=48,frames=4", tmp_path / "out")
    assert result.protocol["sequences"] == 2
    assert result.protocol["frames"] == 8
    again = scored(tmp_path / "out" / "masks", "scenes:2,size=48,frames=4", tmp_path / "scored")
    assert again.numbers == result.numbers
    with_parts = evaluate("scenes:2,size=48,frames=4,where=1", tmp_path / "parts")
    assert with_parts.data == "scenes:2,size=48,frames=4,where=1" and with_parts.numbers != result.numbers


def test_in_2016_all_objects_are_one(tree: Path, tmp_path: Path) -> None:
    (tree / "ImageSets" / "2016").symlink_to(tree / "ImageSets" / "2017")
    result = evaluate(tree, tmp_path / "out", year="2016")
    assert list(result.details["objects"]) == ["first_1", "second_1"]
    for path in (tree / "Annotations").rglob("*.png"):  # as in the tree of 2016 itself
        write_mask(np.where(read_mask(path) > 0, 255, 0).astype(np.uint8), path)
    assert evaluate(tree, tmp_path / "other", year="2016").numbers == result.numbers


def test_the_palette_is_that_of_pascal_voc(tmp_path: Path) -> None:
    known = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0), 3: (128, 128, 0), 4: (0, 0, 128), 8: (64, 0, 0)}
    assert {number: tuple(PALETTE[number].tolist()) for number in known} == known
    assert tuple(PALETTE[255].tolist()) == (224, 224, 192)
    mask = np.arange(256, dtype=np.uint8).reshape(16, 16)
    write_mask(mask, tmp_path / "mask.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.png"), mask)
    with Image.open(tmp_path / "mask.png") as image:
        assert image.mode == "P"
        np.testing.assert_array_equal(np.array(image.convert("RGB")), PALETTE[mask])


def test_an_interrupted_evaluation_goes_on_where_it_was(tree: Path, tmp_path: Path) -> None:
    whole = evaluate(tree, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        evaluate(tree, tmp_path / "out", PatchColors(breaks_after=1 + FRAMES))  # one frame is shown to try it out
    assert [folder.name for folder in (tmp_path / "out" / "masks").iterdir()] == ["first"]
    encoder = PatchColors()
    assert evaluate(tree, tmp_path / "out", encoder).numbers == whole.numbers
    assert encoder.shown == 1 + FRAMES


def test_masks_of_other_settings_are_not_mixed_in(tree: Path, tmp_path: Path) -> None:
    evaluate(tree, tmp_path / "out")
    with pytest.raises(UserError, match=r"radius=12 \(now 3\)"):
        evaluate(tree, tmp_path / "out", radius=3)
    other = PatchColors()
    nn.init.ones_(other.project.weight)
    with pytest.raises(UserError, match="started with fingerprint="):
        evaluate(tree, tmp_path / "out", other)
    with pytest.raises(UserError, match=r"settings\.json"):
        (tmp_path / "out" / "settings.json").unlink()
        evaluate(tree, tmp_path / "out")


def test_mp4_without_ffmpeg_is_refused_before_anything_is_done(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="overlays=gif"):
        evaluate(tree, tmp_path / "out", overlays="mp4")
    assert not (tmp_path / "out").exists()


def test_ffmpeg_is_given_every_frame(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "ffmpeg"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor last; do :; done\nexec /bin/cat > "$last"\n')  # copies what it is given
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    evaluate(tree, tmp_path / "out", overlays="mp4")
    film = (tmp_path / "out" / "overlays" / "first.mp4").read_bytes()
    assert len(film) == FRAMES * SIZE * (SIZE + 16) * 3
    program.write_text("#!/bin/sh\necho no such codec >&2\nexit 1\n")
    with pytest.raises(UserError, match="no such codec"):
        evaluate(tree, tmp_path / "other", overlays="mp4")
    assert not list((tmp_path / "other" / "overlays").iterdir())
