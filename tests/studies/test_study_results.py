"""Results of studies: honest intervals, and chapters that keep what a person wrote."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flexpredict.studies.ablations.chapters import as_markdown, write_chapter
from flexpredict.studies.ablations.claims import CLAIMS, claims_table
from flexpredict.studies.ablations.study import Arm, Study
from flexpredict.studies.ablations.summary import Estimate, summarize, table_rows, tables
from flexpredict.studies.figures import draw

ENVIRONMENT = {"device": "cpu, 1 threads", "cores": 2, "threads": 1, "versions": {"torch": "2.9"}}


def test_differences_are_paired_by_seed() -> None:
    study = Study("x", "?", (Arm("a", {}, 50.0), Arm("b", {}, 53.0)))
    # Seeds differ much more than arms do: only pairing shows that b is better by exactly one.
    found = {"a": [{"n": 10.0}, {"n": 30.0}, {"n": 50.0}], "b": [{"n": 11.0}, {"n": 31.0}, {"n": 51.0}]}
    rows = summarize(study, found)
    assert rows[0].differences == {}
    assert rows[1].differences["n"].mean == pytest.approx(1.0) and rows[1].differences["n"].half == pytest.approx(0.0)
    assert rows[1].numbers["n"].half == pytest.approx(4.303 * 20 / 3**0.5, rel=1e-3)
    assert rows[1].paper_difference == pytest.approx(3.0)
    text = as_markdown(tables(study, rows)["Accuracy (%)"])
    assert "| b | 31.0 ± 49.7 | **+1.0 ± 0.0** | 53.0 | +3.0 |" in text
    assert Estimate.of([4.0]).in_words() == "4.0", "one value has no interval"


def test_arms_are_compared_with_the_arm_they_name() -> None:
    arms = (
        Arm("a0", {}, against="a0"),
        Arm("a1", {}, against="a0"),
        Arm("b0", {}, against="b0"),
        Arm("b1", {}, against="b0"),
    )
    study = Study("x", "?", arms)
    found = {name: [{"n": value}] for name, value in (("a0", 1.0), ("a1", 3.0), ("b0", 10.0), ("b1", 15.0))}
    rows = summarize(study, found)
    assert [row.differences["n"].mean if row.differences else None for row in rows] == [None, 2.0, None, 5.0]
    assert [row["against"] for row in table_rows(study, rows)] == ["", "a0", "", "b0"]


def test_only_intervals_that_exclude_zero_have_a_sign() -> None:
    assert Estimate.of([1.0, 1.1, 0.9]).sign == 1 and Estimate.of([-1.0, -1.1, -0.9]).sign == -1
    assert Estimate.of([1.0, -1.0, 0.5]).sign == 0 and Estimate.of([5.0]).sign == 0


def test_a_number_that_an_arm_lacks_is_left_out_of_the_table() -> None:
    study = Study("x", "?", (Arm("a", {}), Arm("b", {})))
    rows = summarize(study, {"a": [{"n": 1.0, "lost, 1/2 patch": 2.0}], "b": [{"n": 1.0}]})
    assert [list(row.numbers) for row in rows] == [["n"], ["n"]]


@pytest.mark.parametrize("form", ["points", "curves", "norms", "surface"])
def test_every_form_of_figure_is_drawn(form: str, tmp_path: Path) -> None:
    levels = [(series, level) for series in ("where=0", "where=1") for level in (0.0, 0.5, 1.0)]
    arms = tuple(Arm(f"{s} {v}", {}, None, v, s, against=f"{s} 0.0") for s, v in levels)
    study = Study("x", "What comes out?", arms, form)  # type: ignore[arg-type]
    numbers = np.random.default_rng(0).normal(size=(len(arms), 3))
    found = {arm.name: [{"20-NN": value, "place R²": value} for value in numbers[n]] for n, arm in enumerate(arms)}
    draw(study, summarize(study, found), 3, tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as figure:
        assert min(figure.size) > 300 and len(set(figure.convert("L").resize((200, 100)).get_flattened_data())) > 20


def test_a_chapter_has_question_command_table_and_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["flexpredict", "ablate", "table6", "--data", "my photos"])
    (tmp_path / "table6").mkdir()
    write_chapter(tmp_path / "table6", "Which positions?", "| a |\n", ENVIRONMENT, notes="Three seeds.")
    text = (tmp_path / "table6" / "README.md").read_text()
    assert text.startswith("# Which positions?\n") and "flexpredict ablate table6 --data 'my photos'" in text
    assert "| a |" in text and "Three seeds. Made on" in text and "2 cores, 1 thread a run" in text
    assert text.endswith("## Finding\n\nTo be written.\n")
    assert not (tmp_path / "README.md").exists(), "what is no index is left alone"


def test_what_a_person_found_is_kept_and_listed(tmp_path: Path) -> None:
    index = tmp_path / "README.md"
    index.write_text("# Studies\n\nBefore.\n<!-- chapters -->\nold\n<!-- end of chapters -->\nAfter.\n")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_chapter(tmp_path / name, f"Question {name}?", "| 1 |\n", ENVIRONMENT)
    chapter = tmp_path / "a" / "README.md"
    finding = "StoP is **ahead**\nby two [points](../b/README.md).\n\nAnd more.\n"
    chapter.write_text(chapter.read_text().replace("To be written.\n", finding))
    write_chapter(tmp_path / "a", "Question a?", "| 2 |\n", ENVIRONMENT)
    text = chapter.read_text()
    assert "| 2 |" in text and "| 1 |" not in text and text.endswith(f"## Finding\n\n{finding}")
    assert index.read_text() == (
        "# Studies\n\nBefore.\n<!-- chapters -->\n| chapter | question | finding |\n| --- | --- | --- |\n"
        "| [a](a/README.md) | Question a? | StoP is **ahead** by two points. |\n"
        "| [b](b/README.md) | Question b? | To be written. |\n<!-- end of chapters -->\nAfter.\n"
    )


def write_results(folder: Path, study: str, arms: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True)
    usual = {"level": None, "series": ""}
    results = {"study": study, "arms": [{**usual, **arm} for arm in arms]}
    (folder / "results.json").write_text(json.dumps(results))


def arm(name: str, *values: float, measure: str = "linear, 1 % labels", **fields: Any) -> dict[str, Any]:
    numbers = {measure: list(values), "linear, 100 % labels": [0.0] * len(values)}
    return {"name": name, "numbers": numbers, **fields}


def claimed(chapters: Path) -> dict[str, str]:
    """What stands behind each claim in the table."""
    lines = [line.strip("| ").split(" | ") for line in claims_table(chapters, chapters / "README.md").splitlines()]
    return {cells[0]: " | ".join(cells[1:]) for cells in lines[2:]}


def test_claims_are_judged_by_the_interval_of_their_paired_difference(tmp_path: Path) -> None:
    # Seeds differ by tens of points, and StoP is ahead of sin-cos by 2 to 3 in each; learned positions are anywhere.
    arms = [arm("sin-cos", 10, 30, 50), arm("learned", 12, 20, 70), arm("StoP", 12, 33, 52.5)]
    write_results(tmp_path / "table6-small", "table6", arms)
    arms = [arm("none", 1, 2, 3), arm("context only", 1, 2, 3), arm("both", 2, 3, 4), arm("masked only", 1, 2, 3)]
    write_results(tmp_path / "table7-small", "table7", arms)
    write_results(tmp_path / "mae-small", "mae", [arm("MAE, sin-cos", 5, 6, 7), arm("MAE, StoP", 5.1, 6.0, 7.1)])
    write_results(tmp_path / "mae-long", "mae", [arm("MAE, sin-cos", 5, 6, 7), arm("MAE, StoP", 6.6, 7.5, 8.6)])
    said = claimed(tmp_path)
    first = said["Stochastic positions are better than sin-cos (+3.5)"]
    assert first == "linear, 1 % labels |  | **confirmed** [+2.5 ± 1.2](table6-small/README.md)", "none is long"
    assert "| undecided " in said["… and better than learned positions (+3.4)"]
    assert "**refuted** [-1.0 ± 0.0]" in said["… and better than on both (+1.0)"]
    assert "They make features depend less on position" not in said, "nobody measured it"
    assert "\n3 of the 7 intervals exclude zero; about 0 would by chance" in claims_table(
        tmp_path, tmp_path / "README.md"
    )
    twice = said["On MAE stochastic positions are no gain"]
    assert "| **refuted** [+1.6 ± 0.1](mae-long/README.md) | **confirmed** [+0.1 ± 0.1](mae-small/README.md)" in twice


def test_claims_over_levels_and_freedoms_are_means_and_differences_of_differences(tmp_path: Path) -> None:
    fig3 = [arm("no noise", 0, 0, 0, level=0.0)]
    fig3 += [arm(f"l{n}", n, n, n, level=n, series="learned covariance") for n in (1.0, 3.0)]
    fig3 += [arm(f"f{n}", 1, 1, 1, level=n, series="fixed covariance") for n in (1.0, 3.0)]
    write_results(tmp_path / "fig3-scenes", "fig3", fig3)
    where = [
        arm(f"{u} {level}", *(seed + level * (u + 1) for seed in (10, 20, 30)), level=level, series=f"where={u}")
        for u in (0, 0.5, 1)
        for level in (0.0, 1.0, 2.0)
    ]
    write_results(tmp_path / "where-scenes", "where", where)
    norms = [arm(f"noise {n}", 5 - n, 4 - n, 6 - n, measure="‖A‖", level=n) for n in (0.5, 2.0)]
    write_results(tmp_path / "fig4-scenes", "fig4", [arm("no noise", 5, 4, 6, measure="‖A‖", level=0.0), *norms])
    said = claimed(tmp_path)
    texts = {claim.study: claim.text for claim in reversed(CLAIMS)}
    confirmed = "linear, 1 % labels | **confirmed**"
    assert said[texts["fig3"]].startswith(f"{confirmed} [+1.0 ± 0.0]")
    assert said[texts["where"]].startswith(f"{confirmed} [+3.0 ± 0.0]")
    assert said["… and help more there than where it is fixed"].startswith(f"{confirmed} [+1.5 ± 0.0]")
    assert said[texts["fig4"]].startswith("‖A‖ | **confirmed** [-2.00 ± 0.00]")


def test_a_small_gain_beyond_chance_refutes_that_there_is_none() -> None:
    no_gain = next(claim for claim in CLAIMS if claim.sign == 0)
    gains = {"refuted": (0.55, 0.6, 0.5), "confirmed": (-0.1, 0.2, 0.1), "undecided": (-1.0, 2.0, 0.5)}
    for verdict, values in gains.items():
        assert no_gain.verdict(Estimate.of(values)) == verdict
    assert no_gain.verdict(Estimate.of([-2.0, -2.1, -1.9])) == "confirmed"


def test_claims_of_accuracy_are_about_the_fewest_labels_in_whatever_order_they_were_named(tmp_path: Path) -> None:
    shares = {"linear, 100 % labels": 0.0, "linear, 5 % labels": 2.0}
    arms = []
    for name, better in (("sin-cos", 0), ("StoP", 1)):
        one = arm(name, 1, 1, 1)
        arms.append({**one, "numbers": {share: [gain * better] * 3 for share, gain in shares.items()}})
    write_results(tmp_path / "table6-a", "table6", [arm("sin-cos", 1, 1, 1), arm("StoP", 2, 2, 2)])
    write_results(tmp_path / "table6-b", "table6", arms)
    first = claimed(tmp_path)["Stochastic positions are better than sin-cos (+3.5)"]
    assert first.startswith("linear, 1 % labels | **confirmed** [+1.0 ± 0.0](table6-a/README.md) | ")
    assert first.endswith("**confirmed** [+2.0 ± 0.0](table6-b/README.md) (linear, 5 % labels)")


def test_one_seed_decides_nothing(tmp_path: Path) -> None:
    write_results(tmp_path / "table6", "table6", [arm("sin-cos", 10.0), arm("StoP", 90.0)])
    table = claims_table(tmp_path, tmp_path / "README.md")
    assert "| undecided [+80.0](" in table and "0 of the 0 intervals" in table
