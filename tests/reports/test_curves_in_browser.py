"""The page in a browser: curves, tables, themes, and names that want to be code."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import OpenPage
from served_site import served
from written_runs import CONFIG, full_lines, make_run

from flexpredict.reports.writing import write_report

HOSTILE = "<img src=x onerror=document.title='run'>"


def curve(page: Any, key: str = "loss") -> dict[str, Any]:
    """What the chart of a metric shows: its data, and the range of its axes."""
    found: dict[str, Any] = page.evaluate(
        """key => {
            const { data, scales } = window.flexpredict.curves().find(curve => curve.key === key);
            const [x, y] = [scales.x, scales.y].map(scale => [scale.min, scale.max]);
            return { data, x, y, log: scales.y.distr === 3 };
        }""",
        key,
    )
    return found


def plot(page: Any, key: str = "loss") -> Any:
    return page.locator(f'.chart[data-metric="{key}"] .u-over')


def drag(page: Any, chart: Any, start: float, end: float) -> None:
    """Over a part of a chart's width."""
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + start * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 60, steps=4)
    page.mouse.up()


def page_of(folder: Path, lines: list[dict[str, Any]], config: Any = CONFIG) -> Path:
    return write_report([make_run(folder, lines, config)])


def falling(count: int = 101) -> list[dict[str, Any]]:
    return [{"step": 10 * i, "loss": 1 / (1 + i), "images_per_second": 64.0, "lr": 0.5} for i in range(count)]


