"""`flexpredict ablate`: plan the runs of a study, carry them out, measure them, and write table and figure."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from flexpredict.data.scenes.options import IMAGE_OPTIONS, SceneOptions, read_options
from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError
from flexpredict.evaluation.probing import check_probe
from flexpredict.files import write_text_atomically
from flexpredict.progress import Counting, duration
from flexpredict.settings.probing import Probing
from flexpredict.settings.recipe import Recipe
from flexpredict.studies.ablations import figures
from flexpredict.studies.ablations.measuring import Data, accuracies, norms
from flexpredict.studies.ablations.runs import ArmRun, arm_run, flat, plan_of, planned, steps_left
from flexpredict.studies.ablations.studies import Study
from flexpredict.studies.ablations.summary import as_csv, as_markdown, seeds_as_csv, summarise, table
from flexpredict.studies.ablations.training import carry_out, seconds_a_step


@dataclass(frozen=True)
class Ablation:
    """What is to be done.

    Args:
        studies: what is asked.
        base: values of the recipe that all arms share; positions are each arm's own.
        test: labelled images to test on; not needed where nothing is probed.
        seeds: how many times each arm is run.
        out: folder for runs, tables and figures.
        labels: shares of the labels for the linear probes.
        jobs: runs at a time.
    """

    studies: list[Study]
    base: dict[str, Any]
    test: str | None
    seeds: tuple[int, ...]
    out: Path
    labels: tuple[float, ...] = (0.01, 1.0)
    jobs: int = 1


def ablate(asked: Ablation, *, dry_run: bool = False, console: Console | None = None) -> bool:
    """Whether everything was carried out: not in a dry run, and not if someone stopped it."""
    console = console or Console(soft_wrap=True)
    if asked.jobs < 1 or not asked.seeds:
        raise UserError(f"jobs is {asked.jobs} and there are {len(asked.seeds)} seeds; use at least 1 of each.")
    if torch.distributed.is_torchelastic_launched():
        raise UserError("Start ablate without torchrun; each of its runs starts its own processes (--devices).")
    data = Data(open_source(asked.base["data"]), open_source(asked.test) if asked.test else None, asked.labels)
    asked = _without_the_impossible(asked, data, console)
    if any(study.probes for study in asked.studies):
        if data.test is None:
            raise UserError("Name labelled images to test on as `test`; only the built-in scenes have their own.")
        check_probe(data.train, data.test, Probing(labels=data.labels, subsets=data.subsets, neighbors=0))
    runs = planned(asked.studies, asked.seeds, asked.base, asked.out)
    left = {run.folder: steps_left(run, data.train) for run in runs}
    pending = [run for run in runs if left[run.folder]]
    _show_plan(console, asked, runs, left)
    if pending:
        with console.status("Measuring a step …"):
            seconds = seconds_a_step(pending[0], plan_of(pending[0], data.train))
        if seconds is None:
            console.print("Stopped; nothing was started.", highlight=False)
            return False
        sooner = f", less with {asked.jobs} at a time" if asked.jobs > 1 else ""
        steps = sum(left[run.folder] for run in pending)
        console.print(
            f"{len(pending)} of {len(runs)} runs to do, {steps:,} steps of {1000 * seconds:.0f} ms (measured): "
            f"about {duration(seconds * steps)} one after another{sooner}, and the probes.",
            highlight=False,
        )
    if dry_run:
        console.print("A dry run: nothing was started. Leave dry_run out to start.", highlight=False)
        return False
    if not _run_all(console, pending, asked):
        console.print("Stopped; what is done is kept. The same command goes on.", highlight=False)
        return False
    for study in asked.studies:
        _conclude(console, asked, study, data)
    return True


def _show_plan(console: Console, asked: Ablation, runs: list[ArmRun], left: dict[Path, int]) -> None:
    shown = Table(title=f"{len(runs)} runs", title_justify="left")
    for heading in ("study", "arm", "what it varies", "runs", "done"):
        shown.add_column(heading, justify="right" if heading in ("runs", "done") else "left", overflow="fold")
    for study in asked.studies:
        for arm in study.arms:
            folders = [arm_run(arm, seed, asked.base, asked.out).folder for seed in asked.seeds]
            done = sum(not left[folder] for folder in folders)
            varied = ", ".join(f"{key} {value}" for key, value in flat(arm.fields))
            shown.add_row(study.name, arm.name, varied, str(len(folders)), str(done))
    console.print(shown)


def _without_the_impossible(asked: Ablation, data: Data, console: Console) -> Ablation:
    """Of several studies, those that this method and these images allow; a single one is refused instead."""
    possible = []
    for study in asked.studies:
        _refuse_what_is_varied(asked.base, study)
        try:
            for arm in study.arms:
                plan_of(arm_run(arm, asked.seeds[0], asked.base, asked.out), data.train)
            possible.append(study)
        except UserError as error:
            if len(asked.studies) == 1:
                raise
            console.print(f"{study.name} is left out. {error}", highlight=False, markup=False)
    return dataclasses.replace(asked, studies=possible)


def _refuse_what_is_varied(base: dict[str, Any], study: Study) -> None:
    """In a recipe that all arms share; positions are each arm's own anyway."""
    varied = {name for arm in study.arms for name, _ in flat({**arm.fields, "positions": {}})}
    usual, given = dict(flat(dataclasses.asdict(Recipe()))), dict(flat(base))
    for name in sorted(varied):
        if given.get(name, usual[name]) != usual[name]:
            raise UserError(f"{study.name} varies {name}, and the recipe sets it to {given[name]}. Leave it out.")


