"""The page of a run: what it says, and what it withstands."""

import base64
import hashlib
import json
import math
import os
import re
from pathlib import Path

import pytest
from parsed_page import Page
from written_runs import full_lines, make_run

from flexpredict.errors import UserError
from flexpredict.reports.rendering import breakable
from flexpredict.reports.sections import SECTIONS
from flexpredict.reports.writing import write_comparison, write_report
from flexpredict.runs.result_files import results_of
from flexpredict.runs.run_record import read_run


def page_of(*runs: Path) -> str:
    return write_report(runs, None if len(runs) == 1 else runs[0].parent / "page.html").read_text(encoding="utf-8")


def figures(page: Page) -> int:
    return page.tags.count("figure")


def test_the_page_is_balanced_and_draws_every_metric(tmp_path: Path) -> None:
    page = Page(page_of(make_run(tmp_path, full_lines(150))))
    for section in SECTIONS:
        assert section.title in page.text
        assert all(metric.title in page.text for metric in section.metrics)
    assert (
        figures(page) == sum(len(section.metrics) for section in SECTIONS) == len(page.blocks["curve-data"]["charts"])
    )
    assert "vit_small_patch16_224 on /photos, stochastic positions" in page.text
    assert "0.9, 0.95" in page.text


def test_the_location_share_is_shown_with_how_to_read_it(tmp_path: Path) -> None:
    lines = [{"step": step, "loss": 1.0, "location_share": 0.5 - step / 100} for step in range(1, 31)]
    page = Page(page_of(make_run(tmp_path, lines)))
    assert "Does it learn only positions?" in page.text and "climbs past 60%" in page.text
    assert "20.0%" in page.text and "49.0% at the start" in page.text


def test_the_license_of_the_charting_library_goes_along(tmp_path: Path) -> None:
    assert "Copyright (c) 2022 Leon Sorokin" in page_of(make_run(tmp_path))


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    text = page_of(make_run(tmp_path, full_lines(150)))
    assert not re.search(r"@import|url\(", text)
    loads = {value for name, value in Page(text).attributes if name in {"src", "href", "srcset", "data", "action"}}
    assert {address for address in loads if not address.startswith("#")} == {"data:,"}
    assert any("default-src 'none'" in value for name, value in Page(text).attributes if name == "content")


def test_the_security_policy_admits_the_scripts_of_the_page_and_no_other(tmp_path: Path) -> None:
    text = page_of(make_run(tmp_path))
    scripts = re.findall(r"<script(?: type=.module.)?>(.*?)</script>", text, flags=re.DOTALL)
    assert len(scripts) == 2
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    policy = " ".join(f"&#39;sha256-{digest}&#39;" for digest in digests)
    assert f"script-src {policy};" in text


def test_hostile_text_cannot_become_markup(tmp_path: Path) -> None:
    hostile = "\"><script>alert(1)</script><img src=x onerror=alert(1)>' &amp;"
    run = make_run(
        tmp_path / "run <b>&",
        [{"step": 1, "loss": 1.0, hostile: 2.0}],
        {"model": hostile, "data": [hostile], "positions": {"kind": hostile}, hostile: {hostile: hostile}},
    )
    (run / "environment.json").write_text(json.dumps({hostile: hostile}))
    (run / "warnings.jsonl").write_text(json.dumps({"step": 1, "text": hostile}))
    (run / "skipped.jsonl").write_text(json.dumps({"path": hostile, "reason": hostile}))
    (run / "results.json").write_text(json.dumps([{hostile: hostile}]))
    text = page_of(run)
    page = Page(text)
    assert page.tags.count("script") == 3, "the library, ours, and a block of data"
    assert "img" not in page.tags
    assert not {name for name, _ in page.attributes if name.startswith("on")}
    assert page.text.count(hostile) >= 10


def test_file_names_that_are_not_text_are_shown_and_cannot_reorder_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "skipped.jsonl").write_text(json.dumps({"path": "a\udcff\u202egnp.exe\x00\n", "reason": "é ok"}) + "\n")
    text = page_of(run)
    assert "a\\udcff\\u202egnp.exe\\x00\\n" in text
    assert "é ok" in text


