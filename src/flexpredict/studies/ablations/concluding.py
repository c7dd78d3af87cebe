"""Results of a study: gathered from its runs, printed, and written as tables and a figure."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from flexpredict.files import write_csv_atomically, write_json_atomically, write_text_atomically
from flexpredict.runs.run_folder import RunFolder
from flexpredict.studies import figures
from flexpredict.studies.ablations.chapters import as_markdown, write_block, write_chapter
from flexpredict.studies.ablations.claims import BLOCK, claims_table
from flexpredict.studies.ablations.measuring import norms
from flexpredict.studies.ablations.planning import Ablation, Agenda
from flexpredict.studies.ablations.runs import StudyRun
from flexpredict.studies.ablations.study import Study
from flexpredict.studies.ablations.summary import Row, seed_rows, summarize, table_rows, tables
from flexpredict.training.plan import plain_values

_FILES = (
    "[table.csv](table.csv) has the numbers of the tables, [seeds.csv](seeds.csv) those of each seed, and\n"
    "[results.json](results.json) the recipe."
)


def conclude(console: Console, asked: Ablation, agenda: Agenda, study: Study) -> None:
    """Print and write the results of a study, all of whose runs are done."""
    found = {arm: [_numbers(study, run) for run in runs] for arm, runs in agenda.of(study).items()}
    rows, notes = summarize(study, found), _notes(agenda, study, asked.measuring.downstream.in_words())
    shown = tables(study, rows)
    console.print(f"{study.name}: {study.title}", highlight=False)
    for title, lines in shown.items():
        console.print(_for_console(title, lines))
    folder = asked.folder / study.name
    _write(folder, study, rows, agenda, asked)
    markdown = "\n".join(f"**{title}**\n\n{as_markdown(lines)}" for title, lines in shown.items())
    write_text_atomically(folder / "table.md", f"{markdown}\n{notes}\n")
    written = [str(folder)]
    if asked.chapter is not None:
        chapter = Path(asked.chapter, *([study.name] if len(agenda.studies) > 1 else []))
        chapter.mkdir(parents=True, exist_ok=True)
        for name in ("table.csv", "seeds.csv", "results.json", "figure.png"):
            shutil.copyfile(folder / name, chapter / name)
        environment = RunFolder(next(iter(agenda.of(study).values()))[0].folder).environment
        body = f"{markdown}\n![{study.title}](figure.png)\n\n{_FILES}"
        facts = json.loads(environment.read_text(encoding="utf-8"))
        write_chapter(chapter, study.title, body, facts, notes=notes)
        index = chapter.parent / "README.md"
        write_block(index, BLOCK, claims_table(chapter.parent, index))
        written.append(str(chapter))
    console.print(f"{notes}\nWritten: {', '.join(written)}", highlight=False, markup=False)


def _numbers(study: Study, run: StudyRun) -> dict[str, float]:
    numbers = run.numbers() if study.probes else norms(run.folder)
    assert numbers is not None, "all runs are measured by now"
    return numbers


def _for_console(title: str, lines: list[list[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for place, heading in enumerate(lines[0]):
        table.add_column(heading, justify="right" if place else "left")
    for cells in lines[1:]:
        table.add_row(*(f"[bold]{cell.strip('*')}[/bold]" if cell.startswith("**") else cell for cell in cells))
    return table


def _write(folder: Path, study: Study, rows: list[Row], agenda: Agenda, asked: Ablation) -> None:
    seeds = agenda.seeds(study)
    write_csv_atomically(folder / "table.csv", table_rows(study, rows))
    write_csv_atomically(folder / "seeds.csv", seed_rows(study, rows, seeds))
    record: dict[str, Any] = {
        "study": study.name,
        "seeds": seeds,
        "train": agenda.train.name,
        "warnings": agenda.warnings,
        agenda.role: None if agenda.test is None else agenda.test.data,
        "measuring": dataclasses.asdict(asked.measuring),
        "base": plain_values(dataclasses.asdict(asked.base)),
        "arms": [
            {**dataclasses.asdict(row.arm), "numbers": {name: one.values for name, one in row.numbers.items()}}
            for row in rows
        ],
    }
    write_json_atomically(folder / "results.json", record)
    figures.draw(study, rows, len(seeds), folder / "figure.png")


def _notes(agenda: Agenda, study: Study, downstream: str) -> str:
    seeds = agenda.seeds(study)
    several = len(seeds) > 1
    plan = agenda.of(study)[study.arms[0].name][0].plan  # no study varies the length
    said = [
        f"Seed{'s' * several} {', '.join(map(str, seeds))}; pre-trained on {agenda.train.name} for "
        f"{plan.steps:,} steps of {plan.recipe.batch_size} images."
    ]
    if study.form == "surface":
        said.append("Each `where` has its own scenes to train on and to test on.")
    elif study.probes and agenda.test is not None:
        held_out = " (held out before pre-training)" if agenda.role == "validation" else ""
        test = agenda.test.source
        said.append(
            f"Measured on {len(test):,} {agenda.role} images: {test.name}{held_out}. Probes are fitted "
            f"on labels of the {len(agenda.train):,} training images."
        )
    if study.probes:
        said.append(
            "Lost: accuracy that a probe fitted on unshifted images loses when images are shifted by this distance. "
            "Location share: share of the variance of patch features that position alone explains. R²: of row and "
            "column predicted from single patch features."
        )
        if downstream:
            said.append(downstream)
        said += agenda.warnings
    said.append(
        "± is half the 95 % interval over seeds (Student's t); differences are paired by seed, and bold where the "
        "interval excludes zero."
        if several
        else "One seed: there is no interval, and differences may be chance."
    )
    return " ".join(said)