def test_curves_show_what_was_logged_along_steps_images_and_minutes(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(page_of(tmp_path / "run", falling()))
    page.locator("#smoothing").fill("0")
    steps, losses = curve(page)["data"][:2]
    assert steps == [10 * i for i in range(101)]
    assert losses == pytest.approx([1 / (1 + i) for i in range(101)], rel=1e-6)
    page.select_option("#along", "images")
    assert curve(page)["data"][0][-1] == 1000 * 64
    page.select_option("#along", "minutes")
    assert curve(page)["data"][0][-1] == pytest.approx(1000 / 60, rel=0.02), "a step a second"


def test_scales_are_linear_or_logarithmic_and_lines_smooth_or_not(tmp_path: Path, open_page: OpenPage) -> None:
    lines = [{"step": i, "loss": 1 + (i % 2) / 10} for i in range(1, 101)]
    page = open_page(page_of(tmp_path / "run", lines))
    assert not curve(page)["log"]
    page.select_option("#scale", "log")
    assert curve(page)["log"] and curve(page)["y"] == [1, 10]
    smooth = curve(page)["data"][1]
    assert max(smooth) - min(smooth) < 0.05 < max(curve(page)["data"][2]) - min(curve(page)["data"][2])
    page.locator("#smoothing").fill("0")
    assert len(curve(page)["data"]) == 2, "no faint line behind it"


def test_zooming_into_one_chart_zooms_all_and_back(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(page_of(tmp_path / "run", falling()))
    drag(page, plot(page), 0.25, 0.5)
    for key in ("loss", "lr"):
        assert curve(page, key)["x"] == pytest.approx([250, 500], abs=15)
    page.click("#whole")
    assert curve(page, "lr")["x"] == [0, 1000]
    drag(page, plot(page, "lr"), 0.1, 0.2)
    plot(page, "lr").dblclick()
    assert curve(page)["x"] == [0, 1000]


def test_pointing_and_arrow_keys_read_values(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(page_of(tmp_path / "run", falling()))
    page.locator("#smoothing").fill("0")
    told = page.locator('.chart[data-metric="loss"] figcaption output')
    before = told.text_content()
    box = plot(page).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 80)
    assert told.text_content() == "0.01961 at step 500"
    page.mouse.move(0, 0)
    assert told.text_content() == before
    chart = page.locator('.chart[data-metric="loss"] .plot')
    chart.focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        chart.press(key)
    assert told.text_content() == "0.3333 at step 20"
    chart.press("+")
    assert curve(page)["x"][1] < 1000
    chart.press("Escape")
    assert curve(page)["x"] == [0, 1000]


def test_a_small_change_is_no_cliff_and_no_share_is_above_all(tmp_path: Path, open_page: OpenPage) -> None:
    lines = [{"step": i, "loss": 0.12288 + i * 1.2e-6, "location_kept": 1 - i / 1e5} for i in range(101)]
    page = open_page(page_of(tmp_path / "run", lines))
    low, high = curve(page)["y"]
    assert high - low > 0.01
    assert curve(page, "location_kept")["y"][1] == 100


def test_several_runs_share_charts_and_only_differences_are_listed(tmp_path: Path, open_page: OpenPage) -> None:
    runs = [make_run(tmp_path / f"run{seed}", falling(), {**CONFIG, "seed": seed}) for seed in (0, 1)]
    page = open_page(write_report(runs, tmp_path / "both.html"))
    assert page.locator('.chart[data-metric="loss"] .legend li').all_inner_texts()[0].startswith("run0")
    assert page.locator("#recipe tr.differs:visible").count() == 1
    assert page.locator("#recipe tr.same:visible").count() == 0
    page.locator("#recipe .only-differences").uncheck()
    assert page.locator("#recipe tr.same:visible").count() > 3


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_follows_the_system_and_its_button(tmp_path: Path, open_page: OpenPage, theme: Any) -> None:
    page = open_page(page_of(tmp_path / "run", full_lines(50)), color_scheme=theme)

    def is_dark() -> bool:
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in color[4:-1].split(",")) < 3 * 128

    assert is_dark() == (theme == "dark")
    page.click("#theme")
    assert is_dark() != (theme == "dark")


def test_on_paper_charts_fit_their_frames_and_colors_are_printed(tmp_path: Path, open_page: OpenPage) -> None:
    runs = [make_run(tmp_path / f"stochastic{i}", full_lines(50)) for i in range(2)]
    page = open_page(write_report(runs, tmp_path / "both.html"))
    assert page.locator(".key .run").first.bounding_box()["height"] < 30, "a name is in one line"
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    widths = page.locator(".uplot").evaluate_all("charts => charts.map(chart => chart.clientWidth)")
    assert max(widths) <= 640, "drawn for the paper: its words are not shrunk"
    page.set_viewport_size({"width": 700, "height": 1000})
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    for figure in page.locator(".chart").all():
        frame, drawn, legend = (figure.locator(part).first.bounding_box() for part in (".plot", "canvas", ".legend"))
        assert drawn["width"] <= frame["width"] + 1 and drawn["y"] + drawn["height"] <= legend["y"] + 1
    exact = "element => getComputedStyle(element).printColorAdjust"
    assert page.locator(".legend .swatch").first.evaluate(exact) == "exact", "or nobody knows which line is which"
    assert not page.locator("#along").is_visible() and not page.locator("#curves").is_visible()


def test_nothing_sticks_out_of_a_narrow_screen(tmp_path: Path, open_page: OpenPage) -> None:
    runs = [make_run(tmp_path / f"a_rather_long_name_of_a_run_{i}", full_lines(50)) for i in range(3)]
    for path in (write_report(runs[:1]), write_report(runs, tmp_path / "three.html")):
        page = open_page(path, viewport={"width": 360, "height": 740}, has_touch=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_names_that_are_markup_run_nothing(tmp_path: Path, open_page: OpenPage) -> None:
    run = make_run(
        tmp_path / HOSTILE.replace("/", ""),
        [{"step": i, "loss": 1 / i, HOSTILE: 1.0} for i in range(1, 20)],
        {"model": HOSTILE, "data": [HOSTILE], HOSTILE: {HOSTILE: HOSTILE}, "batch_size": 4},
    )
    (run / "results.json").write_text(json.dumps({HOSTILE: HOSTILE}))
    (run / "warnings.jsonl").write_text(json.dumps({"step": 1, "text": HOSTILE}))
    page = open_page(write_report([run, make_run(tmp_path / "other", full_lines(5))], tmp_path / "page.html"))
    plot(page).hover()
    assert page.locator("img").count() == 0 and page.title() != "run"
    with served(tmp_path) as port:
        page = open_page(f"http://127.0.0.1:{port}/")
        assert page.locator("#runs a").count() == 2 and page.locator("img").count() == 0
        page.get_by_role("link", name=HOSTILE).click()
        page.wait_for_selector(".chart canvas")
        assert page.locator("img").count() == 0 and page.title() != "run"


def test_a_log_of_100_000_lines_gives_a_page_that_is_as_quick_as_any(tmp_path: Path, open_page: OpenPage) -> None:
    lines = ({"step": i, "loss": 1 + math.sin(i), "lr": 1 / i, "grad_norm": 1.0} for i in range(1, 100_001))
    path = write_report([make_run(tmp_path / "run", lines)])
    assert path.stat().st_size < 10_000_000
    page = open_page(path)
    steps = curve(page)["data"][0]
    assert steps[-1] > 99_000 and len(steps) < 1000, "as much to draw as for a short run"


def test_the_list_of_runs_sorts_filters_compares_and_keeps_up(tmp_path: Path, open_page: OpenPage) -> None:
    for name, loss in (("alpha", 0.5), ("beta", 0.25), ("gamma", 0.75)):
        make_run(tmp_path / name, [{"step": 1, "epoch": 1, "loss": loss}])
    with served(tmp_path) as port:
        page = open_page(f"http://127.0.0.1:{port}/")

        def names() -> list[str]:
            found: list[str] = page.locator("#runs tbody a").all_inner_texts()
            return found

        assert names() == ["alpha", "beta", "gamma"]
        page.get_by_role("button", name="Loss").click()
        assert names() == ["beta", "alpha", "gamma"]
        page.get_by_role("button", name="Loss").click()
        assert names() == ["gamma", "alpha", "beta"]
        make_run(tmp_path / "delta", [{"step": 1, "loss": 0.6}])
        page.locator("#runs tbody tr").nth(3).wait_for(timeout=20_000)
        assert names() == ["gamma", "delta", "alpha", "beta"]
        page.fill("#filter", "stochastic photos beta")
        assert names() == ["beta"]
        page.fill("#filter", "")
        for name in ("alpha", "beta"):
            page.get_by_label(f"Choose {name}").check()
        page.click("#compare")
        page.wait_for_selector(".chart canvas")
        assert page.locator("h1").inner_text() == "2 runs side by side"
        with (tmp_path / "alpha" / "metrics.jsonl").open("a") as file:
            file.write('{"step": 2, "loss": 0.1}\n')
        until = time.monotonic() + 20
        while len(curve(page)["data"][0]) < 2 and time.monotonic() < until:
            page.wait_for_timeout(200)
        assert curve(page)["data"][0] == [1, 2], "new lines are drawn without loading the page again"
