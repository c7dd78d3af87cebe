"""The probe from images to accuracies, against scikit-learn; what it may look at, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from flexpredict.cli import main
from flexpredict.data.sources.image_source import ArraySource
from flexpredict.data.sources.opening import open_source
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.probing import run_probe
from flexpredict.evaluation.results import Result, Results, mean_and_interval
from flexpredict.features.extraction import extract_features
from flexpredict.randomness import normal, permutation
from flexpredict.settings.probing import Probing
from flexpredict.showing import numbers_table, show

pytestmark = pytest.mark.usefixtures("few_penalties")

ALL_LABELS = Probing(labels=(1.0,), neighbors=5)


def scenes(count: int = 200, split: str = "train") -> ArraySource:
    source = open_source(f"scenes:{count},size=32,split={split}")
    assert isinstance(source, ArraySource)
    return source


def fits(result: Result, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.details[name]["subsets"]
    return found


@pytest.mark.parametrize("l2", [1e-1, 1e-3])
def test_accuracies_are_those_of_scikit_learn_on_the_same_features(encoder: ViTEncoder, l2: float) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.preprocessing import StandardScaler

    train, test = scenes(), scenes(150, "test")
    result = run_probe(encoder, train, test, probing=replace(ALL_LABELS, l2=l2))
    x, z = (extract_features(encoder, source).vectors.double().numpy() for source in (train, test))
    y, truth = train.labels, test.labels
    scaler = StandardScaler().fit(x)
    reference = LogisticRegression(C=1 / (l2 * 200), tol=1e-9, max_iter=10_000).fit(scaler.transform(x), y)
    predicted = reference.predict(scaler.transform(z))
    expected = 100 * float(np.mean(predicted == truth.numpy()))
    assert result.numbers["linear, 100 % labels"] == pytest.approx(expected, abs=1e-6)

    def weight(distances: Any) -> Any:
        return np.exp((1 - distances) / 0.07)

    neighbors = KNeighborsClassifier(5, metric="cosine", weights=weight).fit(x, y)
    assert result.numbers["5-NN"] == pytest.approx(100 * neighbors.score(z, truth), abs=1e-6)
    assert len(set(predicted)) > 5, "a constant answer would agree with anything"


def test_test_images_decide_nothing_but_the_accuracy(encoder: ViTEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    from flexpredict.evaluation import probing as module

    predictions = []

    def recorded(*given: Any, **options: Any) -> Any:
        fitted = linear_probe(*given, **options)
        predictions.append(fitted.predictions)
        return fitted

    linear_probe = module.linear_probe
    monkeypatch.setattr(module, "linear_probe", recorded)
    test = scenes(100, "test")
    first = run_probe(encoder, scenes(), test, probing=Probing(labels=(0.5,), subsets=2, neighbors=0))
    assert test.labels is not None
    test.labels = test.labels[permutation(3, 100)]
    second = run_probe(encoder, scenes(), test, probing=Probing(labels=(0.5,), subsets=2, neighbors=0))
    name = "linear, 50 % labels"
    for before, after in zip(fits(first, name), fits(second, name), strict=True):
        assert (before["l2"], before["candidates"]) == (after["l2"], after["candidates"])
    assert torch.equal(torch.stack(predictions[:2]), torch.stack(predictions[2:]))
    assert first.numbers != second.numbers


def test_subsets_are_drawn_anew_and_their_mean_and_interval_are_students(encoder: ViTEncoder) -> None:
    from scipy import stats

    probing = Probing(labels=(0.1, 1.0), subsets=4, neighbors=0, seed=7)
    result = run_probe(encoder, scenes(), scenes(150, "test"), probing=probing)
    assert list(result.numbers) == ["linear, 10 % labels", "linear, 100 % labels"]
    drawn = fits(result, "linear, 10 % labels")
    accuracies = np.array([100 * fit["accuracy"] for fit in drawn])
    assert [fit["n_train"] for fit in drawn] == [20] * 4 and len(set(accuracies)) > 1
    assert result.numbers["linear, 10 % labels"] == pytest.approx(accuracies.mean())
    low, high = stats.t.interval(0.95, df=3, loc=accuracies.mean(), scale=stats.sem(accuracies))
    assert result.details["linear, 10 % labels"]["interval_95"] == pytest.approx((high - low) / 2, rel=1e-3)
    assert result.details["linear, 100 % labels"]["interval_95"] is None
    assert result.protocol["seeds_of_subsets"] == [7, 8, 9, 10]


@pytest.mark.parametrize("count", [1, 2, 5, 31, 32, 80])
def test_intervals_are_those_of_scipy(count: int) -> None:
    from scipy import stats

    values = normal(torch.tensor(count), count).double().tolist()
    mean, half = mean_and_interval(values)
    assert mean == pytest.approx(np.mean(values))
    if count == 1:
        assert half is None
    else:
        assert half == pytest.approx(stats.sem(values) * stats.t.ppf(0.975, count - 1), rel=2e-3)


def test_usual_shares_that_would_leave_a_class_out_are_not_tried(encoder: ViTEncoder) -> None:
    result = run_probe(encoder, scenes(), scenes(50, "test"), probing=Probing(subsets=1))
    assert list(result.numbers) == ["linear, 10 % labels", "linear, 100 % labels", "20-NN"]


def test_classes_are_matched_by_name_not_by_number(encoder: ViTEncoder) -> None:
    test = scenes(100, "test")
    expected = run_probe(encoder, scenes(), test, probing=ALL_LABELS).numbers
    assert test.classes is not None and test.labels is not None
    test.classes, test.labels = test.classes[::-1], len(test.classes) - 1 - test.labels
    assert run_probe(encoder, scenes(), test, probing=ALL_LABELS).numbers == expected


def in_folders(folder: Path, source: ArraySource) -> Path:
    """The scenes as files, in a folder for each class."""
    from PIL import Image

    assert source.classes is not None and source.labels is not None
    for number, (pixels, label) in enumerate(zip(source.images, source.labels.tolist(), strict=True)):
        (folder / source.classes[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.numpy()).save(folder / source.classes[label] / f"{number:03d}.png")
    return folder


def test_a_list_of_images_is_a_subset_and_must_have_all_classes(encoder: ViTEncoder, tmp_path: Path) -> None:
    train, test = scenes(120), scenes(50, "test")
    files = open_source(str(in_folders(tmp_path / "train", train)))
    names = sorted(str(path.relative_to(tmp_path / "train")) for path in (tmp_path / "train").rglob("*.png"))
    few = tmp_path / "few.txt"
    few.write_text("\n".join(names[::2]))
    result = run_probe(encoder, files, test, probing=Probing(labels=(), label_list=(few,), neighbors=0, l2=0.1))
    assert list(result.numbers) == ["linear, few.txt"]
    assert fits(result, "linear, few.txt")[0]["n_train"] == 60
    # The same images as a source of their own.
    chosen = torch.tensor([int(Path(name).stem) for name in names[::2]]).sort().values
    assert train.labels is not None
    alone = ArraySource("few", train.images[chosen], train.classes, train.labels[chosen])
    expected = run_probe(encoder, alone, test, probing=Probing(labels=(1.0,), neighbors=0, l2=0.1))
    assert result.numbers["linear, few.txt"] == pytest.approx(expected.numbers["linear, 100 % labels"])
    assert train.classes is not None
    lacking = sorted(train.classes)[0]
    few.write_text("\n".join(name for name in names if not name.startswith(lacking)))
    with pytest.raises(UserError, match=f"few.txt names no image of 1 of the 10 classes .* of {lacking}"):
        run_probe(encoder, files, test, probing=Probing(labels=(), label_list=(few,)))
    few.write_text("nothing.png\n")
    with pytest.raises(UserError, match=r"1 of 1 images named in .*few.txt are not in"):
        run_probe(encoder, files, test, probing=Probing(labels=(), label_list=(few,)))


def with_classes(source: ArraySource, classes: tuple[str, ...] | None, labels: Any) -> ArraySource:
    return ArraySource(source.name, source.images, classes, labels)


@pytest.mark.parametrize(
    ("probing", "message"),
    [
        ({"labels": (0.01,)}, r"1 % of the 200 labels of .* are 2, fewer than its 10 classes.*labels=0.05"),
        ({"labels": (1.5,)}, r"labels=\[1.5\] is out of range: it must be more than 0 and at most 1"),
        ({"subsets": 0}, "subsets=0 is out of range"),
        ({"neighbors": 201}, r"neighbors=201, but there are 200 training images .* neighbors=0"),
        ({"neighbors": -1}, "neighbors=-1 is out of range"),
        ({"l2": 0.0}, "l2=0.0 is out of range: it must be more than 0"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_features_are_made(
    probing: dict[str, Any], message: str, encoder: ViTEncoder, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        run_probe(encoder, scenes(), scenes(50, "test"), probing=Probing(**probing))
    assert not (tmp_path / "cache").exists()


def test_images_without_labels_or_of_other_classes_are_refused(encoder: ViTEncoder) -> None:
    train, test = scenes(), scenes(50, "test")
    assert test.classes is not None and test.labels is not None
    with pytest.raises(UserError, match=r"test images of .* have no labels"):
        run_probe(encoder, train, with_classes(test, None, None))
    with pytest.raises(UserError, match=r"training images of .* have no labels"):
        run_probe(encoder, with_classes(train, None, None), test)
    other = (f"{test.classes[0]}s", *test.classes[1:])
    with pytest.raises(UserError, match=f"1 of the 10 classes .*{other[0]}.* Did you mean '{test.classes[0]}'"):
        run_probe(encoder, train, with_classes(test, other, test.labels))
    with pytest.raises(UserError, match="only one class"):
        run_probe(encoder, with_classes(train, ("thing",), torch.zeros(200, dtype=torch.int64)), test)


def test_images_without_a_label_are_left_out(encoder: ViTEncoder) -> None:
    train = scenes()
    assert train.labels is not None
    half = torch.arange(0, 200, 2)
    alone = ArraySource("half", train.images[half], train.classes, train.labels[half])
    expected = run_probe(encoder, alone, scenes(50, "test"), probing=ALL_LABELS)
    train.labels = torch.where(torch.arange(200) % 2 == 0, train.labels, -1)
    found = run_probe(encoder, train, scenes(50, "test"), probing=ALL_LABELS)
    assert found.numbers == expected.numbers and found.protocol["train"]["images"] == 100


# The command


def test_the_command_prints_a_table_and_writes_the_whole_protocol(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    data = ["--train", "scenes:300,size=32", "--test", "scenes:100,size=32,split=test", "--accelerator", "cpu"]
    words = ["probe", str(finished), *data, "--subsets", "2", "--table", "all.csv", "--out", "results"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert f"Accuracy on the test images, frozen encoder (%): target encoder of {finished} after step 18" in printed
    for name in ("linear, 10 % labels", "linear, 100 % labels", "20-NN", "scenes:100,size=32,split=test"):
        assert name in printed
    assert "…" not in printed
    (file,) = (tmp_path / "results").iterdir()
    written = json.loads(file.read_text())
    protocol = written["protocol"]
    assert written["encoder"] == f"target encoder of {finished} after step 18"
    assert protocol["encoder"] == str(finished)
    assert protocol["image_size"] == "32x32" and protocol["pooling"] == "mean" and protocol["layers"] == 1
    assert (protocol["train"]["images"], protocol["test"]["images"], protocol["classes"]) == (300, 100, 10)
    assert (protocol["seed"], len(protocol["fingerprint"])) == (0, 32)
    assert f"{written['numbers']['20-NN']:.2f}" in printed
    assert (tmp_path / "all.csv").read_text().count("\n") == 2

    words += ["--labels", "1", "--l2", "0.1"]
    assert main([*words, "--which", "context"]) == 0
    assert main([*words, "--layers", "2", "--out", "two.json"]) == 0
    rows = (tmp_path / "all.csv").read_text().splitlines()
    assert len(rows) == 3, "the context encoder has a row of its own, another setting has not"
    assert "probe, scenes:100,size=32,split=test, last 2 layers, l2 0.1, 2 subsets, trained on " in rows[0]
    assert json.loads((tmp_path / "two.json").read_text())["protocol"]["layers"] == 2
    printed = capsys.readouterr().out
    assert "context encoder of" in printed and "after step 18, last 2 layers" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--image_size", "33"], "Images of 33x33 cannot be cut into the 4x4 patches"),
        (["--image_size", "32,64"], "--image_size 32,64 names several sizes"),
        (["--layers", "9"], "--layers 9 is out of range"),
        (["--pooling", "class"], "needs a class token"),
        (["--devices", "two"], "--devices two"),
        (["--table", "foreign.csv"], "foreign.csv is not a table of results"),
        (["--out", "foreign.csv"], "--out foreign.csv is a file"),
        (["--batch_size", "0"], "--batch_size 0 is out of range"),
    ],
)
def test_bad_options_end_the_command_with_a_paragraph(
    options: list[str],
    message: str,
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "foreign.csv").write_text("name,age\nA,3\n")
    data = ["--train", "scenes:40,size=32", "--test", "scenes:20,size=32,split=test", "--accelerator", "cpu"]
    assert main(["probe", str(finished), *data, *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("command", ["probe", "transfer"])
def test_help_names_every_kind_of_encoder(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME" in said


def test_tables_stay_whole_at_eighty_columns() -> None:
    encoder = f"target encoder of runs/{'long_' * 12}name after step 600,000"
    results = [
        Result(task, encoder, "scenes:3000,size=64 (test)", {"linear, 100 % labels": 50.0 + number}, {})
        for number, task in enumerate(("clevr count", "clevr dist"))
    ]
    console = Console(width=80, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    show(Results(results), console)
    console.print(numbers_table({"a/very/long/folder/" * 8 + "val": {"linear, 1 % labels": "1.0", "20-NN": "2.0"}}))
    text = console.export_text()
    assert "clevr count" in text and "50.00" in text and "clevr dist" in text and "51.00" in text
    assert "…" not in text and "20-NN" in text