def test_a_torn_last_line_is_passed_over_in_silence_and_a_torn_inner_line_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path, [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    assert "could not be read" not in page_of(run)
    assert read_run(run).series["loss"].points() == [(1, 3.0), (2, 2.0)]
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "loss": 1.0}\n{"step": 5, "loss": 1.5}\n')
    assert "1 line of metrics.jsonl could not be read" in page_of(run)
    assert read_run(run).series["loss"].last == 1.5


def test_a_run_without_metrics_gives_a_page_that_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with_empty_file = page_of(run)
    (run / "metrics.jsonl").unlink()
    for page in (Page(with_empty_file), Page(page_of(run))):
        assert "Nothing has been logged yet" in page.text
        assert figures(page) == 0
        assert "Recipe" in page.text


@pytest.mark.parametrize("value", [0.5, 0, -3, 1e-300, 1e99, math.nan, math.inf, 10**400, None])
def test_a_single_line_gives_a_page_whatever_its_value(tmp_path: Path, value: float | None) -> None:
    page = Page(page_of(make_run(tmp_path, [{"step": 7, "loss": value, "data_wait": value}])))
    assert figures(page) == 2
    (shown,) = page.blocks["curve-data"]["charts"]["loss"]["series"][0]["raw"][1]
    assert shown == (value if value is not None and -1e100 < value < 1e100 else None)


def test_lines_of_any_shape_are_withstood(tmp_path: Path) -> None:
    lines = [{"loss": 1.0}, {"step": "x", "loss": "low"}, {"step": 3, "flag": True, "nested": {"a": 1}}, {}]
    run = make_run(tmp_path, lines, {"batch_size": "many"})
    (run / "metrics.jsonl").open("a").write('[1, 2]\nnull\n\n"text"\n')
    record = read_run(run)
    assert list(record.series) == ["loss"]
    assert record.unreadable == ["3 lines of metrics.jsonl could not be read."]
    Page(page_of(run))


def test_a_loss_that_ends_not_finite_is_not_reported_as_finite(tmp_path: Path) -> None:
    page = Page(page_of(make_run(tmp_path, [{"step": 1, "loss": 0.5}, {"step": 2, "loss": math.nan}])))
    assert "Lossnot finite" in page.text.replace("\n", "")


def test_unknown_keys_are_drawn_apart_and_skipped_images_only_if_any(tmp_path: Path) -> None:
    page = Page(page_of(make_run(tmp_path, [{"step": 1, "loss": 1.0, "my_gate": 0.5, "skipped": 0}])))
    assert page.text.index("Other") < page.text.index("my_gate")
    assert "Images skipped" not in page.text
    page = Page(page_of(make_run(tmp_path, [{"step": 1, "skipped": 2}])))
    assert "Images skipped" in page.text and "Other" not in page.text


def test_images_seen_and_time_follow_from_steps_batch_and_speed(tmp_path: Path) -> None:
    lines = [{"step": 50 * i, "images_per_second": 32.0} for i in range(1, 5)]
    repeated = [*lines, {"step": 150, "images_per_second": 16.0}, {"step": 200, "images_per_second": 8.0}]
    record = read_run(make_run(tmp_path, repeated))
    assert record.images == 200 * 64
    assert record.seconds == pytest.approx(200 * 64 / 32)
    text = Page(page_of(tmp_path)).text
    assert "12.8k" in text and "6 min 40 s" in text


