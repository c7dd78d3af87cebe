"""Files on disk: whole or not there, and readable by whom the umask allows."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from flexpredict.errors import UserError
from flexpredict.files import append_line, write_atomically, write_folder_atomically, write_text_atomically


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def save_weights(path: Path) -> None:
    save_file({"x": torch.ones(2)}, path)


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_of_weights_follow_the_umask(mask: int, expected: int, tmp_path: Path) -> None:
    with umask(mask):
        write_atomically(tmp_path / "encoder.safetensors", save_weights)
        write_folder_atomically(tmp_path / "step-1", lambda folder: save_weights(folder / "model.safetensors"))
        write_text_atomically(tmp_path / "config.yaml", "a: 1")
    files = [tmp_path / name for name in ("encoder.safetensors", "step-1/model.safetensors", "config.yaml")]
    assert [mode(file) for file in files] == [expected] * 3
    assert [path.name for path in (tmp_path / "step-1").iterdir()] == ["model.safetensors"]


def test_nothing_is_left_of_a_file_or_folder_that_could_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("before")

    def fail(temporary: Path) -> None:
        (temporary / "file" if temporary.is_dir() else temporary).write_text("half")
        raise RuntimeError

    for write in (write_atomically, write_folder_atomically):
        with pytest.raises(RuntimeError):
            write(tmp_path / "x", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["x"] and (tmp_path / "x").read_text() == "before"


def test_a_place_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    inside = tmp_path / "file" / "x"
    for write in (
        lambda: write_text_atomically(inside, ""),
        lambda: write_atomically(inside, Path.touch),
        lambda: append_line(inside, {}),
    ):
        with pytest.raises(UserError, match=r"file/x cannot be written: (Not a directory|File exists)\."):
            write()


def test_folders_for_a_text_are_made(tmp_path: Path) -> None:
    write_text_atomically(tmp_path / "a" / "b.txt", "text")
    assert (tmp_path / "a" / "b.txt").read_text() == "text"
