"""The page of runs: what stands on it, in one HTML file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexpredict.errors import UserError
from flexpredict.files import write_text_atomically
from flexpredict.reports.answers import Answer, answers
from flexpredict.reports.curves import curve_data, drawn_sections
from flexpredict.reports.key_numbers import key_numbers, key_table
from flexpredict.reports.numbers import format_number, said
from flexpredict.reports.rendering import render
from flexpredict.reports.side_by_side import result_rows, setting_groups
from flexpredict.runs.run_record import Run, Warned, read_run

STYLES = ("vendor/uPlot.min.css", "page.css", "curves.css")
_GENERATOR = b'<meta name="generator" content="flexpredict">'
SCRIPTS = ("numbers.js", "theme.js", "smoothing.js", "chart.js", "curves.js", "tables.js", "start.js")


@dataclass(frozen=True)
class Subject:
    """What a page is about: a run."""

    label: str
    record: Run


def write_report(runs: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page of these runs and return its path.

    out: where to; by default report.html, in the folder of a single run, or in the current one.
    """
    page = out or (runs[0] if len(runs) == 1 else Path()) / "report.html"
    _refuse_other_files(page)
    labels = short_labels(runs)
    text = render_page([Subject(label, read_run(run)) for label, run in zip(labels, runs, strict=True)])
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(page, text)
    except OSError as error:
        raise UserError(
            f"Cannot write {page}: {error.strerror}. Check the permissions and the free space."
        ) from error
    return page


def short_labels(runs: Sequence[Path]) -> list[str]:
    """Names of folders, with as many of the folders above as it takes to tell them apart."""
    parts = [run.resolve().parts for run in runs]
    for count in range(1, max(map(len, parts)) + 1):
        labels = ["/".join(part[-count:]) for part in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} ({number})" for number, label in enumerate(labels, start=1)]


def _refuse_other_files(page: Path) -> None:
    """Only a page that was made here is replaced."""
    if page.is_file():
        with page.open("rb") as file:
            if _GENERATOR not in file.read(100_000):
                raise UserError(f"out={page} exists and is not a page of flexpredict. Choose another out.")


def render_page(subjects: Sequence[Subject]) -> str:
    """The whole page as text."""
    runs, labels = [subject.record for subject in subjects], [subject.label for subject in subjects]
    sections = drawn_sections(runs)
    return render(
        "page.html.j2",
        STYLES,
        SCRIPTS,
        title=_title(subjects),
        labels=labels,
        subtitle=_subtitle(runs[0]) if len(runs) == 1 else "",
        tiles=key_numbers(runs[0]) if len(runs) == 1 else [],
        key_table=key_table(runs) if len(runs) > 1 else [],
        warnings=[
            (label, text, when) for label, run in zip(labels, runs, strict=True) for text, when in _warnings(run)
        ],
        answers=_answers(runs, labels),
        sections=sections,
        curves=curve_data(runs, labels),
        results=result_rows([run.results for run in runs]),
        recipe=setting_groups([run.config for run in runs]),
        environment=setting_groups([run.environment for run in runs]),
        skipped=[
            (label, run.skipped, run.more_skipped) for label, run in zip(labels, runs, strict=True) if run.skipped
        ],
    )


def _title(subjects: Sequence[Subject]) -> str:
    if len(subjects) > 1:
        return f"{len(subjects)} runs side by side"
    config = subjects[0].record.config
    title = f"{said(config.get('model', 'A model'))} on {said(config.get('data', 'unnamed data'))}"
    kind = _position_kind(config)
    return f"{title}, {kind} positions" if kind else title


def _position_kind(config: Mapping[str, Any]) -> str:
    positions = config.get("positions")
    kind = positions.get("kind") if isinstance(positions, dict) else positions
    return said(kind) if kind else ""


def _subtitle(run: Run) -> str:
    epoch = "" if run.epoch is None else format_number(run.epoch)
    words = {
        "method": "{}",
        "image_size": "{} px",
        "patch_size": "patch {}",
        "epochs": f"epoch {epoch} of {{}}" if epoch else "{} epochs",
        "batch_size": "batch {}",
        "seed": "seed {}",
    }
    config = run.config
    return " · ".join(word.format(said(config[name])) for name, word in words.items() if config.get(name) is not None)


def _answers(runs: Sequence[Run], labels: Sequence[str]) -> list[tuple[str, Answer]]:
    """With the label of the run; what the runs answer to one question stands together."""
    found = [(label, answer) for label, run in zip(labels, runs, strict=True) for answer in answers(run)]
    order = {question: place for place, question in enumerate(dict.fromkeys(answer.question for _, answer in found))}
    return sorted(found, key=lambda pair: order[pair[1].question])


def _warnings(run: Run) -> list[tuple[str, str]]:
    """Each with when it was given."""
    found = [(note, "") for note in run.unreadable]
    found += [(text, _when(warned)) for text, warned in run.warnings.items()]
    if run.more_warnings:
        found.append((f"and {run.more_warnings} more in warnings.jsonl", ""))
    return found


def _when(warned: Warned) -> str:
    if warned.first is None or warned.last is None:
        return "" if warned.count == 1 else f"{warned.count} times"
    if warned.count == 1:
        return f"step {warned.first:.0f}"
    return f"{warned.count} times, step {warned.first:.0f} to {warned.last:.0f}"