def test_repeated_warnings_are_told_once_with_their_steps(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    warnings = [{"step": step, "text": "Too hot."} for step in (10, 20, 30)] + [{"step": 25, "text": "Too cold."}]
    (run / "warnings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in warnings))
    text = Page(page_of(run)).text
    assert text.count("Too hot.") == 1
    assert "3 times, step 10 to 30" in text and "Too cold. step 25" in text


def test_long_lists_are_cut_and_counted(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "skipped.jsonl").write_text(
        "".join(json.dumps({"path": f"p{i}", "reason": "r"}) + "\n" for i in range(250))
    )
    (run / "warnings.jsonl").write_text("".join(json.dumps({"text": f"w{i}"}) + "\n" for i in range(80)))
    text = Page(page_of(run)).text
    assert "250 could not be read and were left out" in text and "and 150 more" in text and "p99" in text
    assert "p100" not in text
    assert "and 30 more in warnings.jsonl" in text


def test_results_are_a_table_whether_rows_or_nested(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "results.json").write_text(json.dumps([{"task": "linear", "value": 0.71236}, {"task": "k-NN", "k": 20}]))
    assert "linear0.7124" in Page(page_of(run)).text and "k-NN, k20" in Page(page_of(run)).text
    (run / "results.json").write_text(json.dumps({"clevr": {"count": 0.861, "distance": 0.4}}))
    assert "clevr.distance0.4000" in Page(page_of(run)).text


def test_what_evaluations_wrote_into_run_folders_stands_side_by_side(tmp_path: Path) -> None:
    for name, accuracy in (("a", 61.239), ("b", 58.0)):
        run = make_run(tmp_path / name)
        for task, folder in (("probe", run), ("davis", run / "davis")):
            folder.mkdir(exist_ok=True)
            numbers = {"all labels": accuracy, "accuracy lost": accuracy / 4}
            result = {"task": task, "data": "birds", "numbers": numbers, "protocol": {"overlap": "2"}}
            (folder / "result.json").write_text(json.dumps(result))
        (run / "davis" / "settings.json").write_text(json.dumps({"numbers": [1, 2]}))
        (run / "davis" / "elsewhere.json").symlink_to(tmp_path / "secret.json")
    secret = {"task": "secret", "numbers": {"secret": 1}, "protocol": {}}
    (tmp_path / "secret.json").write_text(json.dumps(secret))
    for task in ("probe", "davis"):
        name = f"{task}, birds, TESTED ON TRAINING IMAGES: all labels"
        assert [read_run(tmp_path / run).results[name] for run in "ab"] == [61.24, 58.0]
    text = page_of(tmp_path / "a", tmp_path / "b")
    assert "<td><b>61.24</b></td><td>58.00</td>" in text and "secret" not in text
    assert "<td>15.31</td><td>14.50</td>" in text, "the best is not the one that lost most"


def test_of_very_many_results_the_newest_are_read(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for number in range(250):
        file = run / "results" / f"{250 - number}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"task": f"task {number}", "numbers": {"n": number}, "protocol": {}}))
        os.utime(file, (number, number))
    assert set(results_of(run).values()) == set(range(50, 250))


def test_of_results_of_the_same_the_newest_counts_and_others_stand_apart(tmp_path: Path) -> None:
    run = make_run(tmp_path)

    def write(name: str, value: float, day: int, encoder: str = "target encoder of a", train: str = "birds") -> None:
        protocol = {"fingerprint": name, "train": {"data": train}}
        result = {"task": "probe", "encoder": encoder, "data": "birds", "numbers": {"20-NN": value}}
        (run / f"{name}.json").write_text(json.dumps({**result, "protocol": protocol, "date": f"2026-01-0{day}"}))

    write("a", 50.0, day=2)
    write("b", 40.0, day=1)
    write("c", 30.0, day=3, encoder="context encoder of a")
    write("d", 20.0, day=3, train="cats")
    assert read_run(run).results == {
        "probe, birds: 20-NN": 50.0,
        "probe, birds, context encoder: 20-NN": 30.0,
        "probe, birds, trained on cats: 20-NN": 20.0,
    }


def test_a_broken_optional_file_is_told_on_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "environment.json").write_text("{")
    assert "environment.json could not be read" in page_of(run)


def test_the_page_does_not_grow_with_the_run(tmp_path: Path) -> None:
    def size(name: str, count: int) -> int:
        lines = ({"step": i * 1000 / count, "loss": math.sin(i), "lr": math.cos(i)} for i in range(count))
        return len(page_of(make_run(tmp_path / name, lines)))

    assert size("long", 19_000) < 1.1 * size("short", 1_190)


def test_writing_leaves_nothing_else_behind_and_replaces_an_old_page(tmp_path: Path) -> None:
    run = make_run(tmp_path, [{"step": 1, "loss": 1.0}])
    write_report([run])
    before = {path.name for path in run.iterdir()}
    assert write_report([run]) == run / "report.html"
    assert {path.name for path in run.iterdir()} == before
    assert (run / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_several_runs_stand_side_by_side_and_what_differs_is_marked(tmp_path: Path) -> None:
    runs = [
        make_run(
            tmp_path / name / "run",
            [{"step": 1, "loss": loss}],
            {"model": "vit", "seed": seed, "masking": {"cell": 1}},
        )
        for name, loss, seed in (("a", 0.5, 0), ("b", 0.25, 1))
    ]
    for run, score in zip(runs, (0.5, 0.75), strict=True):
        (run / "results.json").write_text(json.dumps({"linear": score}))
    text = page_of(*runs)
    page = Page(text)
    assert "a/run" in page.text and "b/run" in page.text, "names that tell them apart"
    assert [run["label"] for run in page.blocks["curve-data"]["runs"]] == ["a/run", "b/run"]
    assert text.count('<tr class="differs">') == 1 and re.search(r'class="differs"><th scope="row">seed</th>', text)
    assert "<td><b>0.7500</b></td>" in text and "<td>0.5000</td>" in text, "the better result is marked"


def test_runs_of_one_seed_are_compared(tmp_path: Path) -> None:
    for arm in ("a", "b"):
        for seed in (0, 1):
            make_run(tmp_path / arm / f"seed-{seed}", [{"step": 1, "loss": 1.0}], {"model": "vit", "seed": seed})
    page = Page(write_comparison(tmp_path, 1).read_text())
    assert [run["label"] for run in page.blocks["curve-data"]["runs"]] == ["a/seed-1", "b/seed-1"]


def test_a_file_that_is_no_page_is_not_overwritten(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (tmp_path / "thesis.html").write_text("years of work")
    with pytest.raises(UserError, match=r"thesis\.html exists"):
        write_report([run], tmp_path / "thesis.html")
    assert write_report([run], tmp_path / "new" / "page.html").is_file()


def test_long_names_of_settings_are_broken_between_words_only(tmp_path: Path) -> None:
    text = page_of(make_run(tmp_path, config={"encoder_positions": "sincos"}))
    assert "encoder_<wbr>positions" in text


def test_numbers_are_not_broken_at_their_points() -> None:
    assert breakable("0.425 with optimizer.lr") == "0.425 with optimizer.<wbr>lr"


def test_the_options_of_a_command_are_not_broken_at_their_hyphens(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "environment.json").write_text(json.dumps({"command": "flexpredict pretrain x --config laptop"}))
    assert 'pretrain x <span class="word">--config</span> laptop' in page_of(run)


def test_the_first_thing_on_the_page_is_what_the_run_answers_in_short(tmp_path: Path) -> None:
    lines = [{"step": i, "loss": 1 / i, "target_rank": 20.0 + i, "location_share": 0.2} for i in range(1, 9)]
    collapsed = [{**line, "target_rank": 40.0 / line["step"] ** 2} for line in lines]
    text = page_of(make_run(tmp_path / "good", lines), make_run(tmp_path / "bad", collapsed))
    short = re.search(r'<nav class="questions".*?</nav>', text, flags=re.DOTALL)
    assert short is not None and text.index("<h1>") < short.start() < text.index("<section")
    told = re.sub(r"<i class=\"swatch\" style=\"background:var\(--run-(\d)\)\"></i>", r"#\1", short[0])
    told = " ".join(re.sub(r"<[^>]*>", " ", told).split())
    assert "Is it collapsing? #0 No #1 Probably" in told, "each answer with the colors of its runs"
    assert "Does it learn only positions? #0#1 No" in told, "runs with one answer together"


def test_bad_folders_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no encoder .*missing"):
        write_report([tmp_path / "missing"])
    with pytest.raises(UserError, match="neither a run folder nor"):
        write_report([tmp_path])
    for text in ("a: [", "- just\n- a list\n", ""):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(UserError, match=r"config\.yaml"):
            write_report([tmp_path])
    (tmp_path / "config.yaml").write_text("model: vit\n")
    (tmp_path / "report.html").mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        write_report([tmp_path])
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "report.html"}
