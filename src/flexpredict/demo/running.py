"""Runs the demo: a study of two arms, with an untrained encoder and raw pixels for comparison."""

import hashlib
import json
import math
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console

from flexpredict import __version__
from flexpredict.cores import cores
from flexpredict.demo.recipe import ARMS, PROTOCOL, RECIPE, SEEDS, STEPS, Protocol, recipe_values
from flexpredict.demo.table import PIXELS, ROWS, UNTRAINED, Comparison, print_comparison
from flexpredict.errors import UserError, some_of
from flexpredict.files import write_json_atomically
from flexpredict.interruption import interrupt_on_sigterm
from flexpredict.progress import duration
from flexpredict.runs.claim import only_writer
from flexpredict.runs.run_folder import versions
from flexpredict.same_settings import changed_settings, read_settings
from flexpredict.studies.ablations.ablating import carry_out_runs
from flexpredict.studies.ablations.measuring import Measuring, undrawn_scenes
from flexpredict.studies.ablations.processes import Baseline
from flexpredict.studies.ablations.runs import StudyRun, TestImages, plan_of, task_of
from flexpredict.training.recipe_parser import make_recipe
from flexpredict.training.signals import Stop

_SETTINGS = "demo.json"
_SECONDS = "seconds.json"  # seconds that the first seed took
_LIBRARIES = ("torch", "torchvision", "timm", "lightning-fabric", "numpy")
_BASELINES: dict[str, Baseline] = {UNTRAINED: "untrained", PIXELS: "raw pixels"}


