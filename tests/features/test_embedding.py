"""Features of many images in a file: the right ones, in every format, whatever interrupts the work."""

import io
import json
import os
import sys
import weakref
from collections.abc import Iterator
from dataclasses import asdict, replace
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
from tiny import write_pictures
from torch import Tensor

from flexpredict.cli import main
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ArraySource, Record
from flexpredict.data.sources.opening import ImageSource, open_images, open_source
from flexpredict.encoders.image_encoder import ImageEncoder, Tokens
from flexpredict.errors import UserError
from flexpredict.features import embedding, extraction
from flexpredict.features import embedding_files as files_module
from flexpredict.features import parts as parts_module
from flexpredict.features.embed import embed
from flexpredict.features.embedding import EmbedResult
from flexpredict.features.encoding import FeatureShape
from flexpredict.features.extraction import extract_features
from flexpredict.features.parts import Part, PartsFolder, images_in_part
from flexpredict.settings.extraction import Extraction
from flexpredict.showing import show

HOW = Extraction(batch_size=6)
PART = 16
PROBE = 1  # an encoder is tried on a blank image first


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "_MOST_IMAGES", PART)


def embedded(
    source: Any,
    out: Path,
    encoder: ImageEncoder | str | None = None,
    how: Extraction = HOW,
    patches: Any = None,
    **options: Any,
) -> EmbedResult:
    wanted = {"patches": patches is not None, "dtype": patches or "float16", "accelerator": "cpu"}
    return embed(encoder or MeanColor(), source, out, **asdict(how), **wanted, **options)


def folder(path: Path, count: int = 40) -> ImageSource:
    """Pictures of two classes, unequally many."""
    write_pictures(path / "pictures" / "first", count - 10, size=32)
    write_pictures(path / "pictures" / "second", 10, size=40)
    return open_source(str(path / "pictures"))


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


@pytest.mark.parametrize("name", ["f.parquet", "f.npy", "f.safetensors"])
def test_an_interrupted_embedding_goes_on_and_ends_in_the_same_bytes(name: str, tmp_path: Path) -> None:
    source, encoder = folder(tmp_path), MeanColor()
    embedded(source, tmp_path / "whole" / name, patches="float16")
    out = tmp_path / "cut" / name
    encoder.fails_after = 30 + PROBE  # in the second of three parts
    with pytest.raises(KeyboardInterrupt):
        embedded(source, out, encoder, patches="float16")
    assert not out.exists()
    parts = out.with_name(f"{name}.parts")
    (parts / ".part-000000001.safetensors.99999.tmp").write_bytes(b"half of a p")  # as a killed process leaves it
    encoder.fails_after, encoder.seen = 10**9, 0
    embedded(source, out, encoder, patches="float16")
    assert encoder.seen == 40 - PART + PROBE, "the first part is not made again"
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert {path.name: path.read_bytes() for path in out.parent.iterdir()} == whole


def test_a_process_killed_while_it_joins_has_only_to_join_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, encoder, out = folder(tmp_path), MeanColor(), tmp_path / "cut" / "f.npy"
    embedded(source, tmp_path / "whole" / "f.npy")

    def killed(path: Path, collection: Any) -> None:
        path.with_name(path.name + ".names.txt").write_text("half of the nam")
        path.with_name(f".{path.name}.99999.tmp").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setitem(files_module.FORMATS, ".npy", (killed, files_module.FORMATS[".npy"][1]))
        with pytest.raises(KeyboardInterrupt):
            embedded(source, out, encoder)
    assert not out.exists()
    encoder.seen = 0
    embedded(source, out, encoder)
    assert encoder.seen == PROBE
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert {path.name: path.read_bytes() for path in out.parent.iterdir()} == whole


def test_a_part_that_was_cut_short_on_disk_is_made_again(tmp_path: Path) -> None:
    source, encoder, out = folder(tmp_path), MeanColor(), tmp_path / "f.npy"
    encoder.fails_after = 39 + PROBE
    with pytest.raises(KeyboardInterrupt):
        embedded(source, out, encoder)
    part = tmp_path / "f.npy.parts" / "part-000000000.safetensors"
    part.write_bytes(part.read_bytes()[:-8])
    encoder.fails_after, encoder.seen = 10**9, 0
    embedded(source, out, encoder)
    assert encoder.seen == 40 - PART + PROBE
    assert np.array_equal(np.load(out), extract_features(MeanColor(), source, replace(HOW, batch_size=40)).vectors)


