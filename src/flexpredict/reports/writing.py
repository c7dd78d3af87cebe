"""Writes the page of runs and encoders."""

from collections.abc import Sequence
from pathlib import Path

from flexpredict.data.sources.image_source import ImageSource
from flexpredict.encoders.opening import open_encoder
from flexpredict.errors import UserError
from flexpredict.files import write_text_atomically
from flexpredict.reports.page import Subject, render_page
from flexpredict.reports.run_list import MOST_COMPARED, find_runs
from flexpredict.reports.views.looking import look_into
from flexpredict.reports.views.stored import Views, stored_views
from flexpredict.runs.run_folder import is_run
from flexpredict.runs.run_record import read_run

_GENERATOR = b'<meta name="generator" content="flexpredict">'


def write_report(
    names: Sequence[str | Path], out: Path | None = None, images: str | None = None, source: ImageSource | None = None
) -> Path:
    """Write the page of these runs and encoders, and return its path.

    Args:
        names: run folders, or names of encoders.
        out: path of the page; default: report.html in the folder of a single run, else in the current folder.
        images: to look at; default: the training images of the first run.
        source: these images, if they are open already.
    """
    page = _place(names, out)
    subjects = _subjects(names)
    try:
        views = look_into(names, images, source)
    except (UserError, OSError) as error:
        # Unless images were asked for, a page with only curves is better than none.
        if images is not None or all(subject.record is None for subject in subjects):
            raise
        views = Views(notes=[f"There is nothing to explore: {error}"])
    return _write(page, render_page(subjects, views))


def refresh_report(run: Path) -> Path:
    """Rewrite the page of a running run with new curves and the pictures that it already has."""
    page = run / "report.html"
    return _write(page, render_page(_subjects([run]), stored_views(page)))


def write_comparison(folder: Path, seed: int) -> Path:
    """Write FOLDER/report.html, which compares the runs below the folder that have this seed."""
    runs = [run for run in find_runs(folder.resolve()) if read_run(run).config.get("seed") == seed]
    return write_report(runs[:MOST_COMPARED], folder / "report.html")


def short_labels(names: Sequence[str | Path]) -> list[str]:
    """Names of folders and files, with as many parent folders as needed to tell them apart."""
    parts = [Path(name).resolve().parts if Path(name).exists() else (str(name),) for name in names]
    labels = [""]
    for count in range(1, max(map(len, parts)) + 1):
        labels = ["/".join(part[-count:]) for part in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} ({number})" for number, label in enumerate(labels, start=1)]


def _subjects(names: Sequence[str | Path]) -> list[Subject]:
    subjects = []
    for name, label in zip(names, short_labels(names), strict=True):
        if is_run(Path(name)):
            subjects.append(Subject(label, read_run(Path(name))))
        else:
            encoder = open_encoder(name)
            facts = {
                "encoder": encoder.what,
                "features": encoder.dim,
                "layers": encoder.depth,
                "patch": "x".join(map(str, encoder.patch_size)),
                "trained at": "x".join(map(str, encoder.image_size)),
                "details": " ".join(detail.rstrip(".") + "." for detail in encoder.details),
            }
            subjects.append(Subject(label, None, encoder.what, facts))
    return subjects


def _place(names: Sequence[str | Path], out: Path | None) -> Path:
    if not names:
        raise UserError("No run was named. Give run folders, or encoders.")
    if out is None and len(names) == 1 and is_run(Path(names[0])):
        return Path(names[0]) / "report.html"
    page = out or Path("report.html")
    if page.is_file():
        with page.open("rb") as file:
            if _GENERATOR not in file.read(10_000):
                raise UserError(f"out={page} exists and is not a report of flexpredict. Choose another out.")
    return page


def _write(page: Path, text: str) -> Path:
    write_text_atomically(page, text)
    return page
