"""Results on disk: JSON that tells how to get the numbers again, and a table that compares encoders."""

import csv
import io
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from flexpredict.errors import UserError
from flexpredict.evaluation.results import Result, Results, append_to_table, read_table, write_result
from flexpredict.showing import show


def result(encoder: str = "target encoder of runs/a", fingerprint: str = "f1", **more: Any) -> Result:
    given: dict[str, Any] = {"task": "probe", "data": "birds", "numbers": {"20-NN": 61.234}} | more
    protocol = {"fingerprint": fingerprint, "layers": 1, **given.pop("protocol", {})}
    return Result(encoder=encoder, protocol=protocol, **given)


def rows(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def test_json_tells_what_when_with_what_and_by_which_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["flexpredict", "probe", "runs/a", "--train", "two words"])
    path = tmp_path / "new" / "folder" / "result.json"
    write_result(result(details={"20-NN": {"mean": 61.234, "interval_95": None}}), path)
    written = json.loads(path.read_text())
    assert written["task"] == "probe" and written["encoder"] == "target encoder of runs/a"
    assert written["numbers"] == {"20-NN": 61.234} and written["protocol"]["fingerprint"] == "f1"
    assert written["details"]["20-NN"]["interval_95"] is None
    assert written["command"] == "flexpredict probe runs/a --train 'two words'"
    assert {"python", "flexpredict", "torch", "timm", "numpy"} <= written["versions"].keys()
    assert datetime.fromisoformat(written["date"]).tzinfo is not None


def test_another_encoder_adds_a_row_and_another_number_a_column(tmp_path: Path) -> None:
    table = tmp_path / "tables" / "all.csv"
    append_to_table(result(), table)
    append_to_table(result("timm's resnet18, pre-trained", "f2", numbers={"20-NN": 50.0}), table)
    append_to_table(result(data="flowers", numbers={"20-NN": 70.0}), table)
    append_to_table(result(protocol={"settings": "last 4 layers"}, numbers={"20-NN": 65.0}), table)
    ours, theirs = rows(table)
    assert (ours["encoder"], ours["fingerprint"]) == ("target encoder of runs/a", "f1")
    assert (ours["probe, birds: 20-NN"], theirs["probe, birds: 20-NN"]) == ("61.23", "50.00")
    assert (ours["probe, flowers: 20-NN"], theirs["probe, flowers: 20-NN"]) == ("70.00", "")
    assert ours["probe, birds, last 4 layers: 20-NN"] == "65.00"
    assert list(ours)[:3] == ["encoder", "fingerprint", "date"]


def test_the_same_number_of_the_same_encoder_is_replaced_but_not_that_of_other_weights(tmp_path: Path) -> None:
    table = tmp_path / "all.csv"
    for fingerprint, accuracy in (("f1", 10.0), ("f1", 20.0), ("f2", 30.0)):
        append_to_table(result(fingerprint=fingerprint, numbers={"20-NN": accuracy}), table)
    assert [row["probe, birds: 20-NN"] for row in rows(table)] == ["20.00", "30.00"]


def test_names_with_commas_quotes_and_line_ends_survive(tmp_path: Path) -> None:
    table = tmp_path / "all.csv"
    odd = 'runs/a "b", c\nd'
    append_to_table(result(odd, data='x,"y"'), table)
    append_to_table(result(odd, data='x,"y"', numbers={"20-NN": 1.0}), table)
    (row,) = rows(table)
    assert row["encoder"] == odd and row['probe, x,"y": 20-NN'] == "1.00"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name,age\nA,3\n", "is not a table of results .* column encoder"),
        (b"name,age\n", "is not a table of results"),
        (b"\xff\xfe\x00 not text", "cannot be read as a table"),
        (b"encoder,fingerprint,date\na,b\n", "rows of different lengths"),
        (b"encoder,fingerprint,date\na,b,c,d\n", "rows of different lengths"),
    ],
)
def test_other_peoples_files_are_refused_and_left_as_they_are(content: bytes, message: str, tmp_path: Path) -> None:
    table = tmp_path / "foreign.csv"
    table.write_bytes(content)
    with pytest.raises(UserError, match=message):
        append_to_table(result(), table)
    assert table.read_bytes() == content


def test_a_table_that_is_not_there_or_empty_has_no_rows(tmp_path: Path) -> None:
    assert read_table(tmp_path / "none.csv") == []
    (tmp_path / "empty.csv").touch()
    append_to_table(result(), tmp_path / "empty.csv")
    assert len(rows(tmp_path / "empty.csv")) == 1


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"result\.json cannot be written"):
        write_result(result(), tmp_path / "file" / "result.json")
    with pytest.raises(UserError, match="cannot be read as a table"):
        append_to_table(result(), tmp_path)


def text_of(table: Any) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_a_result_is_a_table_and_plain_values() -> None:
    one = result(details={"20-NN": {"interval_95": 0.5}}, numbers={"20-NN": 61.234, "linear": 50.0})
    shown = text_of(one.table())
    assert "61.23 ± 0.50" in shown and "50.00" in shown and "birds" in shown
    assert json.loads(json.dumps(one.to_dict())) == one.to_dict()
    assert set(one.to_dict()) == {"task", "encoder", "data", "numbers", "protocol", "details", "warnings"}


def test_several_results_are_lines_of_one_table_named_by_what_differs() -> None:
    by_task = Results([result(task="clevr count"), result(task="clevr dist")])
    assert "clevr count" in text_of(by_task.table()) and "birds" not in text_of(by_task.table())
    by_data = Results([result(), result(data="flowers")])
    assert "flowers" in text_of(by_data.table()) and len(by_data) == 2 and by_data[1].data == "flowers"
    assert [entry["data"] for entry in by_data.to_dict()["results"]] == ["birds", "flowers"]


def test_title_warnings_and_files_are_shown_around_the_table() -> None:
    one = result(protocol={"settings": "last 4 layers"}, files=[Path("a.json")], warnings=["3 images are missing."])
    console = Console(width=100, record=True, file=io.StringIO())
    show(one, console)
    first, *_, warning, written = console.export_text().splitlines()
    assert first.endswith("(%): target encoder of runs/a, last 4 layers")
    assert (warning, written) == ("Warning: 3 images are missing.", "Written: a.json")