def test_parts_of_another_encoder_settings_or_data_are_refused_unless_overwritten(tmp_path: Path) -> None:
    source, out = folder(tmp_path), tmp_path / "f.npy"
    encoder = MeanColor()
    encoder.fails_after = 30
    with pytest.raises(KeyboardInterrupt):
        embedded(source, out, encoder)
    with pytest.raises(UserError, match=r"f.npy.parts was begun with fingerprint=.* overwrite=true"):
        embedded(source, out, MeanColor(2.0))
    with pytest.raises(UserError, match=r"begun with image_size=32x32 \(now 16x24\)"):
        embedded(source, out, how=replace(HOW, image_size=(16, 24)))
    with pytest.raises(UserError, match=r"begun with patches=none \(now float16\)"):
        embedded(source, out, patches="float16")
    (tmp_path / "pictures" / "first" / "003.png").write_bytes((tmp_path / "pictures/first/004.png").read_bytes())
    with pytest.raises(UserError, match="begun with content="):
        embedded(open_source(str(tmp_path / "pictures")), out)
    embedded(open_source(str(tmp_path / "pictures")), out, MeanColor(2.0), overwrite=True)
    features = np.load(out)
    assert np.array_equal(features[3], features[4])
    np.testing.assert_allclose(
        features[5], 2 * extract_features(MeanColor(), source, HOW).vectors[5].numpy(), rtol=1e-5
    )


def test_what_exists_is_replaced_only_when_that_is_asked_for(tmp_path: Path) -> None:
    source, out = folder(tmp_path), tmp_path / "f.npy"
    embedded(source, out, patches="float16")
    before = out.read_bytes()
    with pytest.raises(UserError, match=r"f.npy exists already. Replace it with overwrite=true"):
        embedded(source, out, MeanColor(2.0))
    out.unlink()
    with pytest.raises(UserError, match=r"f\.npy\.names\.txt exists already"):  # nobody's, as far as can be told
        embedded(source, out)
    embedded(source, out, MeanColor(2.0), overwrite=True)
    assert out.read_bytes() != before
    assert not (tmp_path / "f.npy.patches.npy").exists(), "what no longer belongs to it is gone"


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


class FakeStream:
    name, classes, length, pieces = "pipe:fake", None, None, 2

    def __init__(self, entries: list[Record | UnreadableImage]) -> None:
        self.entries = entries

    def records(self, piece: int) -> Iterator[Record | UnreadableImage]:
        yield from self.entries[:5] if piece == 0 else self.entries[5:]


@pytest.mark.parametrize("count", [37, 2 * PART])
def test_a_stream_gives_what_the_source_of_the_same_images_gives(count: int, tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "shards", count, per_shard=10)
    embedded(str(shards), tmp_path / "source.parquet")
    expected = pq.read_table(tmp_path / "source.parquet")
    for workers in (0, 2):
        stream, encoder = open_images(f"stream:{shards}"), MeanColor()
        out = tmp_path / f"stream-{workers}.parquet"
        encoder.fails_after = 20 + PROBE
        with pytest.raises(KeyboardInterrupt):
            embedded(stream, out, encoder, replace(HOW, workers=workers))
        encoder.fails_after, encoder.seen = 10**9, 0
        embedded(stream, out, encoder, replace(HOW, workers=workers))
        assert encoder.seen == count - PART + PROBE
        found = pq.read_table(out)
        for column in ("image", "index", "label"):  # only a source knows all labels, and so the names of classes
            assert found[column].to_pylist() == expected[column].to_pylist()
        np.testing.assert_allclose(found["feature"].to_pylist(), expected["feature"].to_pylist(), rtol=1e-5)


