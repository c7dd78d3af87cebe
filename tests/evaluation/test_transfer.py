"""The probe over several data sets: which images are trained on and which are tested, under which name."""

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tiny import RECIPE, write_pictures

from flexpredict import pretrain
from flexpredict.cli import main
from flexpredict.data.sources.image_source import ArraySource
from flexpredict.data.sources.opening import open_source
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.labeled_images import open_splits
from flexpredict.evaluation.probe import transfer
from flexpredict.evaluation.probing import run_probe
from flexpredict.settings.probing import Probing

pytestmark = pytest.mark.usefixtures("few_penalties")

QUICK: dict[str, Any] = {"neighbors": 3, "l2": 0.1, "out": None, "accelerator": "cpu"}


def scenes(count: int, split: str) -> ArraySource:
    source = open_source(f"scenes:{count},size=32,split={split}")
    assert isinstance(source, ArraySource)
    return source


def png(source: ArraySource, index: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(source.images[index].numpy()).save(file, "PNG")
    return file.getvalue()


def write_folder(folder: Path, source: ArraySource) -> None:
    assert source.classes is not None and source.labels is not None
    for index, label in enumerate(source.labels.tolist()):
        (folder / source.classes[label]).mkdir(parents=True, exist_ok=True)
        (folder / source.classes[label] / f"{index:03d}.png").write_bytes(png(source, index))


def write_parquet(path: Path, source: ArraySource) -> None:
    datasets = pytest.importorskip("datasets")
    assert source.classes is not None and source.labels is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=source.classes)})
    rows = {
        "image": [{"bytes": png(source, index), "path": None} for index in range(len(source))],
        "label": source.labels.tolist(),
    }
    datasets.Dataset.from_dict(rows, features=features).to_parquet(str(path))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same scenes as a folder with train and val, and as a folder of parquet files with such splits."""
    root = tmp_path_factory.mktemp("stored")
    train, test = scenes(120, "train"), scenes(40, "test")
    write_folder(root / "birds" / "train", train)
    write_folder(root / "birds" / "val", test)
    write_parquet(root / "flowers" / "data" / "train-00000-of-00001.parquet", train)
    write_parquet(root / "flowers" / "data" / "validation-00000-of-00001.parquet", test)
    return root


def test_every_way_to_name_a_data_set_gives_the_numbers_of_the_probe(encoder: ViTEncoder, stored: Path) -> None:
    birds = stored / "birds"
    datasets = [
        str(birds),
        f"{stored / 'flowers'}",
        f"pair={birds / 'train'}::{birds / 'val'}",
        "drawn=scenes:120,size=32::scenes:40,size=32,split=test",
        f"my flowers={stored / 'flowers'}",
    ]
    results = transfer(encoder, datasets, **QUICK)
    assert [result.data for result in results] == ["birds", "flowers", "pair", "drawn", "my flowers"]
    probing = Probing(labels=(1.0,), neighbors=3, l2=0.1)
    expected = run_probe(encoder, scenes(120, "train"), scenes(40, "test"), probing=probing).numbers
    for result in results:
        assert result.task == "transfer" and result.numbers == expected, result.data
        assert (result.protocol["train"]["images"], result.protocol["test"]["images"]) == (120, 40)


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("scenes:20,size=16", "scenes:20"),
        ("worlds=scenes:20,size=16", "worlds"),
        ("worlds=scenes:20,size=16::scenes:10,size=16,split=test", "worlds"),
        ("scenes:20,size=16::scenes:10,size=16,split=test", "scenes:20"),
    ],
)
def test_scenes_have_a_training_and_a_test_split_and_a_name(dataset: str, name: str) -> None:
    found, train, test = open_splits(dataset)
    assert found == name
    assert (train.fingerprint(), len(train)) == (open_source("scenes:20,size=16").fingerprint(), 20)
    expected = open_source(f"scenes:{len(test)},size=16,split=test")
    assert test.fingerprint() == expected.fingerprint() != train.fingerprint()


def test_a_pair_without_a_name_is_called_by_the_folder_it_is_in(stored: Path) -> None:
    birds = stored / "birds"
    assert open_splits(f"{birds / 'train'}::{birds / 'val'}")[0] == "birds"


def test_data_sets_without_test_images_or_with_one_name_are_refused(
    encoder: ViTEncoder, stored: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"Two data sets are called 'birds'\. Tell them apart with NAME=DATA"):
        transfer(encoder, [str(stored / "birds"), f"birds={stored / 'flowers'}"], **QUICK)
    (tmp_path / "half" / "train").mkdir(parents=True)
    with pytest.raises(UserError, match=r"half has a folder train, but none of test, val.* NAME=TRAIN::TEST"):
        open_splits(str(tmp_path / "half"))
    with pytest.raises(UserError, match=r"There is no folder '.*nowhere'.* NAME=TRAIN::TEST"):
        open_splits(str(tmp_path / "nowhere"))
    assert not (tmp_path / "cache" / "features").exists(), "nothing is extracted before all data sets are open"


def test_the_command_prints_one_table_with_a_line_for_each_data_set(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    pretrain(str(write_pictures(tmp_path / "pictures", 8)), tmp_path / "run", **{**RECIPE, "epochs": 1})
    capsys.readouterr()
    words = ["transfer", "run", "--datasets", str(stored / "birds"), "worlds=scenes:60,size=32"]
    assert main([*words, "--accelerator", "cpu", "--l2", "0.1", "--neighbors", "3", "--table", "all.csv"]) == 0
    printed = capsys.readouterr().out
    assert "target encoder of run after step 1, l2 0.1" in printed
    lines = [line for line in printed.splitlines() if line.startswith("│")]
    assert [line.split("│")[1].strip() for line in lines] == ["birds", "worlds"]
    names = sorted(path.name for path in (tmp_path / "run" / "results").iterdir())
    assert [name.rpartition("-")[0] for name in names] == ["transfer-birds-run-l2-0.1", "transfer-worlds-run-l2-0.1"]
    header, row = (tmp_path / "all.csv").read_text().splitlines()
    assert f"transfer, birds, l2 0.1, trained on {stored / 'birds' / 'train'}: 3-NN" in header
    assert row.startswith("target encoder of run after step 1,")
