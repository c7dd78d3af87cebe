"""Size of the page of a very long run, and the time a browser takes to open it.

    python benchmarks/page.py                       # a log of 100,000 lines with every metric of the page
    python benchmarks/page.py --run runs/mine       # with the explorer and the pictures of this run

Needs Chromium and playwright. Time runs from the request for the file until the browser has painted all charts, the
explorer and the pictures. The processor time of the page's process is printed as well, since other processes do not
change it.
"""

import argparse
import json
import math
import shutil
import tempfile
import time
from pathlib import Path

import yaml
from machine import announce_machine, spread
from playwright.sync_api import Browser, sync_playwright

from flexpredict.reports.sections import METRICS
from flexpredict.reports.writing import write_report

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPENED = """async () => {
    await window.flexpredict.ready;
    await new Promise(painted => requestAnimationFrame(() => setTimeout(painted)));
    return performance.now();
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--run", type=Path)
    arguments = parser.parse_args()
    console = announce_machine()
    program = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        parser.error("no Chromium is installed")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        run = Path(folder) / "run"
        if arguments.run is not None:
            shutil.copytree(arguments.run, run, symlinks=True)
        else:
            run.mkdir()
            (run / "config.yaml").write_text(yaml.safe_dump({"model": "vit", "data": "photos", "batch_size": 64}))
        write_log(run / "metrics.jsonl", arguments.lines)
        start = time.perf_counter()
        page = write_report([run])
        seconds = time.perf_counter() - start
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        waited, worked = map(spread, zip(*(open_once(browser, page) for _ in range(arguments.rounds)), strict=True))
        browser.close()
        console.print(
            f"{arguments.lines:,} lines of {len(METRICS)} metrics: written in {seconds:.1f} s, "
            f"{page.stat().st_size / 1e6:.2f} MB, opened in {waited.median:.2f} s "
            f"(quartiles {waited.low:.2f} to {waited.high:.2f}; {worked.median:.2f} s of processor time)",
            highlight=False,
        )


def write_log(path: Path, lines: int) -> None:
    """Write a log in which every metric falls and oscillates; one loss in a thousand is not finite."""
    with path.open("w", encoding="utf-8") as file:
        for step in range(1, lines + 1):
            values = {
                key: (1 + 0.3 * math.sin(step * (number + 1))) / (1 + step / lines)
                for number, key in enumerate(METRICS)
            }
            if step % 1000 == 0:
                values["loss"] = math.nan
            file.write(json.dumps({"step": step, "epoch": step / 1000, **values}) + "\n")


def open_once(browser: Browser, page: Path) -> tuple[float, float]:
    """Seconds until the page is drawn, and of processor time, in a new browser context."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        opened = context.new_page()
        inspector = context.new_cdp_session(opened)
        inspector.send("Performance.enable", {"timeDomain": "threadTicks"})
        opened.goto(page.resolve().as_uri())
        waited = float(opened.evaluate(_OPENED)) / 1000
        measured = {item["name"]: item["value"] for item in inspector.send("Performance.getMetrics")["metrics"]}
        return waited, float(measured["ProcessTime"])


if __name__ == "__main__":
    main()
