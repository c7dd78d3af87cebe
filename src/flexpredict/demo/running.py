"""The demo from beginning to end."""

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console

from flexpredict.demo.folder import demo_settings, open_folder
from flexpredict.demo.recipe import PROTOCOL, SEEDS, STEPS, Protocol
from flexpredict.demo.table import Comparison, print_comparison
from flexpredict.demo.tasks import ROWS, Task, plan_tasks
from flexpredict.demo.workers import carry_out
from flexpredict.errors import UserError
from flexpredict.files import write_text_atomically
from flexpredict.interruption import interrupt_on_sigterm
from flexpredict.progress import Counting, duration


def run_demo(
    out: Path,
    *,
    steps: int = STEPS,
    seeds: Sequence[int] = tuple(range(SEEDS)),
    overwrite: bool = False,
    protocol: Protocol = PROTOCOL,
    console: Console | None = None,
) -> dict[str, Any]:
    """Pre-train and measure what is not done yet, print the table, and write results.json; returns what that holds.

    Ctrl-C and SIGTERM raise KeyboardInterrupt, after training was saved and all processes have ended.

    Args:
        out: folder of the demo. An earlier demo in it goes on, unless its settings or the software were others.
        steps: of each run.
        seeds: each arm is run with each of them.
        overwrite: start over in any case. The earlier demo is kept beside `out`.
        protocol: scenes and measures.
        console: where to print.
    """
    console = console or Console(soft_wrap=True)
    if steps < 1:
        raise UserError(f"steps={steps} is too small. Use at least 1.")
    if not seeds:
        raise UserError("There are no seeds; use at least 1.")
    started = time.monotonic()
    settings = demo_settings(steps, protocol)
    open_folder(out, settings, overwrite, console)
    tasks = plan_tasks(out, steps, seeds, protocol)
    left = [task for task in tasks if not task.done]
    results = out / "results.json"
    if left:
        results.unlink(missing_ok=True)  # of fewer seeds
        _announce(console, tasks, left)
        with interrupt_on_sigterm(), _progress(console, tasks) as look:
            carry_out(left, protocol, look)
    comparison = Comparison({row: [task.numbers() for task in tasks if task.row == row] for row in ROWS})
    saved = _saved(results, seeds)
    if saved is None:
        saved = {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "command": shlex.join(sys.argv),
            "seconds": round(time.monotonic() - started, 1),
            "seeds": list(seeds),
            **comparison.describe(),
            **settings,
        }
        write_text_atomically(results, json.dumps(saved, indent=2) + "\n")
    else:
        console.print(f"All was done before, on {saved['date']}; --overwrite starts over.", highlight=False)
    print_comparison(console, comparison)
    reports = ", ".join(str(task.run_folder / "report.html") for task in tasks if task.steps)
    took = f"Took {duration(time.monotonic() - started)}. " if left else ""
    console.print(f"{took}Results: {results} · reports: {reports}", highlight=False)
    return saved


def _announce(console: Console, tasks: Sequence[Task], left: Sequence[Task]) -> None:
    done, begun = len(tasks) - len(left), [task for task in left if task.begun]
    if done or begun:
        resumed = "".join(f", {task} goes on from its last checkpoint" for task in begun)
        console.print(f"Continuing: {done} of {len(tasks)} parts are done{resumed}.", highlight=False)
    steps = sum(task.steps for task in left)
    console.print(
        f"{len(left)} encoders to measure, {sum(task.steps > 0 for task in left)} of them after pre-training, "
        f"{steps:,} steps in all. If this is interrupted, the same command goes on.",
        highlight=False,
    )


@contextmanager
def _progress(console: Console, tasks: Sequence[Task]) -> Iterator[Callable[[], None]]:
    """A function that shows how far all tasks are, as their folders tell, and what training warned of."""
    going = [task for task in tasks if not task.done]
    done = sum(task.work_done() for task in tasks)
    with Counting(console, "demo", "images", sum(task.work for task in tasks), done) as counting:

        def look() -> None:
            counting.add(max(0, sum(task.work_done() for task in tasks) - counting.done))
            for task in [task for task in going if task.done]:
                going.remove(task)
                console.print(f"done: {task}", highlight=False)
                for warning in task.warnings():
                    console.print(f"[yellow]Warning:[/yellow] {task}: {warning}", highlight=False)

        yield look


def _saved(results: Path, seeds: Sequence[int]) -> dict[str, Any] | None:
    """What results.json holds, if it is of these seeds."""
    saved: dict[str, Any] = json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {}
    return saved if saved.get("seeds") == list(seeds) else None