def _run_all(console: Console, pending: list[ArmRun], asked: Ablation) -> bool:
    if not pending:
        return True
    console.print(f"Logs of the runs: {asked.out / 'logs'}", highlight=False, markup=False)
    try:
        with Counting(console, "runs", "runs", len(pending)) as counting:
            for run, finished in carry_out(pending, asked.out, asked.jobs):
                if not finished:
                    return False
                counting.add(1)
                console.print(f"done: {run.folder}", highlight=False, markup=False)
    except KeyboardInterrupt:
        return False
    return True


def _conclude(console: Console, asked: Ablation, study: Study, data: Data) -> None:
    measured: dict[str, list[dict[str, float]]] = {}
    with Counting(console, f"measuring {study.name}", "runs", len(study.arms) * len(asked.seeds)) as counting:
        for arm in study.arms:
            measured[arm.name] = []
            for seed in asked.seeds:
                run = arm_run(arm, seed, asked.base, asked.out)
                measured[arm.name].append(accuracies(run, data) if study.probes else norms(run))
                counting.add(1)
    rows = summarise(study, measured)
    lines = table(study, rows)
    folder = asked.out / study.name
    folder.mkdir(parents=True, exist_ok=True)
    notes = _notes(asked, study, data)
    write_text_atomically(folder / "table.md", f"{as_markdown(lines)}\n{notes}\n")
    write_text_atomically(folder / "table.csv", as_csv(study, rows))
    write_text_atomically(folder / "seeds.csv", seeds_as_csv(study, rows, asked.seeds))
    write_text_atomically(folder / "results.json", json.dumps(_record(asked, study, measured), indent=2) + "\n")
    figures.draw(study, rows, len(asked.seeds), folder / "figure.png")
    shown = Table(title=f"{study.name}: {study.title}", title_justify="left")
    for place, heading in enumerate(lines[0]):
        shown.add_column(heading, justify="right" if place else "left")
    for cells in lines[1:]:
        shown.add_row(*cells)
    console.print(shown)
    console.print(
        f"{notes}\nWritten: {folder}/table.md, table.csv, seeds.csv, results.json, figure.png", highlight=False
    )


def _notes(asked: Ablation, study: Study, data: Data) -> str:
    seeds = f"seeds {', '.join(map(str, asked.seeds))}" if len(asked.seeds) > 1 else f"seed {asked.seeds[0]}"
    what = (
        f"linear probe on {data.test.name}, trained on labels of {data.train.name}"
        if study.probes and data.test is not None
        else "norms from the last line of each log"
    )
    interval = (
        "± is half the 95 % interval over seeds (Student's t); differences are paired by seed."
        if len(asked.seeds) > 1
        else "One seed: there is no interval, and differences may be chance."
    )
    return f"Pre-trained on {data.train.name}, {seeds}; {what}. {interval}"


def _record(asked: Ablation, study: Study, measured: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    return {
        "study": study.name,
        "seeds": list(asked.seeds),
        "base": asked.base,
        "test": asked.test,
        "labels": list(asked.labels),
        "arms": [{**dataclasses.asdict(arm), "measured": measured[arm.name]} for arm in study.arms],
    }


def default_test(data: str | Sequence[str]) -> str | None:
    """Test images of the built-in scenes; other data has no default."""
    if not isinstance(data, str) or not (data == "scenes" or data.startswith("scenes:")):
        return None
    asked = read_options(data, SceneOptions(count=2000), IMAGE_OPTIONS)
    where = "" if asked.where is None else f",where={asked.where:g}"
    return f"scenes:2000,size={asked.size}{where},split=test,first=10000"
