"""`flexpredict ablate`: plan the runs of a study, carry them out, measure them, and write tables and figures."""

from collections.abc import Sequence
from contextlib import closing, nullcontext

import torch
from rich.console import Console
from rich.table import Table

from flexpredict.errors import UserError
from flexpredict.progress import Counting
from flexpredict.runs.claim import only_writer
from flexpredict.runs.run_record import flat
from flexpredict.showing import say
from flexpredict.studies.ablations.concluding import conclude
from flexpredict.studies.ablations.costs import find_costs, in_words
from flexpredict.studies.ablations.planning import Ablation, Agenda, make_agenda
from flexpredict.studies.ablations.processes import Task, carry_out, usual_jobs
from flexpredict.studies.ablations.runs import StudyRun, hardware, task_of
from flexpredict.training.signals import Stop, stop_on_signal


def ablate(asked: Ablation, console: Console | None = None) -> bool:
    """Returns whether everything was carried out: False for a dry run, or if one of the runs was stopped.

    Ctrl-C, SIGTERM and SIGUSR1 raise KeyboardInterrupt after training is saved and all processes have ended.
    """
    console = console or _console()
    if torch.distributed.is_torchelastic_launched():
        raise UserError("Start ablate without torchrun; each of its runs starts the processes for its `devices`.")
    agenda = make_agenda(asked, console)
    pending = [run for run in agenda.work.values() if not run.done]
    _show_plan(console, agenda)
    for warning in agenda.warnings:
        say(console, f"WARNING: {warning}")
    at_a_time = min(asked.jobs or usual_jobs(hardware(asked.base)[0]), max(1, len(pending)))
    tasks = [task_of([run], asked.folder / "logs", asked.nice) for run in pending]
    with stop_on_signal() as stop, nullcontext() if asked.dry_run else only_writer(asked.folder):
        if pending and not _estimate(console, pending, tasks[0], at_a_time, stop):
            say(console, "Stopped; nothing was started.")
            return False
        if asked.dry_run:
            say(console, "A dry run: nothing was started.")
            return False
        if pending:
            say(console, f"Logs of the runs: {asked.folder / 'logs'}")
        if not carry_out_runs(console, pending, tasks, at_a_time, stop):
            say(console, "Stopped; what is done is kept. Run the same command again to continue.")
            if stop.requested:
                raise stop.interruption()
            return False
        for study in agenda.studies:
            conclude(console, asked, agenda, study)
    return True


def carry_out_runs(
    console: Console, runs: Sequence[StudyRun], tasks: Sequence[Task], at_a_time: int, stop: Stop
) -> bool:
    """Carry out the tasks of these runs and show progress. Returns whether all are done; False if stopped."""
    by_folder = {str(run.folder): run for run in runs}
    reached = {folder: run.steps - run.steps_left for folder, run in by_folder.items()}
    ended = 0
    with Counting(console, "runs", "steps", sum(run.steps for run in runs), sum(reached.values())) as counting:

        def look(going: Sequence[Task]) -> None:
            runs_of = [[by_folder[one.folder] for one in task.runs] for task in going]
            reached.update({str(run.folder): run.logged_step() for own in runs_of for run in own if run.steps})
            # Each process is at the first of its runs that is not yet trained and measured.
            left = [[run for run in own if reached[str(run.folder)] < run.steps or run.unmeasured] for own in runs_of]
            measuring = [own[0].name for own in left if own and reached[str(own[0].folder)] == own[0].steps]
            note = f"measuring {', '.join(measuring)}" if measuring else "training"
            counting.add(max(0, sum(reached.values()) - counting.done), note)

        # Closing ends all processes, even if an interruption is raised here and not inside the generator.
        with closing(carry_out(tasks, at_a_time, stop, look)) as carried_out:
            for task, finished in carried_out:
                if not finished:
                    return False
                ended += 1
                for run in (by_folder[one.folder] for one in task.runs):
                    reached[str(run.folder)] = run.steps
                    say(console, f"done: {run.name}")
                    for warning in run.warnings():
                        say(console, f"Warning: {run.name}: {warning}")
    return ended == len(tasks)


def _console() -> Console:
    """Wide enough for the tables if output goes to a file, for which rich assumes 80 columns."""
    return Console(soft_wrap=True) if Console().is_terminal else Console(soft_wrap=True, width=160)


def _show_plan(console: Console, agenda: Agenda) -> None:
    shown = Table(title=f"{len(agenda.work)} runs", title_justify="left")
    for heading in ("study", "arm", "what it sets", "runs", "done"):
        shown.add_column(heading, justify="right" if heading in ("runs", "done") else "left", overflow="fold")
    for study in agenda.studies:
        for arm, runs in zip(study.arms, agenda.of(study).values(), strict=True):
            settings = ", ".join(f"{key} {value}" for key, value in flat(arm.fields))
            shown.add_row(study.name, arm.name, settings, str(len(runs)), str(sum(run.done for run in runs)))
    console.print(shown)


def _estimate(console: Console, pending: list[StudyRun], task: Task, at_a_time: int, stop: Stop) -> bool:
    with console.status("Trying out a few steps …"):
        costs = find_costs(pending, task, stop)
    if costs is None:
        return False
    say(console, f"{len(pending)} runs to do: {in_words(pending, costs, at_a_time)}")
    return True
