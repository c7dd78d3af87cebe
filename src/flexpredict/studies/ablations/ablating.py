"""`flexpredict ablate`: plan the runs of a study, carry them out, measure them, and write tables and figures."""

import dataclasses
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from flexpredict.errors import UserError
from flexpredict.progress import Counting
from flexpredict.studies.ablations.concluding import conclude
from flexpredict.studies.ablations.costs import find_costs, in_words
from flexpredict.studies.ablations.planning import Ablation, Agenda, Work, make_agenda
from flexpredict.studies.ablations.processes import Task, carry_out, usual_jobs
from flexpredict.studies.ablations.runs import flat, hardware
from flexpredict.training.plan import plain_values
from flexpredict.training.signals import Stop, stop_on_signal


def ablate(asked: Ablation, console: Console | None = None) -> bool:
    """Whether everything was carried out: not in a dry run, and not if someone stopped it."""
    console = console or _console()
    if torch.distributed.is_torchelastic_launched():
        raise UserError("Start ablate without torchrun; each of its runs starts the processes for its `devices`.")
    agenda = make_agenda(asked, console)
    pending = [work for work in agenda.work.values() if not work.done]
    _show_plan(console, agenda)
    at_a_time = min(asked.jobs or usual_jobs(hardware(asked.base)[0]), max(1, len(pending)))
    with stop_on_signal() as stop:
        if pending and not _estimate(console, asked, agenda, pending, at_a_time, stop):
            console.print("Stopped; nothing was started.", highlight=False)
            return False
        if asked.dry_run:
            console.print("A dry run: nothing was started.", highlight=False)
            return False
        if pending and not _run_all(console, asked, agenda, pending, at_a_time, stop):
            console.print("Stopped; what is done is kept. The same command goes on.", highlight=False)
            return False
    for study in agenda.studies:
        conclude(console, asked, agenda, study)
    return True


def _console() -> Console:
    """Wide enough for the tables where it is a file, which rich takes for a terminal of 80 columns."""
    return Console(soft_wrap=True) if Console().is_terminal else Console(soft_wrap=True, width=160)


def _show_plan(console: Console, agenda: Agenda) -> None:
    shown = Table(title=f"{len(agenda.work)} runs", title_justify="left")
    for heading in ("study", "arm", "what it sets", "runs", "done"):
        shown.add_column(heading, justify="right" if heading in ("runs", "done") else "left", overflow="fold")
    for study in agenda.studies:
        for arm in study.arms:
            work = agenda.of(study, arm.name)
            settings = ", ".join(f"{key} {value}" for key, value in flat(arm.fields))
            done = sum(one.done for one in work)
            shown.add_row(study.name, arm.name, settings, str(len(work)), str(done))
    console.print(shown)


def _estimate(
    console: Console, asked: Ablation, agenda: Agenda, pending: list[Work], at_a_time: int, stop: Stop
) -> bool:
    with console.status("Trying out a few steps …"):
        runs = [work.run for work in pending]
        costs = find_costs(runs, _task(asked, agenda, pending[0]), stop)
    if costs is None:
        return False
    words = in_words(runs, costs, at_a_time)
    console.print(f"{len(pending)} of {len(agenda.work)} runs to do: {words}", highlight=False)
    return True


def _run_all(
    console: Console, asked: Ablation, agenda: Agenda, pending: list[Work], at_a_time: int, stop: Stop
) -> bool:
    console.print(f"Logs of the runs: {asked.folder / 'logs'}", highlight=False, markup=False)
    tasks = [_task(asked, agenda, work) for work in pending]
    with Counting(console, "runs", "runs", len(pending)) as counting:
        for task, finished in carry_out(tasks, at_a_time, stop):
            if not finished:
                return False
            counting.add(1)
            console.print(f"done: {task.runs[0][0]}", highlight=False, markup=False)
    return not stop.requested or counting.done == len(pending)


def _task(asked: Ablation, agenda: Agenda, work: Work) -> Task:
    run = work.run
    assert run.recipe.data is not None
    values: dict[str, Any] = plain_values(dataclasses.asdict(run.recipe))
    return Task(
        log=asked.folder / "logs" / f"{run.name}.log",
        runs=((str(run.folder), values),),
        data=run.recipe.data,
        test=None if work.how is None else run.test or agenda.test_data,
        measuring={} if work.how is None else dataclasses.asdict(work.how),
        nice=asked.nice,
    )
