"""Features of many images in a file: the right ones, the same in every format, or refused before any work."""

import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from mean_color import MeanColor
from pictures import write_shards
from ranks import call_on_two_ranks
from rich.console import Console
from safetensors import safe_open
from small_embedding import HOW, PART, FakeStream, embedded, folder
from torch import Tensor

from flexpredict.cli import main
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ArraySource, Record
from flexpredict.data.sources.opening import open_source
from flexpredict.encoders.image_encoder import Tokens
from flexpredict.errors import UserError
from flexpredict.features import parts as parts_module
from flexpredict.features.extraction import extract_features
from flexpredict.showing import show

pytestmark = pytest.mark.usefixtures("small_parts")


def test_a_table_holds_the_features_of_extract_features(tmp_path: Path) -> None:
    source = folder(tmp_path)
    done = embedded(source, tmp_path / "f.parquet")
    table = pq.read_table(tmp_path / "f.parquet")
    expected = extract_features(MeanColor(), source, HOW)
    np.testing.assert_allclose(table["feature"].to_pylist(), expected.vectors.numpy(), atol=1e-4)
    assert table["index"].to_pylist() == list(range(40))
    assert table["image"].to_pylist() == [source.describe(index) for index in range(40)]
    assert source.labels is not None and table["label"].to_pylist() == source.labels.tolist()
    assert table["class"].to_pylist() == ["first"] * 30 + ["second"] * 10
    facts = json.loads(table.schema.metadata[b"flexpredict"])
    assert facts["fingerprint"] == MeanColor().fingerprint() and facts["images"] == 40
    assert (done.images, done.skipped, done.files) == (40, 0, [tmp_path / "f.parquet"])
    assert {path.name for path in tmp_path.iterdir()} == {"pictures", "f.parquet"}, "no parts and no temporary files"


def test_the_three_formats_hold_the_same(tmp_path: Path) -> None:
    source = folder(tmp_path)
    for name in ("a.parquet", "b.npy", "c.safetensors"):
        embedded(source, tmp_path / name, patches="float32")
    table = pq.read_table(tmp_path / "a.parquet")
    found: dict[str, list[np.ndarray]] = {
        "features": [np.array(table["feature"].to_pylist(), np.float32)],
        "patches": [np.array(table["patches"].to_pylist(), np.float32)],
        "indices": [table["index"].to_numpy()],
        "labels": [table["label"].to_numpy()],
    }
    with safe_open(tmp_path / "c.safetensors", "np") as file:
        assert set(file.keys()) == set(found)
        assert json.loads(file.metadata()["flexpredict"])["grid"] == [4, 4]
        for name, arrays in found.items():
            beside = tmp_path / ("b.npy" if name == "features" else f"b.npy.{name}.npy")
            arrays += [np.load(beside, mmap_mode="r"), file.get_tensor(name)]
    for name, (first, *others) in found.items():
        assert all(np.array_equal(first, other) and first.dtype == other.dtype for other in others), name
    assert found["patches"][0].shape == (40, 16, 3)
    np.testing.assert_allclose(found["patches"][0].mean(axis=1), found["features"][0], rtol=1e-5)
    for names in ("b.npy.names.txt", "c.safetensors.names.txt"):
        assert (tmp_path / names).read_text().splitlines() == table["image"].to_pylist()
    facts = json.loads((tmp_path / "b.npy.json").read_text())
    assert facts["classes"] == ["first", "second"] and facts["patches"] == "float32"


def test_half_precision_patches_are_the_rounded_ones(tmp_path: Path) -> None:
    source = folder(tmp_path)
    for dtype in ("float16", "float32"):
        embedded(source, tmp_path / f"{dtype}.npy", patches=dtype)
    exact = np.load(tmp_path / "float32.npy.patches.npy")
    assert np.array_equal(np.load(tmp_path / "float16.npy.patches.npy"), exact.astype(np.float16))
    embedded(source, tmp_path / "half.parquet", patches="float16")
    column = pq.read_table(tmp_path / "half.parquet")["patches"]
    assert np.array_equal(np.array(column.to_pylist(), np.float16), exact.astype(np.float16))
    with pytest.raises(UserError, match=r"first/000.png that float16 cannot hold. Use dtype=float32"):
        embedded(source, tmp_path / "large.npy", MeanColor(1e6), patches="float16")


