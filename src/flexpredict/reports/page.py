"""Renders the page of runs and encoders as one HTML text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flexpredict.reports.answers import questions
from flexpredict.reports.curves import curve_data, drawn_sections
from flexpredict.reports.key_numbers import key_numbers, key_table
from flexpredict.reports.numbers import format_number, position_kind, said
from flexpredict.reports.rendering import CHARTING_LIBRARY, render
from flexpredict.reports.side_by_side import result_groups, setting_groups
from flexpredict.reports.views.stored import Views
from flexpredict.runs.run_record import Run, Warned, number

_STYLES = ("vendor/uPlot.min.css", "page.css", "curves.css", "explorer.css")
_SCRIPTS = (
    CHARTING_LIBRARY,
    *("numbers.js", "elements.js", "theme.js", "smoothing.js", "chart.js", "curves.js", "refreshing.js", "tables.js"),
    *("arrays.js", "maps.js", "drawing.js", "explorer.js", "explorer_controls.js", "pictures.js", "start.js"),
)


@dataclass(frozen=True)
class Subject:
    """A run, or an encoder that is not a run, shown on a page.

    Args:
        label: short and unique on the page.
        record: of a run; None for other encoders.
        what: description of an encoder.
        facts: of an encoder, by name.
    """

    label: str
    record: Run | None
    what: str = ""
    facts: Mapping[str, Any] | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.record.config if self.record is not None else self.facts or {}


def render_page(subjects: Sequence[Subject], views: Views | None = None, served: bool = False) -> str:
    """The whole page as text.

    served: whether the page comes from `flexpredict serve` and may fetch new curves from there.
    """
    views = views or Views()
    logged = [(subject.label, subject.record) for subject in subjects if subject.record is not None]
    labels, runs = [label for label, _ in logged], [run for _, run in logged]
    single = runs[0] if len(subjects) == len(runs) == 1 else None
    return render(
        "page.html.j2",
        _STYLES,
        _SCRIPTS,
        policy="; connect-src 'self'" if served else "",
        title=_title(subjects),
        labels=[subject.label for subject in subjects],
        run_labels=labels,
        subtitle=_subtitle(single) if single is not None else subjects[0].what if len(subjects) == 1 else "",
        tiles=[] if single is None else key_numbers(single),
        key_table=key_table(runs) if len(runs) > 1 else ([], []),
        warnings=[(label, text, when) for label, run in logged for text, when in _warnings(run)],
        notes=views.notes,
        questions=questions(runs),
        sections=drawn_sections(runs),
        curves=curve_data(runs, labels),
        views=_labeled(views, subjects),
        results=result_groups([{} if subject.record is None else subject.record.results for subject in subjects]),
        recipe=setting_groups([subject.settings for subject in subjects]),
        environment=setting_groups([run.environment for run in runs]) if runs else [],
        skipped=[(label, run.skipped, run.more_skipped) for label, run in logged if run.skipped],
        served=served,
    )


def _labeled(views: Views, subjects: Sequence[Subject]) -> dict[str, Any] | None:
    """The views in the form that the script expects; each model has the label and color of its subject."""
    models = [
        {**model, "label": subject.label, "color": number % 8}
        for number, (model, subject) in enumerate(zip(views.models, subjects, strict=False))
        if model is not None
    ]
    return {"sets": views.sets, "models": models} if models else None


def _title(subjects: Sequence[Subject]) -> str:
    if len(subjects) > 1:
        things = "runs" if all(subject.record is not None for subject in subjects) else "encoders"
        return f"{len(subjects)} {things} side by side"
    if subjects[0].record is None:
        return subjects[0].label
    config = subjects[0].record.config
    title = f"{said(config.get('model', 'A model'))} on {said(config.get('data', 'unnamed data'))}"
    kind = position_kind(config)
    return f"{title}, {kind} positions" if kind else title


def _subtitle(run: Run) -> str:
    epochs = number(run.config.get("epochs"))  # the last batch may go beyond the last epoch
    epoch = "" if run.epoch is None else format_number(min(run.epoch, epochs or run.epoch))
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


def _warnings(run: Run) -> list[tuple[str, str]]:
    """Each warning with the steps at which it occurred."""
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
