"""Effect of the noise level on ‖A‖ and ‖m̃‖ (the paper's Figure 4), from the logs of several runs."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

from flexpredict.errors import UserError, printable
from flexpredict.files import write_csv_atomically
from flexpredict.runs.metrics import read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.studies.ablations.measuring import NORMS
from flexpredict.studies.ablations.summary import Estimate
from flexpredict.studies.analyses.opening import run_config
from flexpredict.studies.analyses.output import Analysis, places_for
from flexpredict.studies.figures import COLORS, drawing

_IN_THE_PAPER = {"A_norm": "falls", "mask_token_norm": "rises"}


@dataclass(frozen=True)
class LoggedRun:
    """Norms over the steps of one run, and its first noise level."""

    name: str
    level: float
    steps: tuple[float, ...]
    norms: dict[str, tuple[float, ...]]  # A_norm and mask_token_norm, one number for each step


@dataclass(frozen=True)
class Level:
    """Final norms of all runs at one noise level."""

    noise_std: float
    runs: int
    norms: dict[str, Estimate]


def logged_run(name: str | Path) -> LoggedRun:
    """Reads the norms from metrics.jsonl of a run folder."""
    folder = RunFolder(Path(name).expanduser())
    if not folder.path.is_dir():
        raise UserError(f"There is no run folder '{printable(str(name))}' (looked for in {Path.cwd()}).")
    run_config(folder)
    records = [record for record in read_records(folder.metrics) if all(key in record for key in NORMS)]
    if not records:
        raise UserError(f"{folder.metrics} has no values of ‖A‖ and ‖m̃‖. Give runs that have trained for a while.")
    return LoggedRun(
        str(name),
        _level(records[0]),
        tuple(record["step"] for record in records),
        {key: tuple(record[key] for record in records) for key in NORMS},
    )


def by_level(runs: Sequence[LoggedRun]) -> list[Level]:
    """Groups runs by noise level, in ascending order."""
    groups: dict[float, list[LoggedRun]] = defaultdict(list)
    for run in runs:
        groups[run.level].append(run)
    return [
        Level(level, len(same), {key: Estimate.of([run.norms[key][-1] for run in same]) for key in NORMS})
        for level, same in sorted(groups.items())
    ]


def draw_norms(names: Sequence[str | Path], out: Path) -> Analysis:
    """Write norms.png and norms.csv (a row for each logged step of each run)."""
    runs = [logged_run(name) for name in names]
    levels = by_level(runs)
    picture, data = places_for(out, "norms", "csv")
    write_csv_atomically(
        data,
        [
            {"run": run.name, "noise_std": run.level, "step": step, **{key: run.norms[key][at] for key in NORMS}}
            for run in runs
            for at, step in enumerate(run.steps)
        ],
    )
    _draw(picture, runs, levels)
    lines = [_trend(levels, key) for key in NORMS] if len(levels) > 1 else ["One noise level: nothing to compare."]
    last_steps = sorted({run.steps[-1] for run in runs})
    if len(last_steps) > 1:
        lines.append(f"These runs ended at different steps ({', '.join(f'{step:g}' for step in last_steps)}).")
    table = [
        {
            "noise_std": f"{level.noise_std:.4g}",
            "runs": str(level.runs),
            **{f"final {NORMS[key]}": level.norms[key].in_words(digits=3) for key in NORMS},
        }
        for level in levels
    ]
    return Analysis(picture, data, tuple(lines), tuple(table))


def _level(first: dict[str, Any]) -> float:
    """The noise_std of the recipe: logged levels are multiplied by the factor predicted from the context, if any."""
    level = first.get("noise_std", 0.0) / first.get("noise_scale", 1.0)
    return float(f"{level:.4g}")  # Rounding in a log must not split a level in two.


def _trend(levels: Sequence[Level], key: str) -> str:
    """Describes the change from least to most noise: as in the paper or not, and whether it may be chance."""
    first, last = levels[0].norms[key], levels[-1].norms[key]
    seen = "falls" if last.mean < first.mean else "rises" if last.mean > first.mean else "stays as it is"
    verdict = "as in the paper" if seen == _IN_THE_PAPER[key] else f"while in the paper it {_IN_THE_PAPER[key]}"
    if first.half is None or last.half is None:
        certainty = "With one run at a level this may be chance."
    elif abs(last.mean - first.mean) > math.hypot(first.half, last.half):
        certainty = "The change is larger than its 95 % interval."
    else:
        certainty = "But the change is within its 95 % interval, so it may be chance."
    course = ", ".join(f"{level.norms[key].mean:.3g} at {level.noise_std:.3g}" for level in levels)
    return f"With more noise {NORMS[key]} {seen} ({course}), {verdict}. {certainty}"


def _draw(path: Path, runs: Sequence[LoggedRun], levels: Sequence[Level]) -> None:
    shades = matplotlib.colormaps["viridis"]
    colors = {level.noise_std: shades(0.9 * at / max(1, len(levels) - 1)) for at, level in enumerate(levels)}
    with drawing(path, 8.6, 6.2) as figure:
        axes = figure.subplots(2, 2)
        for row, (key, symbol) in enumerate(NORMS.items()):
            final, course = axes[row]
            means = [level.norms[key].mean for level in levels]
            bars = [level.norms[key].half or 0.0 for level in levels]
            final.errorbar(list(colors), means, yerr=bars, fmt="o-", color=COLORS[row], capsize=4)
            title = f"{symbol} against the noise level"
            final.set(xlabel="noise_std", ylabel=f"{symbol} at the end", title=title)
            for run in runs:
                label = f"noise_std {run.level:.3g}"
                label = "" if label in course.get_legend_handles_labels()[1] else label
                course.plot(run.steps, run.norms[key], color=colors[run.level], label=label, linewidth=1.3)
            course.set(xlabel="step", ylabel=symbol, title=f"{symbol} over training")
        axes[0, 1].legend()
        many = any(level.runs > 1 for level in levels)
        note = "bars: 95 % interval of the mean over runs (Student's t)" if many else "one run at each level"
        figure.suptitle(note, fontsize=10)
