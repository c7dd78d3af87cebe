"""Tables of images in parquet files, as the Hugging Face library writes them, and its own saved data sets."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pictures import CLASSES, number_in, numbers_in, picture, png, records_of

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources import tables as table_module
from flexpredict.data.sources.hub import HubSource
from flexpredict.data.sources.image_source import Record
from flexpredict.data.sources.opening import ImageSource, is_stream, open_images, open_source
from flexpredict.data.sources.tables import TableSource
from flexpredict.errors import UserError
from flexpredict.hub_connection import hub_is_reachable
from flexpredict.settings.augmentation import PRESETS

FEATURES = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))})


def dataset(numbers: range) -> datasets.Dataset:
    rows = {"img": [picture(number) for number in numbers], "label": [number % 3 for number in numbers]}
    return datasets.Dataset.from_dict(rows, features=FEATURES)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for file, numbers in enumerate((range(17), range(17, 23))):
        dataset(numbers).to_parquet(folder / f"train-{file:05}-of-00002.parquet", batch_size=5)
    dataset(range(100, 104)).to_parquet(folder / "test-00000-of-00001.parquet")
    return folder


def settle(folder: Path) -> None:
    """As if the files had been there for an hour."""
    for path in folder.rglob("*"):
        os.utime(path, (path.stat().st_atime - 3600, path.stat().st_mtime - 3600))


@pytest.mark.parametrize("name", ["", ",split=train", "/train-*.parquet", "/train-{00000..00001}-of-00002.parquet"])
def test_a_table_that_the_library_wrote_is_read_with_its_classes(tables: Path, name: str) -> None:
    source = open_source(str(tables) + name)
    assert isinstance(source, TableSource)
    assert numbers_in(source) == list(range(23))
    assert source.classes == CLASSES
    assert source.labels is not None and source.labels.tolist() == [number % 3 for number in range(23)]
    assert source.describe(18) == f"{tables}/train-00001-of-00002.parquet, row 1"
    assert source.sizes(2) == [(24, 24)] * 2


def test_another_split_is_asked_for_by_name(tables: Path) -> None:
    assert numbers_in(open_source(f"{tables},split=test")) == list(range(100, 104))
    with pytest.raises(UserError, match=r"no tables of a split 'tset'.*Did you mean 'test'"):
        open_source(f"{tables},split=tset")


def test_a_table_is_unpacked_once_and_again_when_it_changes(tables: Path, own_cache: Path) -> None:
    settle(tables)
    found: list[int] = []
    for _ in range(2):
        assert numbers_in(open_source(str(tables), found.append)) == list(range(23))
    (unpacked,) = (own_cache / "tables").iterdir()
    first = unpacked.stat().st_ino
    assert numbers_in(open_source(str(tables))) == list(range(23))
    assert unpacked.stat().st_ino == first
    dataset(range(40, 42)).to_parquet(tables / "train-00001-of-00002.parquet")
    assert numbers_in(open_source(str(tables))) == [*range(17), 40, 41]
    unpacked.unlink()
    assert numbers_in(open_source(str(tables))) == [*range(17), 40, 41]


def test_a_streamed_table_needs_no_copy(tables: Path, own_cache: Path) -> None:
    stream = open_images(f"stream:{tables}")
    assert is_stream(stream) and stream.length == 23 and stream.pieces == 6 and stream.classes == CLASSES
    records = list(records_of(stream))
    assert [number_in(record) for record in records] == list(range(23))
    assert [record.label for record in records] == [number % 3 for number in range(23)]
    assert not own_cache.exists()


def plain_table(path: Path, columns: dict[str, Any], group: int = 2) -> str:
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return str(path)


def test_plain_bytes_and_class_names_will_do(tmp_path: Path) -> None:
    columns = {"jpg": [png(number) for number in range(4)], "category": ["dog", "cat", None, "dog"]}
    source = open_source(plain_table(tmp_path / "t.parquet", columns))
    assert numbers_in(source) == list(range(4))
    assert source.classes == ("cat", "dog")
    assert source.labels is not None and source.labels.tolist() == [1, 0, -1, 1]


def test_paths_are_followed_from_where_the_table_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    for number in range(3):
        picture(number).save(tmp_path / f"deep/{number}.png")
    images = [{"bytes": None, "path": f"{number}.png"} for number in range(3)]
    name = plain_table(tmp_path / "deep/t.parquet", {"image": images})
    assert numbers_in(open_source(name)) == [0, 1, 2]
    stream = open_images(f"stream:{name}")
    assert is_stream(stream) and [number_in(record) for record in records_of(stream)] == [0, 1, 2]
    monkeypatch.chdir(tmp_path / "deep")
    source = open_source("t.parquet")
    monkeypatch.chdir(tmp_path)
    assert numbers_in(source) == [0, 1, 2]


def test_rows_without_an_image_are_unreadable_and_the_others_are_not(tmp_path: Path) -> None:
    images = [png(0), None, b"", b"garbage", png(4)]
    name = plain_table(tmp_path / "t.parquet", {"image": images, "label": [0, 1, 2, 0, 1]})
    source = open_source(name)
    reasons = unreadable(source)
    assert sorted(reasons) == [1, 2, 3]
    assert reasons[1] == reasons[2] == "the row holds no image" and "not an image" in reasons[3]
    stream = open_images(f"stream:{name}")
    assert is_stream(stream)
    found = [entry for piece in range(stream.pieces) for entry in stream.records(piece)]
    assert [isinstance(entry, Record) for entry in found] == [True, False, False, True, True]


def unreadable(source: ImageSource) -> dict[int, str]:
    indices = torch.arange(len(source))
    _, failures = source.read(indices, draw_crops(PRESETS["none"], indices), (8, 8))
    return {row: failure.reason for row, failure in failures.items()}


def test_a_damaged_row_group_costs_its_rows_and_no_more(tmp_path: Path) -> None:
    path = Path(plain_table(tmp_path / "t.parquet", {"image": [png(number) for number in range(6)]}))
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    damaged = bytearray(path.read_bytes())
    damaged[column.data_page_offset : column.data_page_offset + 60] = b"\xff" * 60
    path.write_bytes(damaged)
    source = open_source(str(path))
    assert numbers_in(source) == [0, 1, 4, 5]
    assert source.describe(2) == f"{path}, row 4"
    (problem,) = source.problems
    assert problem.name == f"{path}, rows 2 to 3"
    stream = open_images(f"stream:{path}")
    assert is_stream(stream)
    found = [entry for piece in range(stream.pieces) for entry in stream.records(piece)]
    assert [str(entry) for entry in found if isinstance(entry, UnreadableImage)] == [str(problem)]
    assert [number_in(entry) for entry in found if isinstance(entry, Record)] == [0, 1, 4, 5]


def test_a_file_that_is_no_table_is_left_out_and_reported(tables: Path) -> None:
    (tables / "train-00002-of-00002.parquet").write_text("not a table")
    source = open_source(str(tables))
    assert len(source) == 23
    (problem,) = source.problems
    assert problem.name.endswith("train-00002-of-00002.parquet") and "cannot be read as a table" in problem.reason


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"number": [1]}, "", "no column that could hold images.*Its columns are number.*,image=COLUMN"),
        ({"left": [b"x"], "right": [b"y"]}, "", "several columns that could hold images"),
        ({"image": [b"x"]}, ",image=imgae", "no column 'imgae'.*Did you mean 'image'"),
        ({"image": [b"x"]}, ",label=klass", "no column 'klass'.*,label=COLUMN"),
        ({"image": [b"x"]}, ",lable=klass", "'lable' in .* is not an option.*Did you mean 'label'"),
        (
            {"image": [b"x"], "size": [3]},
            ",image=size",
            "no images in its column 'size'.*columns are image, size",
        ),
        ({"image": [b"x"]}, "", "1 were tried and none could be read.*row 0: not an image"),
    ],
)
def test_what_cannot_be_opened_says_why(tmp_path: Path, columns: dict[str, Any], options: str, said: str) -> None:
    name = plain_table(tmp_path / "t.parquet", columns)
    with pytest.raises(UserError, match=said):
        open_images(name + options)


def test_the_footer_of_a_table_is_read_once_and_not_at_all_once_it_is_unpacked(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tables)
    footers: list[str] = []
    original = table_module.ParquetFile

    def parquet_file(path: str, **options: Any) -> pq.ParquetFile:
        footers.extend([] if "metadata" in options else [path])
        return original(path, **options)

    monkeypatch.setattr(table_module, "ParquetFile", parquet_file)
    open_source(str(tables))
    assert len(footers) == len(set(footers)) == 2
    open_source(str(tables))
    assert len(footers) == 2


@pytest.mark.parametrize(
    ("labels", "numbers", "classes"),
    [
        (["dog", "cat", None, "dog"], [1, 0, -1, 1], ("cat", "dog")),
        ([3, 0, -1, None], [3, 0, -1, -1], ("0", "1", "2", "3")),
        ([3, 10**9, 0, 1], [3, -1, 0, 1], ("0", "1", "2", "3")),
        ([True, False, False, None], [1, 0, 0, -1], ("0", "1")),
        ([0.5, 1.0, 2.0, None], None, None),
        ([[1], [2], [], None], None, None),
        ([None, None, None, None], None, None),
    ],
)
def test_labels_are_numbered_alike_in_tables_and_in_saved_data_sets(
    tmp_path: Path, labels: list[Any], numbers: list[int] | None, classes: tuple[str, ...] | None
) -> None:
    columns = {"image": [png(number) for number in range(4)], "label": labels}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "saved")
    for name in (plain_table(tmp_path / "t.parquet", columns), str(tmp_path / "saved")):
        source = open_source(name)
        assert numbers_in(source) == [0, 1, 2, 3]
        assert source.classes == classes
        assert (None if source.labels is None else source.labels.tolist()) == numbers


def test_a_full_disk_is_foreseen(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.raises(UserError, match=r"0.0 GB free.*FLEXPREDICT_CACHE.*stream:"):
        open_source(str(tables))


@pytest.fixture
def saved(tmp_path: Path) -> Iterator[Path]:
    dataset(range(9)).save_to_disk(tmp_path / "saved")
    yield tmp_path / "saved"


def test_a_saved_data_set_is_read_where_it_lies(saved: Path) -> None:
    source = open_source(str(saved))
    assert isinstance(source, HubSource)
    assert numbers_in(source) == list(range(9))
    assert source.classes == CLASSES and source.labels is not None
    assert source.labels.tolist() == [number % 3 for number in range(9)]


def test_a_saved_selection_keeps_its_order(tmp_path: Path) -> None:
    dataset(range(9)).select([7, 2, 5]).save_to_disk(tmp_path / "some")
    source = open_source(str(tmp_path / "some"))
    assert numbers_in(source) == [7, 2, 5]
    assert source.labels is not None and source.labels.tolist() == [1, 2, 2]


def test_splits_of_a_saved_data_set_are_named(tmp_path: Path) -> None:
    splits = {"train": dataset(range(4)), "test": dataset(range(10, 13))}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "splits")
    assert numbers_in(open_source(str(tmp_path / "splits"))) == [0, 1, 2, 3]
    assert numbers_in(open_source(f"{tmp_path / 'splits'},split=test")) == [10, 11, 12]
    with pytest.raises(UserError, match=r"no split 'tests'.*Did you mean 'test'"):
        open_source(f"{tmp_path / 'splits'},split=tests")


def test_a_row_that_holds_nothing_is_unreadable(tmp_path: Path) -> None:
    rows = {"img": [picture(0), None, picture(2)], "label": [0, 1, 2]}
    datasets.Dataset.from_dict(rows, features=FEATURES).save_to_disk(tmp_path / "holes")
    assert unreadable(open_source(str(tmp_path / "holes"))) == {1: "the row holds no image"}


def test_what_load_dataset_can_open_can_be_opened_by_name(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder stands for a name on the hub: the library opens both alike, and this one needs no network."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    source = open_source(f"hf://{tables}")
    assert isinstance(source, HubSource) and numbers_in(source) == list(range(23))
    assert source.name == f"hf://{tables}:train" and source.classes == CLASSES
    assert numbers_in(open_source(f"hf://{tables}:test")) == list(range(100, 104))
    stream = open_images(f"stream:hf://{tables}:train")
    assert is_stream(stream) and stream.pieces == 2
    assert sorted(number_in(record) for record in records_of(stream)) == list(range(23))
    assert {record.label for record in records_of(stream)} == {0, 1, 2}


def test_a_data_set_that_is_not_there_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"hf://nobody/nothing:train could not be loaded.*Check the name"):
        open_images("hf://nobody/nothing:train")


@pytest.mark.parametrize("name", ["hf://nobody/nothing", "stream:hf://nobody/nothing:train"])
def test_a_hub_that_is_out_of_reach_is_noticed_within_seconds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    hub_is_reachable.cache_clear()
    started = time.monotonic()
    with pytest.raises(UserError, match=r"hf://nobody/nothing.* the Hugging Face hub cannot be reached.* network"):
        open_images(name)
    assert time.monotonic() - started < 10
    hub_is_reachable.cache_clear()


def test_splits_are_told_by_the_names_of_folders_as_well_and_never_mixed(tmp_path: Path) -> None:
    for split, numbers in (("train", range(3)), ("test", range(10, 12)), ("val", range(20, 22))):
        (tmp_path / "d" / split).mkdir(parents=True)
        dataset(numbers).to_parquet(tmp_path / "d" / split / "0000.parquet")
    assert numbers_in(open_source(str(tmp_path / "d"))) == [0, 1, 2]
    assert numbers_in(open_source(f"{tmp_path / 'd'},split=test")) == [10, 11]
    assert numbers_in(open_source(f"{tmp_path / 'd'},split=val")) == [20, 21]


def test_a_split_of_files_that_are_named_one_by_one_is_refused(tables: Path) -> None:
    with pytest.raises(UserError, match=r"has no option 'split'.*name its files"):
        open_source(f"{tables}/*.parquet,split=test")


def test_a_table_that_was_mended_is_read_again(tables: Path) -> None:
    whole = (tables / "train-00000-of-00002.parquet").read_bytes()
    (tables / "train-00000-of-00002.parquet").write_bytes(b"broken")
    settle(tables)
    assert numbers_in(open_source(str(tables))) == list(range(17, 23))
    (tables / "train-00000-of-00002.parquet").write_bytes(whole)
    settle(tables)
    assert numbers_in(open_source(str(tables))) == list(range(23))


def test_images_in_a_zip_file_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zipfile

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    (tmp_path / "zipped").mkdir()
    with zipfile.ZipFile(tmp_path / "zipped" / "data.zip", "w") as archive:
        for number in range(4):
            archive.writestr(f"{number}.png", png(number))
    assert sorted(numbers_in(open_source(f"hf://{tmp_path / 'zipped'}"))) == [0, 1, 2, 3]