def run_demo(
    out: Path,
    *,
    steps: int = STEPS,
    seeds: Sequence[int] = tuple(range(SEEDS)),
    minutes: float | None = None,
    overwrite: bool = False,
    protocol: Protocol = PROTOCOL,
    console: Console | None = None,
) -> dict[str, Any]:
    """Pre-train and measure all that is not done yet, print the table, and write results.json; returns its content.

    Ctrl-C and SIGTERM raise KeyboardInterrupt after training is saved and all processes have ended.

    Args:
        out: folder of the demo. An earlier demo in it continues, unless its settings or the software have changed.
        steps: of each run.
        seeds: each arm is run with each seed.
        minutes: run only as many seeds as fit into this time, and at least the first.
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
    results = out / "results.json"
    if minutes is not None and results.is_file():
        measured = json.loads(results.read_text(encoding="utf-8"))["seeds"]
        if measured[:1] == list(seeds[:1]):  # the seeds that there was time for
            seeds = measured
    runs = plan_runs(out, steps, seeds, protocol)
    done_before = all(run.done for own in runs.values() for run in own)
    if not done_before:
        with only_writer(out), interrupt_on_sigterm():
            results.unlink(missing_ok=True)  # its results are of fewer seeds
            if minutes is not None and len(seeds) > 1:
                first = plan_runs(out, steps, seeds[:1], protocol)
                spent = _carry_out_timed(console, first, out, str(seeds[0]), started)
                fitting = _seeds_in_time(60 * minutes, spent)
                if fitting < len(seeds):
                    console.print(
                        f"The first seed took {duration(spent)}, so there is time for {fitting} of {len(seeds)}; "
                        f"`flexpredict demo --seeds {len(seeds)}` adds the others.",
                        highlight=False,
                    )
                    seeds = seeds[:fitting]
                    runs = plan_runs(out, steps, seeds, protocol)
            if not all(run.done for own in runs.values() for run in own):
                _carry_out(console, runs, out)
    comparison = Comparison({row: [run.numbers() or {} for run in own] for row, own in runs.items()})
    saved = _saved(results, seeds)
    if done_before:
        when = f", on {saved['date']}" if saved else ""
        console.print(f"This demo is finished{when}; `flexpredict demo --overwrite` starts over.", highlight=False)
    if saved is None:
        saved = {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "command": shlex.join(sys.argv),
            "seconds": round(time.monotonic() - started, 1),
            "seeds": list(seeds),
            **comparison.describe(),
            **settings,
        }
        write_json_atomically(results, saved)
    print_comparison(console, comparison)
    reports = ", ".join(str(run.folder / "report.html") for own in runs.values() for run in own if run.steps)
    took = "" if done_before else f"Took {duration(time.monotonic() - started)}. "
    console.print(f"{took}Results: {results} · reports: {reports}", highlight=False)
    return saved


def plan_runs(out: Path, steps: int, seeds: Sequence[int], protocol: Protocol) -> dict[str, list[StudyRun]]:
    """For each row of the table, a run for each seed; untrained encoders have only one."""
    train = undrawn_scenes(protocol.train_data)
    test = TestImages(protocol.test_data, undrawn_scenes(protocol.test_data))
    how = Measuring(subsets=protocol.label_subsets, images=protocol.location_images)

    def run(row: str, seed: int) -> StudyRun:
        arm = row if row in ARMS else next(iter(ARMS))
        plan = plan_of(make_recipe(recipe_values(arm, steps, seed, protocol)), train)
        folder = out / "runs" / f"{row.replace(' ', '-')}-seed={seed}"
        return StudyRun(folder, plan, train, test, how, _BASELINES.get(row))

    return {row: [run(row, seed) for seed in (seeds if row in ARMS else seeds[:1])] for row in ROWS}


def _carry_out_timed(
    console: Console, runs: dict[str, list[StudyRun]], out: Path, seed: str, started: float
) -> float:
    """The seconds that the runs of this seed took, including those before interruptions."""
    record = out / _SECONDS
    known: dict[str, float] = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    if seed in known and all(run.done for own in runs.values() for run in own):
        return known[seed]
    try:
        _carry_out(console, runs, out)
    finally:
        known[seed] = known.get(seed, 0.0) + time.monotonic() - started
        write_json_atomically(record, known)
    return known[seed]


def _seeds_in_time(seconds: float, first: float) -> int:
    """Number of seeds that fit into `seconds`. first: seconds that the first seed took.

    Its runs took turns on the cores; after that, every core does one run in the time of one such round."""
    one_round = first / math.ceil(len(ARMS) / cores())
    more_runs = math.floor((seconds - first) / one_round) * cores()
    return 1 + max(0, more_runs // len(ARMS))


def _carry_out(console: Console, runs: dict[str, list[StudyRun]], out: Path) -> None:
    """Carry out all runs that are not done, as many at a time as there are cores.

    Two processes of one thread need at most three quarters of the time that one process of two threads needs for both
    encoders, and suffer less from other processes on the machine."""
    every = [run for own in runs.values() for run in own]
    left = [run for run in every if not run.done]
    begun = [run for run in left if run.begun]
    if begun or len(left) < len(every):
        resumed = "".join(f", {run.name} continues from its last checkpoint" for run in begun)
        console.print(
            f"Continuing: {len(every) - len(left)} of {len(every)} parts are done{resumed}.", highlight=False
        )
    console.print(
        f"{len(left)} encoders to measure, {sum(run.steps > 0 for run in left)} of them after pre-training, "
        f"{sum(run.steps for run in left):,} steps in all. If this is interrupted, the same command continues it.",
        highlight=False,
    )
    # Arms seed by seed; untrained encoders are measured in the first processes, which have drawn the scenes.
    arms = [run for pair in zip(*(runs[arm] for arm in ARMS), strict=True) for run in pair if run in left]
    others = [run for row in _BASELINES for run in runs[row] if run in left]
    groups = [[run for run in pair if run is not None] for pair in zip_longest(arms, others)]
    tasks = [task_of(group, out / "logs") for group in groups]
    if not carry_out_runs(console, left, tasks, min(cores(), len(tasks)), Stop()):
        raise UserError("One of the runs was stopped. What is done is kept: run the same command again to continue.")


def _saved(results: Path, seeds: Sequence[int]) -> dict[str, Any] | None:
    """The content of results.json, or None if it is not of these seeds."""
    saved: dict[str, Any] = json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {}
    return saved if saved.get("seeds") == list(seeds) else None


def demo_settings(steps: int, protocol: Protocol) -> dict[str, Any]:
    """All settings that the numbers of a seed depend on, as plain values."""
    settings = {"steps": steps, "recipe": RECIPE, "arms": ARMS, "protocol": protocol.describe()}
    plain: dict[str, Any] = json.loads(json.dumps({**settings, "software": _software()}))
    return plain


def open_folder(out: Path, settings: dict[str, Any], overwrite: bool, console: Console) -> None:
    """Make `out` the folder of a demo with these settings. Nothing is deleted."""
    record = out / _SETTINGS
    if out.exists() and (out.is_file() or any(out.iterdir())):
        if not record.is_file():
            raise UserError(
                f"out={out} has files that are not of a demo. Name a folder that is empty or does not exist."
            )
        reason = "as asked" if overwrite else _reason_to_start_over(record, settings)
        if not reason:
            return
        with only_writer(out):
            kept = _move_aside(out)
        console.print(f"Starting over, {reason}. The earlier demo is kept in {kept}.", highlight=False, markup=False)
    write_json_atomically(record, settings)


def _reason_to_start_over(record: Path, settings: dict[str, Any]) -> str:
    """The reason; empty if the demo was started with the same settings."""
    recorded = read_settings(record, "Start over with overwrite=True.")
    if recorded == settings:
        return ""
    changes = changed_settings(recorded, settings) or ["settings that no longer exist"]
    return f"because the demo in {record.parent} was started with {some_of(changes)}"


def _move_aside(folder: Path) -> Path:
    folder = folder.resolve()
    number = 1
    while (kept := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    try:
        return folder.rename(kept)
    except OSError as error:
        raise UserError(f"{folder} cannot be renamed to {kept}: {error.strerror}. Name another `out`.") from error


def _software() -> dict[str, str]:
    """Versions, and a digest of this package's code, which may change while its version stays."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    software = {"flexpredict": __version__, "code": digest.hexdigest(), "python": platform.python_version()}
    return {**software, **versions(_LIBRARIES)}
