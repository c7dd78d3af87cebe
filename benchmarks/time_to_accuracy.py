"""Accuracy against minutes of training: published I-JEPA, our recipe, our MAE, our data2vec, an untrained encoder.

All have the same encoder, images and time, on this machine. Each run is fitted to the time and keeps checkpoints,
which are then probed. If stopped, the same command continues.

    python benchmarks/time_to_accuracy.py --data cifar10 --image_size 32 --patch_size 4 --chapter studies/time-cifar10
"""

import argparse
import csv
import dataclasses
import itertools
import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import announce_machine, describe_machine
from rich.console import Console
from rich.markdown import Markdown

from flexpredict import pretraining
from flexpredict.data.sources.derived import Part, named_part
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import open_source
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.probing import run_probe
from flexpredict.files import write_text_atomically
from flexpredict.model.encoder import Encoder
from flexpredict.runs.metrics import read_records
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.extraction import Extraction
from flexpredict.settings.masking import Masking
from flexpredict.settings.optimizer import Optimizer
from flexpredict.settings.positions import Positions
from flexpredict.settings.probing import Probing
from flexpredict.settings.recipe import PredictorSize, Recipe
from flexpredict.settings.targets import Targets
from flexpredict.studies.ablations.chapters import as_markdown, write_chapter
from flexpredict.studies.ablations.summary import Estimate
from flexpredict.studies.analyses.opening import open_model
from flexpredict.studies.figures import COLORS, GRAY, drawing
from flexpredict.training.engine import launch
from flexpredict.training.plan import make_plan
from flexpredict.training.precision import default_precision
from flexpredict.training.recipe_parser import make_recipe
from flexpredict.training.rehearsal import Rehearsal
from flexpredict.training.time_limit import fit_to_time

PUBLISHED, OURS = "published I-JEPA", "ours"
LINEAR, KNN = "linear, 100 % labels", "20-NN"
HOLDOUT = 0.1


@dataclass(frozen=True)
class Point:
    """A probed checkpoint: training so far, and accuracy in percent."""

    minutes: float
    images: int
    linear: float
    knn: float


def contenders(ours: Recipe) -> dict[str, Recipe]:
    """Recipes with the encoder, batch and images of ours."""
    sincos = Positions("sincos")
    others = dataclasses.replace(ours, positions=sincos, targets=Targets(), masking=Masking(), scale="published")
    published = dataclasses.replace(others, method="ijepa", optimizer=Optimizer(), augmentation="ijepa")
    mae = Optimizer(betas=(0.9, 0.95), weight_decay=0.05, final_weight_decay=0.05)
    return {
        PUBLISHED: published,
        OURS: ours,
        "MAE": dataclasses.replace(others, method="mae", optimizer=mae),
        "data2vec": dataclasses.replace(others, method="data2vec", predictor=PredictorSize(), optimizer=Optimizer()),
    }


def main() -> None:
    options = _options()
    console = announce_machine()
    test = options.test or named_part(options.data, Part(0.0, HOLDOUT))
    data = options.data if options.test else named_part(options.data, Part(HOLDOUT, 1.0))
    source, asked = open_source(data), open_source(test)
    given = {name: value for name in ("image_size", "patch_size") if (value := getattr(options, name)) is not None}
    curves: dict[str, list[list[Point]]] = {}
    for seed in range(options.seeds):
        ours = make_recipe({"data": data, "seed": seed, **given}, options.config)
        for name, recipe in contenders(ours).items():
            folder = RunFolder(options.out / f"{name.replace(' ', '-')}-{seed}")
            console.print(f"{name}, seed {seed}", highlight=False)
            if not train(recipe, folder, source, options.minutes, options.points):
                raise KeyboardInterrupt
            curves.setdefault(name, []).append(list(points(folder, recipe, source, asked)))
    tested = f"{len(asked):,} {'test' if options.test else 'validation'} images: {asked.name}"
    table = write(options.out, curves, tested)
    console.print(Markdown(table))
    console.print(f"Written: {options.out}/points.csv, figure.png, machine.json", highlight=False)
    if options.chapter is not None:
        write_page(options.chapter, options.out, table, tested, RunFolder(options.out / f"{OURS}-0"))


def train(recipe: Recipe, folder: RunFolder, source: ImageSource, minutes: float, kept: int) -> bool:
    """Train for this time, or continue an earlier run. Returns whether the run is finished."""
    quiet = Console(quiet=True)
    if folder.config.is_file():
        recipe = make_recipe(folder.load_config())
        return pretraining.run(recipe, folder.path, resume=True, source=source, console=quiet).finished
    recipe = dataclasses.replace(
        recipe, minutes=minutes, precision=recipe.precision or default_precision(recipe.accelerator)
    )
    fabric = launch(recipe)
    plan = make_plan(recipe, source, fabric.device, fabric.world_size)
    fitted = fit_to_time(recipe, Rehearsal(fabric, plan, source, plan.build_model(), None, folder.rehearsal))
    if fitted is None:
        return False
    settled = fitted.plan.recipe
    assert settled.epochs
    settled = dataclasses.replace(settled, keep_every=settled.epochs / kept)
    return pretraining.run(settled, folder.path, source=source, console=quiet).finished


def points(folder: RunFolder, recipe: Recipe, train: ImageSource, test: ImageSource) -> Iterator[Point]:
    """Probes of the untrained encoder and of every kept checkpoint, each made once and saved."""
    path = folder.path / "points.json"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    batch = make_recipe(folder.load_config()).batch_size
    assert batch
    steps = sorted(int(one.name.removeprefix("step-")) for one in folder.checkpoints.glob("step-*"))
    for step in (0, *steps):
        if str(step) not in known:
            found = measure(_encoder(folder, recipe, train, step), train, test)
            known[str(step)] = dataclasses.asdict(Point(minutes_until(folder, step, batch), step * batch, *found))
            write_text_atomically(path, json.dumps(known, indent=1) + "\n")
        yield Point(**known[str(step)])


