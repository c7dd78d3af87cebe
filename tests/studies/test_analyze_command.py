"""`flexpredict analyze`: explains its figures, writes a picture and its data for each, and says what is wrong."""

from pathlib import Path

import pytest
from PIL import Image

from flexpredict import UserError, analyze
from flexpredict.cli import main

FIGURES = ("positions", "predictions", "norms", "blur", "proposition1")


def test_the_figures_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert all(f"flexpredict analyze {figure}" in said and said.count(figure) > 1 for figure in FIGURES)


@pytest.mark.parametrize(
    ("figure", "options", "data"),
    [
        ("positions", ["--draws", "5", "--queries", "1,1", "4,5"], "positions.npz"),
        ("predictions", ["--index", "3", "--temperature", "0.1"], "predictions.npz"),
        ("norms", [], "norms.csv"),
        ("blur", [], "blur.json"),
    ],
)
def test_a_picture_and_its_data_are_written_and_named(
    figure: str, options: list[str], data: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", figure, str(finished), *options, "--out", str(tmp_path / "new" / "figures")]) == 0
    written = tmp_path / "new" / "figures"
    assert {path.name for path in written.iterdir()} == {f"{figure}.png", data}
    Image.open(written / f"{figure}.png").verify()
    said = capsys.readouterr().out
    assert str(written / data) in said and str(written / f"{figure}.png") in said


def test_the_same_call_writes_the_same_files(finished: Path, tmp_path: Path) -> None:
    for out in ("first", "second"):
        result = analyze("positions", finished, queries=["1,1"], draws=9, out=tmp_path / out)
        assert result.to_dict()["table"] and result.table().row_count == len(result.to_dict()["table"])
    for name in ("positions.png", "positions.npz"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predictons", "x"], "Did you mean 'predictions'?"),
        (["norms", "x", "--draws", "3"], "--draws is not used by the figure norms, only by positions."),
        (["norms"], "The figure norms needs at least one run: name it as --run."),
        (["positions", "a", "b"], "shows one run, but --run names 2"),
        (["norms", "RUN", "--out", "taken"], "--out taken is a file"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_command_line(
    words: list[str],
    said: str,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("")
    assert main(["analyze", *(str(finished) if word == "RUN" else word for word in words)]) == 2
    assert said in capsys.readouterr().err


def test_python_is_told_of_settings(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`draws` is not used by the figure norms"):
        analyze("norms", tmp_path, draws=3)
