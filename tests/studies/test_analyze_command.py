"""`flexpredict analyze`: lists its figures, writes a picture and its data for each, and says what is wrong."""

from pathlib import Path

import pytest
from PIL import Image
from tiny import RECIPE, write_pictures

from flexpredict.commands.analyze import run
from flexpredict.errors import UserError
from flexpredict.pretraining import pretrain

FIGURES = ("positions", "predictions", "norms", "blur", "proposition1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    pretrain(write_pictures(folder / "pictures", 16), folder / "run", **{**RECIPE, "epochs": 1})
    return folder / "run"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_figures_are_listed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {figure} " in said for figure in FIGURES)


@pytest.mark.parametrize("figure", FIGURES)
def test_each_figure_explains_itself(figure: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run([figure, "--help"])
    assert left.value.code == 0
    assert "--out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("figure", "options", "data"),
    [
        ("positions", ["--draws", "5", "--queries", "0,0", "3,4"], "positions.npz"),
        ("predictions", ["--index", "3", "--temperature", "0.1"], "predictions.npz"),
        ("norms", [], "norms.csv"),
        ("blur", [], "blur.json"),
    ],
)
def test_a_picture_and_its_data_are_written_and_named(
    figure: str, options: list[str], data: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([figure, str(folder), *options, "--out", str(tmp_path / "new" / "figures")]) == 0
    written = tmp_path / "new" / "figures"
    assert {path.name for path in written.iterdir()} == {f"{figure}.png", data}
    Image.open(written / f"{figure}.png").verify()
    said = capsys.readouterr().out
    assert str(written / data) in said and str(written / f"{figure}.png") in said


def test_the_same_command_writes_the_same_files(folder: Path, tmp_path: Path) -> None:
    for out in ("first", "second"):
        run(["positions", str(folder), "--queries", "0,0", "--draws", "9", "--out", str(tmp_path / out)])
    for name in ("positions.png", "positions.npz"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_an_unknown_figure_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match=r"no figure 'predictons'\. Did you mean 'predictions'"):
        run(["predictons"])


def test_an_out_that_is_a_file_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="is a file"):
        run(["norms", str(folder), "--out", str(tmp_path / "taken")])