def test_without_labels_there_is_no_column_for_them(tmp_path: Path) -> None:
    pixels = torch.zeros(3, 32, 32, 3, dtype=torch.uint8)
    embedded(ArraySource("plain", pixels), tmp_path / "f.parquet")
    assert pq.read_schema(tmp_path / "f.parquet").names == ["image", "index", "feature"]
    some = ArraySource("some", pixels, ("cat", "dog"), torch.tensor([1, -1, 0]))
    embedded(some, tmp_path / "some.parquet")
    table = pq.read_table(tmp_path / "some.parquet")
    assert table["label"].to_pylist() == [1, None, 0] and table["class"].to_pylist() == ["dog", None, "cat"]


def test_names_of_any_kind_stay_one_line_each(tmp_path: Path) -> None:
    names = ["plain.png", "two\nlines.png", '"quoted".png', os.fsdecode(b"not utf8 \xff.png"), "ünïcode.png"]
    pixels = np.zeros((32, 32, 3), np.uint8)
    stream = FakeStream([Record(name, pixels) for name in names])
    embedded(stream, tmp_path / "f.npy")
    lines = (tmp_path / "f.npy.names.txt").read_text().splitlines()
    assert [json.loads(line) if line.startswith('"') else line for line in lines] == names
    assert lines[0] == "plain.png" and lines[4] == "ünïcode.png"
    embedded(stream, tmp_path / "f.parquet")
    assert pq.read_table(tmp_path / "f.parquet")["image"].to_pylist()[:3] == names[:3]


def test_files_of_other_formats_keep_their_own_names(tmp_path: Path) -> None:
    pixels = np.zeros((32, 32, 3), np.uint8)
    embedded(FakeStream([Record("a.png", pixels), Record("b.png", pixels)]), tmp_path / "f.npy")
    embedded(FakeStream([Record("c.png", pixels)]), tmp_path / "f.safetensors")
    assert (tmp_path / "f.npy.names.txt").read_text().split() == ["a.png", "b.png"]
    assert (tmp_path / "f.safetensors.names.txt").read_text().split() == ["c.png"]


def test_unreadable_images_are_left_out_counted_and_listed(tmp_path: Path) -> None:
    source = folder(tmp_path)
    whole = extract_features(MeanColor(), source, HOW).vectors.numpy()
    broken = [3, *range(PART, 2 * PART)]  # of one part nothing can be read
    for index in broken:
        Path(source.describe(index)).write_bytes(b"nothing")
    source = open_source(str(tmp_path / "pictures"))
    source.problems.append(UnreadableImage("a folder", "not to be listed"))
    shown = io.StringIO()
    for name in ("f.parquet", "f.npy", "f.safetensors"):
        done = embedded(source, tmp_path / name.replace("f", name[-3:], 1))
        show(done, Console(file=shown, soft_wrap=True))
        assert (done.images, done.skipped, len(done.examples)) == (23, 18, 5)
    kept = [index for index in range(40) if index not in broken]
    table = pq.read_table(tmp_path / "uet.parquet")
    assert table["index"].to_pylist() == np.load(tmp_path / "npy.npy.indices.npy").tolist() == kept
    np.testing.assert_allclose(np.load(tmp_path / "npy.npy"), whole[kept], rtol=1e-5)
    assert json.loads(table.schema.metadata[b"flexpredict"])["skipped"] == 18
    listed = (tmp_path / "uet.parquet.skipped.txt").read_text().splitlines()
    assert listed[0] == "a folder: not to be listed" and len(listed) == 18
    assert all(f"{source.describe(index)}: " in line for index, line in zip(broken, listed[1:], strict=True))
    assert "18 images could not be read" in shown.getvalue() and "003.png" in shown.getvalue()


def test_where_nothing_can_be_read_nothing_is_written(tmp_path: Path) -> None:
    stream = FakeStream([Record("a", b"no image"), UnreadableImage("b", "cut off")])
    with pytest.raises(UserError, match=r"no images to embed in pipe:fake: none of 2 could be read, for example a: "):
        embedded(stream, tmp_path / "f.npy")
    assert not (tmp_path / "f.npy").exists()


