"""Checkpoint files that would run code, fill the memory or are broken are refused, and nothing of them happens."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flexpredict
from flexpredict.encoders.checkpoints.safe_files import read_tensors
from flexpredict.errors import UserError
from flexpredict.model.timm_parts import timm


class Call:
    """Unpickled, it calls a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> Any:
        return self.function, self.arguments


def state() -> dict[str, torch.Tensor]:
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=64, depth=1, num_heads=1)
    return dict(model.state_dict())


def as_zip(path: Path, content: Any) -> None:
    torch.save(content, path)


def as_legacy(path: Path, content: Any) -> None:
    torch.save(content, path, _use_new_zipfile_serialization=False)


def as_plain_pickle(path: Path, content: Any) -> None:
    path.write_bytes(pickle.dumps(content))


@pytest.mark.parametrize("write", [as_zip, as_legacy, as_plain_pickle])
def test_a_checkpoint_that_carries_code_is_refused_and_nothing_runs(write: Any, tmp_path: Path) -> None:
    trace = tmp_path / "it_ran"
    call = Call(Path.touch, trace) if write is as_zip else Call(exec, f"open({str(trace)!r}, 'w')")
    write(tmp_path / "evil.pth", {"model": state(), "extra": call})
    with pytest.raises(UserError, match=r"could run code|read safely"):
        flexpredict.load(tmp_path / "evil.pth")
    assert not trace.exists()


def test_the_message_names_what_a_checkpoint_wanted(tmp_path: Path) -> None:
    torch.save({"model": state(), "extra": Call(os.system, f"touch {tmp_path}/it_ran")}, tmp_path / "evil.pth")
    with pytest.raises(UserError, match=r"posix\.system.*Nothing of it was run"):
        flexpredict.load(tmp_path / "evil.pth")
    assert not (tmp_path / "it_ran").exists()


def test_a_zip_bomb_is_refused_before_it_unpacks(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
        archive.writestr("archive/data/0", bytes(50_000_000))
    assert (tmp_path / "bomb.pth").stat().st_size < 100_000
    with pytest.raises(UserError, match="zip bomb"):
        flexpredict.load(tmp_path / "bomb.pth")


def test_a_few_bytes_that_claim_to_be_terabytes_are_refused(tmp_path: Path) -> None:
    torch.save({"patch_embed.proj.weight": torch.ones(1).expand(2**20, 2**20)}, tmp_path / "wide.pth")
    with pytest.raises(UserError, match=r"patch_embed.proj.weight claims the shape \(1048576, 1048576\)"):
        flexpredict.load(tmp_path / "wide.pth")
    torch.save({"x": torch.ones(1).expand(2**40)}, tmp_path / "long.pth")
    with pytest.raises(UserError, match="absurd shape"):
        flexpredict.load(tmp_path / "long.pth")


def test_a_storage_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(1000)}, tmp_path / "honest.pth")
    with zipfile.ZipFile(tmp_path / "honest.pth") as honest, zipfile.ZipFile(tmp_path / "liar.pth", "w") as liar:
        for entry in honest.infolist():
            content = honest.read(entry)
            if entry.filename.endswith("data.pkl"):
                count = struct.pack("<H", 1000)
                assert content.count(b"M" + count) == 2  # of the storage, and of the tensor
                content = content.replace(b"M" + count, b"\x8a\x06" + (2**41).to_bytes(6, "little"))
            liar.writestr(entry, content)
    with pytest.raises(UserError):
        flexpredict.load(tmp_path / "liar.pth")


def test_a_safetensors_header_that_lies_is_refused(tmp_path: Path) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    with pytest.raises(UserError, match="not a whole safetensors file"):
        flexpredict.load(tmp_path / "x.safetensors")


def test_an_index_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    index = tmp_path / "x" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
    with pytest.raises(UserError, match="not a file beside it"):
        read_tensors(index)


def test_sparse_tensors_and_the_like_are_refused(tmp_path: Path) -> None:
    torch.save({"x": torch.eye(4).to_sparse()}, tmp_path / "x.pth")
    with pytest.raises(UserError, match="not a plain array"):
        flexpredict.load(tmp_path / "x.pth")


@pytest.mark.parametrize("write", [as_zip, as_legacy])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_checkpoint_is_said_to_be_one(write: Any, share: float, tmp_path: Path) -> None:
    write(tmp_path / "whole.pth", {"model": state()})
    content = (tmp_path / "whole.pth").read_bytes()
    (tmp_path / "cut.pth").write_bytes(content[: int(share * len(content))])
    with pytest.raises(UserError, match=r"cut\.pth"):
        flexpredict.load(tmp_path / "cut.pth")


@pytest.mark.parametrize(
    "content", [b"", b"hello, this is not a checkpoint", b"\x89PNG\r\n\x1a\n" + bytes(100), bytes(1000)]
)
def test_files_of_other_kinds_are_refused_with_their_first_bytes(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pth").write_bytes(content)
    with pytest.raises(UserError, match=r"x\.pth"):
        flexpredict.load(tmp_path / "x.pth")


def test_flipped_bytes_never_crash(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"model": {"patch_embed.proj.weight": torch.ones(4, 3, 2, 2)}}, buffer)
    content = buffer.getvalue()
    for place in range(0, len(content), 7):
        broken = bytearray(content)
        broken[place] ^= 0xFF
        (tmp_path / "x.pth").write_bytes(bytes(broken))
        with pytest.raises(UserError):
            flexpredict.load(tmp_path / "x.pth")


def test_compressed_archives_are_read_right(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "plain.pth")
    with (
        zipfile.ZipFile(tmp_path / "plain.pth") as plain,
        zipfile.ZipFile(tmp_path / "packed.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for entry in plain.infolist():
            packed.writestr(entry.filename, plain.read(entry))
    first, second = read_tensors(tmp_path / "plain.pth"), read_tensors(tmp_path / "packed.pth")
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("write", [as_zip, as_legacy])
def test_memory_of_any_size_is_refused(write: Any, tmp_path: Path) -> None:
    write(tmp_path / "x.pth", {"model": state(), "fill": Call(bytearray, 10**9)})
    with pytest.raises(UserError, match="bytearray"):
        flexpredict.load(tmp_path / "x.pth")


def test_dictionaries_in_each_other_end(tmp_path: Path) -> None:
    nested: dict[str, Any] = {"x": torch.ones(1)}
    for _ in range(12):
        nested = {str(number): nested for number in range(10)}
    torch.save(nested, tmp_path / "x.pth")
    with pytest.raises(UserError, match="in each other"):
        flexpredict.load(tmp_path / "x.pth")


def test_paths_and_arrays_beside_weights_do_no_harm(tmp_path: Path) -> None:
    torch.save({"model": state(), "args": {"out": tmp_path, "curve": np.arange(3.0)}}, tmp_path / "x.pth")
    assert flexpredict.load(tmp_path / "x.pth").depth == 1
