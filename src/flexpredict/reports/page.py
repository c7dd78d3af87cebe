"""The HTML page of a run: one file that needs nothing else, written from what the run folder holds."""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flexpredict.errors import UserError
from flexpredict.files import write_text_atomically
from flexpredict.progress import duration
from flexpredict.reports.charts import Metric, chart, escape, format_number, step_axis
from flexpredict.reports.sections import KNOWN, SECTIONS, Section
from flexpredict.reports.style import CHART_SCRIPT, CHART_STYLE, PAGE_STYLE
from flexpredict.runs.run_record import Run, Warned, flat, read_run
from flexpredict.runs.series import Series


def write_report(run: Path) -> Path:
    """Write `report.html` into the run folder and return its path."""
    run = Path(run)
    page = render(read_run(run))
    report = run / "report.html"
    try:
        write_text_atomically(report, page)
    except OSError as error:
        raise UserError(
            f"Cannot write {report}: {error.strerror}. Check the permissions and the free space."
        ) from error
    return report


def render(record: Run) -> str:
    """The whole page as text."""
    title = _title(record.config)
    script_hash = base64.b64encode(hashlib.sha256(CHART_SCRIPT.encode()).digest()).decode()
    # The browser itself holds the page to its word: nothing is loaded, and no script runs but ours.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script_hash}'; img-src data:"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>{PAGE_STYLE}{CHART_STYLE}</style>",
            "</head>",
            "<body>",
            f'<header><p class="over">flexpredict · run {escape(record.name)}</p>',
            f"<h1>{escape(title)}</h1>",
            f"<p>{escape(_subtitle(record))}</p></header>",
            _tiles(record),
            _warnings(record),
            *_chart_sections(record),
            _results(record.results),
            _settings("Recipe", record.config),
            _settings("Environment", record.environment),
            _skipped(record),
            f"<script>{CHART_SCRIPT}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _title(config: Mapping[str, Any]) -> str:
    title = f"{_said(config.get('model', 'A model'))} on {_said(config.get('data', 'unnamed data'))}"
    positions = config.get("positions")
    kind = positions.get("kind") if isinstance(positions, dict) else positions
    return f"{title}, {_said(kind)} positions" if kind else title


def _subtitle(record: Run) -> str:
    config = record.config
    epoch = "" if record.epoch is None else format_number(record.epoch)
    words = {
        "method": "{}",
        "image_size": "{} px",
        "patch_size": "patch {}",
        "epochs": f"epoch {epoch} of {{}}" if epoch else "{} epochs",
        "batch_size": "batch {}",
        "seed": "seed {}",
    }
    return " · ".join(
        word.format(_said(config[name])) for name, word in words.items() if config.get(name) is not None
    )


def _tiles(record: Run) -> str:
    shown = [tile for tile in _summary(record) if tile[1]]
    if not shown:
        return '<p class="empty">Nothing has been logged yet: the charts appear once metrics.jsonl holds a line.</p>'
    tiles = (
        f"<div><dt>{escape(label)}</dt><dd><b>{escape(value)}</b><small>{escape(note)}</small></dd></div>"
        for label, value, note in shown
    )
    return '<dl class="tiles">' + "\n".join(tiles) + "</dl>"


def _summary(record: Run) -> Iterator[tuple[str, str, str]]:
    """Label, value and note of each tile; no value where it is not known."""

    def last(key: str) -> str:
        series = record.series.get(key)
        return "" if series is None or series.last is None else format_number(series.last)

    def start(key: str) -> str:
        series = record.series.get(key)
        return "" if series is None or series.first is None else f"{format_number(series.first)} at the start"

    def percent(value: float) -> str:
        return format_number(value * Metric("", "", share=True).factor([value]), unit="%")

    images, seconds = record.images, record.seconds
    batch = _said(record.config.get("batch_size"))
    wait = record.series.get("data_wait", Series()).last
    kept = record.series.get("location_kept", Series()).last
    located = record.series.get("location_share", Series())
    accuracy = [value for _, value in record.series.get("knn_accuracy", Series()).points()]
    yield "Final loss", last("loss"), start("loss")
    yield "Images seen", format_number(images) if images else "", f"{format_number(record.steps)} steps of {batch}"
    speed = format_number(images / seconds) if images and seconds else last("images_per_second")
    yield "Images per second", speed, "" if wait is None else f"{percent(wait)} of the time waiting"
    yield "Training time", duration(seconds) if seconds else "", "at the logged speed"
    yield "Target rank", last("target_rank"), start("target_rank")
    yield (
        "Location share",
        "" if located.last is None else percent(located.last),
        "" if located.first is None else f"{percent(located.first)} at the start",
    )
    yield (
        "Location blur",
        last("location_blur"),
        "patches" + ("" if kept is None else f"; {percent(kept)} keep their place"),
    )
    yield "k-NN accuracy", percent(accuracy[-1]) if accuracy else "", f"best {percent(max(accuracy, default=0))}"