class OwnWay(MeanColor):
    """Pools in a way of its own, like some of timm's models."""

    def _pooled(self, pixels: Tensor, count: int, pooling: Any, layers: Any = None) -> Tensor:
        return self._tokens(pixels, count)[0].patches.amax(dim=1)


def test_an_encoder_that_pools_in_its_own_way_does_so_with_patches_too(tmp_path: Path) -> None:
    source = folder(tmp_path)
    embedded(source, tmp_path / "f.npy", OwnWay(), patches="float32")
    patches = np.load(tmp_path / "f.npy.patches.npy")
    np.testing.assert_allclose(np.load(tmp_path / "f.npy"), patches.max(axis=1), rtol=1e-6)


def test_the_command_writes_the_file_that_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "f.safetensors"
    words = ["--data", "scenes:20,size=16", "--out", str(out), "--image_size", "32", "--patches", "--accelerator=cpu"]
    assert main(["embed", "timm:test_vit,pretrained=no", *words]) == 0
    assert "Embedded 20 images, 64 features each, and 2x2 patches of 64 (float16)." in capsys.readouterr().out
    with safe_open(out, "pt") as file:
        assert file.get_slice("patches").get_shape() == [20, 4, 64]
        facts = json.loads(file.metadata()["flexpredict"])
    assert facts["data"] == "scenes:20,size=16" and facts["image_size"] == "32x32"


def embed_each(*words: str) -> None:
    """Pairs of data and files, on the ranks that were started."""
    parts_module._MOST_IMAGES = PART
    for data, out in zip(words[::2], words[1::2], strict=True):
        try:
            how = replace(HOW, image_size=(32, 32))
            show(embedded(data, Path(out), "timm:test_vit,pretrained=no", how, "float16", devices=2))
        except UserError as error:
            print(error, file=sys.stderr)


@pytest.mark.slow
def test_two_ranks_write_the_bytes_of_one_and_refuse_a_stream(tmp_path: Path) -> None:
    shards = str(write_shards(tmp_path / "shards", 40, per_shard=10))
    how = replace(HOW, image_size=(32, 32))
    embedded(shards, tmp_path / "one.parquet", "timm:test_vit,pretrained=no", how, "float16")
    words = [shards, str(tmp_path / "two.parquet"), f"stream:{shards}", str(tmp_path / "stream.parquet")]
    done = call_on_two_ranks(embed_each, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Written:") == 1, "only the first rank speaks"
    assert (tmp_path / "two.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()
    assert done.stderr.count("only one process can read, but there are 2") == 2


class TwoGrids(MeanColor):
    """Layers of different resolution, like a convolutional network's."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = 2

    def _tokens(self, images: Tensor, count: int) -> list[Tokens]:
        last = super()._tokens(images, 1)[0]
        return [Tokens(last.patches[:, :4], None), last][-count:]


def test_what_an_encoder_cannot_give_is_refused_before_any_work(tmp_path: Path) -> None:
    source = folder(tmp_path)
    for encoder, how, said in (
        (TwoGrids(), replace(HOW, layers=2), "different numbers of patches"),
        (MeanColor(), replace(HOW, layers=2), "which has 1"),
        (MeanColor(), replace(HOW, image_size=(33, 32)), "cannot be cut"),
        (MeanColor(), replace(HOW, pooling="class"), "needs a class token"),
    ):
        with pytest.raises(UserError, match=said):
            embedded(source, tmp_path / "f.npy", encoder, how, patches="float32")
    with pytest.raises(UserError, match=r"NaN or infinity for 6 of 6 images, the first is .*000.png"):
        embedded(source, tmp_path / "f.npy", MeanColor(float("nan")))
    assert not list(tmp_path.glob("f.npy*/part-*"))


def test_bad_outputs_are_refused_with_what_to_do(tmp_path: Path) -> None:
    source = folder(tmp_path)
    with pytest.raises(UserError, match=r"Did you mean '.parquet'\? Use .parquet, .npy, .safetensors"):
        embedded(source, tmp_path / "f.parqet")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        embedded(source, tmp_path / "folder.npy", overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        embedded(source, tmp_path / "file" / "f.npy")
    (tmp_path / "f.npy.parts").mkdir()
    (tmp_path / "f.npy.parts" / "thesis.txt").touch()
    with pytest.raises(UserError, match=r"holds thesis.txt and was not made by"):
        embedded(source, tmp_path / "f.npy", overwrite=True)