def _encoder(folder: RunFolder, recipe: Recipe, source: ImageSource, step: int) -> Encoder:
    if step:
        return open_model(folder.path, step).model.saved_encoder[0]
    fabric = launch(dataclasses.replace(recipe, precision="32-true"))
    return make_plan(recipe, source, fabric.device, fabric.world_size).build_model().saved_encoder[0]


def minutes_until(folder: RunFolder, step: int, batch: int) -> float:
    """Minutes of training, without checkpoints, probes and interruptions."""
    seconds, before = 0.0, 0
    for record in read_records(folder.metrics):
        if record["step"] > step:
            break
        seconds += (record["step"] - before) * batch / record["images_per_second"]
        before = record["step"]
    return seconds / 60


def measure(encoder: Encoder, train: ImageSource, test: ImageSource) -> tuple[float, float]:
    """Linear probe with all labels, and k-NN, in percent."""
    frozen = ViTEncoder(encoder.eval(), "checkpoint", "target encoder")
    numbers = run_probe(frozen, train, test, Extraction(), Probing(labels=[1.0])).numbers
    return numbers[LINEAR], numbers[KNN]


def mean_curve(seeds: list[list[Point]]) -> list[Point]:
    """Mean over seeds for each checkpoint that all seeds have."""
    together = zip(*seeds, strict=False)
    return [
        Point(*(sum(values) / len(seeds) for values in zip(*map(dataclasses.astuple, same), strict=True)))
        for same in together
    ]


def minutes_to_reach(curve: list[Point], accuracy: float) -> float | None:
    """Minutes at which the curve, linearly interpolated, first reaches the accuracy; None if never."""
    for before, after in itertools.pairwise(curve):
        if after.linear >= accuracy:
            if before.linear >= accuracy:
                return before.minutes
            share = (accuracy - before.linear) / (after.linear - before.linear)
            return before.minutes + share * (after.minutes - before.minutes)
    return None


def write(out: Path, curves: dict[str, list[list[Point]]], tested: str) -> str:
    """Write CSV and figure; returns a table with the time of each to the published algorithm's final accuracy."""
    with (out / "points.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["contender", "seed", *(field.name for field in dataclasses.fields(Point))])
        for name, seeds in curves.items():
            writer.writerows(
                [name, seed, *dataclasses.astuple(point)] for seed, curve in enumerate(seeds) for point in curve
            )
    means = {name: mean_curve(seeds) for name, seeds in curves.items()}
    start, goal = means[PUBLISHED][0], means[PUBLISHED][-1]
    machine = {"machine": describe_machine(), "minutes to the goal": goal.linear}
    write_text_atomically(out / "machine.json", json.dumps(machine, indent=2) + "\n")
    with drawing(out / "figure.png", 7.0, 4.2) as figure:
        axes = figure.add_subplot()
        for (name, curve), color in zip(means.items(), COLORS, strict=False):
            axes.plot([p.minutes for p in curve], [p.linear for p in curve], "o-", color=color, label=name)
        axes.axhline(start.linear, color=GRAY, linestyle=":", label="untrained")
        axes.set(xlabel="minutes of training", ylabel="linear probe, all labels (%)")
        axes.set_title(tested, fontsize=8)
        axes.legend()
    lines = [["", "minutes", "images", "linear (%)", "20-NN (%)", f"minutes to {goal.linear:.1f} %", "ratio"]]
    lines.append(["untrained", "0", "0", f"{start.linear:.1f}", f"{start.knn:.1f}", "", ""])
    for name, curve in means.items():
        last, reached = curve[-1], minutes_to_reach(curve, goal.linear)
        when, ratio = ("never", "") if reached is None else (f"{reached:.1f}", f"{reached / goal.minutes:.2f}")
        linear, knn = (
            Estimate.of([getattr(seed[-1], field) for seed in curves[name]]).in_words() for field in ("linear", "knn")
        )
        lines.append([name, f"{last.minutes:.1f}", f"{last.images:,.0f}", linear, knn, when, ratio])
    return as_markdown(lines)


def write_page(chapter: Path, out: Path, table: str, tested: str, run: RunFolder) -> None:
    """Write a chapter with the table and the figure."""
    chapter.mkdir(parents=True, exist_ok=True)
    for name in ("figure.png", "points.csv"):
        shutil.copyfile(out / name, chapter / name)
    title = "How much accuracy for how many minutes of training?"
    notes = (
        f"All have the same encoder, images and time; each checkpoint is probed on {tested}. ± is half the 95 % "
        "interval over seeds. Ratio: minutes to the published algorithm's final accuracy, over the minutes it took."
    )
    body = f"{table}\n![{title}](figure.png)\n\n[points.csv](points.csv) has the points of each seed."
    environment = json.loads(run.environment.read_text(encoding="utf-8"))
    write_chapter(chapter, title, body, environment, f"python {shlex.join(sys.argv)}", notes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="scenes:10000,size=64", help="labeled images")
    parser.add_argument("--test", default=None, help="images to test on (default: a tenth is held out)")
    parser.add_argument("--config", default="laptop", help="our recipe")
    parser.add_argument("--image_size", default=None, help="instead of the recipe's")
    parser.add_argument("--patch_size", type=int, default=None, help="instead of the recipe's")
    parser.add_argument("--minutes", type=float, default=20.0, help="of each run")
    parser.add_argument("--points", type=int, default=8, help="checkpoints of each run that are probed")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/time_to_accuracy"))
    parser.add_argument("--chapter", type=Path, default=None, help="folder for a page with table and figure")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Stopped; the same command continues.")
