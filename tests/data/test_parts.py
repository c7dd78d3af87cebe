"""Parts of a set of images: what is held out is in no other part, and nothing is missing."""

from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import CLASSES, numbers_in, picture, write_shards

from flexpredict.data.scenes.scenes import draw_scenes, nearest_bins, scene_answers
from flexpredict.data.sources.derived import split_part
from flexpredict.data.sources.opening import open_source
from flexpredict.data.sources.streams import identity
from flexpredict.errors import UserError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of class number k, 10 (k + 1) pictures."""
    monkeypatch.setenv("FLEXPREDICT_CACHE", str(tmp_path / "cache"))
    number = 0
    for count, name in zip((10, 20, 30), CLASSES, strict=True):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for _ in range(count):
            picture(number).save(tmp_path / "photos" / name / f"{number}.png")
            number += 1
    return tmp_path / "photos"


def test_two_parts_are_the_whole_and_share_no_image(folder: Path) -> None:
    held_out, rest = (open_source(f"{folder},part={part}") for part in ("0-0.1", "0.1-1"))
    known, asked = numbers_in(rest), numbers_in(held_out)
    assert sorted(known + asked) == sorted(numbers_in(open_source(str(folder)))) == list(range(60))
    assert numbers_in(open_source(f"{folder},part=0-0.1")) == asked, "the same every time"
    assert held_out.name == f"{folder},part=0-0.1"


def test_every_class_is_divided_in_proportion(folder: Path) -> None:
    for part, counts in {"0-0.1": [1, 2, 3], "0.1-1": [9, 18, 27], "0.2-0.5": [3, 6, 9]}.items():
        source = open_source(f"{folder},part={part}")
        assert source.labels is not None
        assert torch.bincount(source.labels).tolist() == counts
        assert source.classes == CLASSES


def test_parts_are_other_images_than_the_whole_to_runs_and_caches(folder: Path) -> None:
    sources = [open_source(f"{folder}{part}") for part in ("", ",part=0-0.5", ",part=0.5-1")]
    assert len({source.fingerprint() for source in sources}) == 3
    assert len({identity(source)["list_of_images"] for source in sources}) == 3


def test_images_without_labels_scenes_and_several_sources_have_parts_too(tmp_path: Path, folder: Path) -> None:
    unlabeled = write_shards(tmp_path / "shards", 20, 20, labeled=False)
    assert [len(open_source(f"{unlabeled},part={part}")) for part in ("0-0.2", "0.2-1")] == [4, 16]
    scenes = open_source("scenes:40,size=16,part=0-0.5,seed=3")
    assert len(scenes) == 20 and np.array_equal(
        scenes.encoded(3),
        open_source("scenes:40,size=16,seed=3").encoded(int(scenes.indices[3])),  # type: ignore[attr-defined]
    )
    joined = open_source([f"{folder},part=0-0.1", "scenes:40,size=16,part=0-0.1"])
    assert len(joined) == 6 + len(open_source("scenes:40,size=16,part=0-0.1"))


def test_a_folder_may_be_called_like_a_part(tmp_path: Path) -> None:
    (tmp_path / "a,part=0-1").mkdir()
    assert split_part(str(tmp_path / "a,part=0-1")) == (str(tmp_path / "a,part=0-1"), None)
    assert split_part("photos,split=test") == ("photos,split=test", None)


@pytest.mark.parametrize("part", ["0.1", "0.5-0.2", "0-2", "a-b", ""])
def test_what_is_no_part_is_refused(part: str, folder: Path) -> None:
    with pytest.raises(UserError, match=r"must be a range between 0 and 1"):
        open_source(f"{folder},part={part}")


def test_a_stream_has_no_parts(tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "shards", 4, 4)
    with pytest.raises(UserError, match="cannot be divided"):
        open_source(f"stream:{shards},part=0-0.5")


def test_answers_are_known_without_drawing() -> None:
    indices = np.arange(600, 1300)
    drawn = draw_scenes(indices, size=32, split="test", where=0.5)
    answers = scene_answers(indices, size=32, split="test")
    assert np.array_equal(answers["count"] + 1, drawn.counts)
    assert np.array_equal(answers["distance"], nearest_bins(drawn.nearest))
    # Nothing hides the nearest object: unless the edge cuts it off, its middle is that of its mask.
    rows, columns = ((drawn.masks == 1).any(axis=axis).argmax(axis=1) for axis in (2, 1))
    last_row, last_column = ((drawn.masks == 1)[:, ::-1, ::-1].any(axis=axis).argmax(axis=1) for axis in (2, 1))
    middle = np.stack(((rows + 31 - last_row) / 2, (columns + 31 - last_column) / 2), axis=1)
    clear = (np.abs(middle - 15.5) > 3).all(axis=1)
    quarter = 2 * (middle[:, 0] > 15.5) + (middle[:, 1] > 15.5)
    assert clear.sum() > 200 and (quarter == answers["localization"])[clear].mean() > 0.97
