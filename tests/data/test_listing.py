"""Listings of files: remembered, and forgotten when they are no longer true."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from pictures import numbers_in, picture

from flexpredict.data.sources import folders
from flexpredict.data.sources.folders import FolderSource, open_folder
from flexpredict.data.sources.listing import Listing, NamesBuilder, cached_listing
from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError


@pytest.fixture(autouse=True)
def any_listing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_WORTH_KEEPING", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for number, name in enumerate(("ant/1.png", "ant/2.png", "bee/3.png")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        picture(number).save(root / name)
    settle(root)
    return root


def settle(root: Path) -> None:
    """As if nothing had changed for an hour."""
    for path in (root, *root.rglob("*")):
        os.utime(path, (path.stat().st_atime - 3600, path.stat().st_mtime - 3600), follow_symlinks=False)


def count_listed(root: Path) -> tuple[FolderSource, int]:
    found: list[int] = []
    return open_folder(root, found.append), sum(found)


def test_a_folder_is_listed_once(folder: Path, own_cache: Path) -> None:
    first, listed = count_listed(folder)
    assert listed == 3 and len(list((own_cache / "listings").iterdir())) == 1
    again, listed = count_listed(folder)
    assert listed == 0
    assert again.classes == first.classes == ("ant", "bee")
    assert again.labels is not None and again.labels.tolist() == [0, 0, 1]
    assert numbers_in(again) == [0, 1, 2]


@pytest.mark.parametrize("change", ["add", "remove", "rename", "add a folder", "add deeper"])
def test_a_change_is_noticed(folder: Path, change: str) -> None:
    count_listed(folder)
    if change == "add":
        picture(9).save(folder / "bee/9.png")
    elif change == "remove":
        (folder / "ant/1.png").unlink()
    elif change == "rename":
        (folder / "bee").rename(folder / "wasp")
    elif change == "add a folder":
        (folder / "cat").mkdir()
    else:
        (folder / "ant/deep").mkdir()
        picture(9).save(folder / "ant/deep/9.png")
    _, listed = count_listed(folder)
    assert listed > 0


def test_a_folder_that_just_changed_is_not_trusted(folder: Path, own_cache: Path) -> None:
    picture(9).save(folder / "bee/9.png")
    count_listed(folder)
    assert not (own_cache / "listings").exists()


@pytest.mark.parametrize("damage", [b"", b"rubbish", b"\xff" * 1000])
def test_a_damaged_cache_is_made_again(folder: Path, own_cache: Path, damage: bytes) -> None:
    count_listed(folder)
    (file,) = (own_cache / "listings").iterdir()
    file.write_bytes(damage)
    source, listed = count_listed(folder)
    assert listed == 3 and numbers_in(source) == [0, 1, 2]


def test_a_cache_that_cannot_be_written_is_done_without(folder: Path, own_cache: Path) -> None:
    own_cache.write_text("a file where the folder should be")
    assert count_listed(folder)[1] == 3
    assert count_listed(folder)[1] == 3


def test_names_are_kept_as_they_are() -> None:
    builder = NamesBuilder()
    names = [b"plain.png", b"", "ünïcode 🐘.png".encode(), b"\xff\xfe.png", b"line\nbreak.png"]
    for name in names:
        builder.append(name)
    built = builder.build()
    assert len(built) == 5 and [os.fsencode(built[index]) for index in range(5)] == names
    again = pickle.loads(pickle.dumps(built))
    assert [again[index] for index in range(5)] == [built[index] for index in range(5)]


def test_what_is_short_is_not_worth_keeping(own_cache: Path) -> None:
    cached_listing("kind", ["place"], lambda: Listing({"a": torch.zeros(9)}, [], {}), worth_it=10)
    assert not own_cache.exists()
    cached_listing("kind", ["place"], lambda: Listing({"a": torch.zeros(10)}, [], {}), worth_it=10)
    assert own_cache.exists()


def test_a_folder_that_may_not_be_listed_is_reported_and_the_rest_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by taking the right away: the superuser, as whom tests may run, has every right."""
    listed = os.scandir

    def refuse(path: bytes) -> Any:
        if path.endswith(b"/bee/"):
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuse)
    source, _ = count_listed(folder)
    assert len(source) == 2
    assert [str(problem) for problem in source.problems] == [f"{folder}/bee/: cannot be listed: Permission denied"]


def test_only_what_is_called_an_image_is_listed_and_nothing_makes_listing_hang(tmp_path: Path) -> None:
    root = tmp_path / "odd"
    (root / "folder.jpg").mkdir(parents=True)
    picture(1).save(root / "folder.jpg/inside.png")
    os.mkfifo(root / "pipe.jpg")
    (root / "self.jpg").symlink_to(root / "self.jpg")
    (root / "notes.txt").write_text("notes")
    source = open_source(str(root))
    names = [os.path.relpath(source.describe(index), root) for index in range(len(source))]
    assert names == ["pipe.jpg", "self.jpg", "folder.jpg/inside.png"]


def test_the_root_itself_must_be_in_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: bytes) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=r"Cannot list .*Permission denied"):
        open_folder(tmp_path, lambda found: None)


def test_a_link_to_a_folder_that_is_not_there_is_reported_and_found_once_it_is(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    picture(1).save(root / "1.png")
    (root / "disk").symlink_to(tmp_path / "mounted")
    source, _ = count_listed(root)
    assert [str(problem) for problem in source.problems] == [f"{root}/disk: a link that leads nowhere"]
    (tmp_path / "mounted").mkdir()
    picture(2).save(tmp_path / "mounted" / "2.png")
    source, listed = count_listed(root)
    assert listed == 2 and not source.problems