def test_a_stream_that_grew_since_it_was_interrupted_loses_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.arange(30, dtype=np.uint8)[:, None, None, None] * np.ones((32, 32, 3), np.uint8)
    records: list[Record | UnreadableImage] = [Record(str(number), image) for number, image in enumerate(images)]
    with monkeypatch.context() as patched:
        patched.setattr(embedding, "_join", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            embedded(FakeStream(records[:20]), tmp_path / "f.npy")
    embedded(FakeStream(records), tmp_path / "f.npy")
    np.testing.assert_allclose(np.load(tmp_path / "f.npy")[:, 0], np.arange(30), atol=1e-4)


def test_no_more_than_one_part_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Part] = weakref.WeakSet()
    most = 0
    make = extraction.encode_part

    def counted(*given: Any, **options: Any) -> Part:
        nonlocal most
        most = max(most, len(alive) + 1)
        part = make(*given, **options)
        alive.add(part)
        return part

    monkeypatch.setattr(extraction, "encode_part", counted)
    source = folder(tmp_path)
    embedded(source, tmp_path / "source.npy")
    embedded(FakeStream([Record(str(i), source.encoded(i)) for i in range(40)]), tmp_path / "stream.npy")
    assert most == 1 and not alive


def test_a_part_has_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "_MOST_IMAGES", 2048)
    assert images_in_part(FeatureShape(768).bytes_per_image) == 2048
    half, whole = FeatureShape(768, (14, 14), 768, "float16"), FeatureShape(1280, (32, 32), 1280, "float32")
    for shape in (half, whole, FeatureShape(9, (512, 512), 2**10)):
        number = 2 if shape.patch_type == "float16" else 4
        size = 4 * shape.dim + number * shape.patches * shape.patch_dim
        images = images_in_part(shape.bytes_per_image)
        assert images == 1 or size * images <= 2**27 < size * (images + 64)


class OwnWay(MeanColor):
    """Pools in a way of its own, like some of timm's models."""

    def _pooled(self, pixels: Tensor, count: int, pooling: Any, layers: Any = None) -> Tensor:
        return self._tokens(pixels, count)[0].patches.amax(dim=1)


class TwoGrids(MeanColor):
    """Layers of different resolution, like a convolutional network's."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = 2

    def _tokens(self, images: Tensor, count: int) -> list[Tokens]:
        last = super()._tokens(images, 1)[0]
        return [Tokens(last.patches[:, :4], None), last][-count:]


def test_an_encoder_that_pools_in_its_own_way_does_so_with_patches_too(tmp_path: Path) -> None:
    source = folder(tmp_path)
    embedded(source, tmp_path / "f.npy", OwnWay(), patches="float32")
    patches = np.load(tmp_path / "f.npy.patches.npy")
    np.testing.assert_allclose(np.load(tmp_path / "f.npy"), patches.max(axis=1), rtol=1e-6)


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
    with pytest.raises(UserError, match=r"holds thesis.txt and was not begun by"):
        embedded(source, tmp_path / "f.npy", overwrite=True)


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), OSError(30, "Read-only file system")])
def test_where_writing_fails_the_finished_parts_are_kept(
    failure: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, encoder, out = folder(tmp_path), MeanColor(), tmp_path / "f.npy"
    with monkeypatch.context() as patched:

        def fail(*given: Any) -> None:
            raise failure

        patched.setattr(np.lib.format, "write_array_header_1_0", fail)
        with pytest.raises(UserError, match=r"(No room left|Read-only).* parts are kept in .*f.npy.parts"):
            embedded(source, out, encoder)
    assert PartsFolder(tmp_path / "f.npy.parts").finished() == {0, 1, 2} and not out.exists()
    encoder.seen = 0
    embedded(source, out, encoder)
    assert encoder.seen == PROBE and len(np.load(out)) == 40


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
    assert done.stderr.count("one process reads from beginning to end, but there are 2") == 2


def test_files_of_other_formats_keep_their_own_names(tmp_path: Path) -> None:
    pixels = np.zeros((32, 32, 3), np.uint8)
    embedded(FakeStream([Record("a.png", pixels), Record("b.png", pixels)]), tmp_path / "f.npy")
    embedded(FakeStream([Record("c.png", pixels)]), tmp_path / "f.safetensors")
    assert (tmp_path / "f.npy.names.txt").read_text().split() == ["a.png", "b.png"]
    assert (tmp_path / "f.safetensors.names.txt").read_text().split() == ["c.png"]