def _warnings(record: Run) -> str:
    items = [escape(note) for note in record.unreadable]
    for text, warned in record.warnings.items():
        items.append(escape(text) + f' <span class="when">{_when(warned)}</span>')
    if record.more_warnings:
        items.append(f"and {record.more_warnings} more in warnings.jsonl")
    if not items:
        return ""
    return '<section class="warnings"><h2>Warnings</h2><ul><li>' + "</li>\n<li>".join(items) + "</li></ul></section>"


def _when(warned: Warned) -> str:
    if warned.first is None or warned.last is None:
        return "" if warned.count == 1 else f"{warned.count} times"
    if warned.count == 1:
        return f"step {warned.first:.0f}"
    return f"{warned.count} times, step {warned.first:.0f} to {warned.last:.0f}"


def _chart_sections(record: Run) -> Iterator[str]:
    others = tuple(Metric(key, key) for key in record.series if key not in KNOWN)
    other = Section("Other", "What else the run logged.", "", others)
    x = step_axis(record.series.values())
    for section in (*SECTIONS, other):
        drawn = [metric for metric in section.metrics if _worth_drawing(record, metric)]
        if not drawn:
            continue
        figures = "\n".join(chart(record.series[metric.key], metric, x) for metric in drawn)
        bad_sign = f" <b>A bad sign:</b> {escape(section.bad_sign)}" if section.bad_sign else ""
        # Rows of two or three that come out even.
        basis = {1: "100%", 2: "40%", 4: "40%"}.get(len(drawn), "28%")
        yield f"<section><h2>{section.title}</h2>"
        yield f"<p>{escape(section.reading)}{bad_sign}</p>"
        yield f'<div class="charts" style="--basis:{basis}">{figures}</div></section>'


def _worth_drawing(record: Run, metric: Metric) -> bool:
    """Everything logged, but for the count of skipped images where none were."""
    series = record.series.get(metric.key)
    return series is not None and (metric.key != "skipped" or any(value for _, value in series.points()))


def _results(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(_result(row.get(name)))}</td>" for name in columns) + "</tr>" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<section><h2>Results</h2><div class="wide">{table}</div></section>'


def _result(value: Any) -> str:
    return format_number(value, 4) if isinstance(value, float) else _said(value) if value is not None else ""


def _settings(title: str, settings: Mapping[str, Any]) -> str:
    if not settings:
        return ""
    groups = {name: dict(flat(value)) for name, value in settings.items() if isinstance(value, dict) and value}
    alone = {name: value for name, value in settings.items() if name not in groups}
    tables = [_group("", alone)] if alone else []
    tables += [_group(str(name), values) for name, values in groups.items()]
    layout = "settings" if len(tables) > 1 else "settings alone"
    return f'<section><h2>{title}</h2><div class="{layout}">' + "\n".join(tables) + "</div></section>"


def _group(title: str, values: Mapping[str, Any]) -> str:
    rows = "\n".join(f"<tr><th>{escape(n)}</th><td>{escape(_said(v))}</td></tr>" for n, v in values.items())
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<div><table>{caption}<tbody>{rows}</tbody></table></div>"


def _said(value: Any) -> str:
    """A setting as a person would write it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_said(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_said(item) for item in value)
    return str(value)


def _skipped(record: Run) -> str:
    if not record.skipped:
        return ""
    rows = "\n".join(f"<tr><td>{escape(path)}</td><td>{escape(why)}</td></tr>" for path, why in record.skipped)
    count = len(record.skipped) + record.more_skipped
    more = f"<p>and {record.more_skipped} more in skipped.jsonl</p>" if record.more_skipped else ""
    return (
        f"<section><h2>Skipped files</h2><details><summary>{count} could not be read and "
        f"{'was' if count == 1 else 'were'} left out</summary>"
        f'<div class="wide"><table><thead><tr><th>file</th><th>reason</th></tr></thead><tbody>{rows}</tbody></table>'
        f"</div>{more}</details></section>"
    )
