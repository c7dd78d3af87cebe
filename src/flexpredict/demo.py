"""`flexpredict demo`: does it work? Sin-cos and stochastic positions against an untrained encoder, in six minutes."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from flexpredict.data.label_subsets import label_subset
from flexpredict.data.scenes.scenes import draw_scenes, nearest_bins
from flexpredict.data.sources.opening import ArraySource
from flexpredict.encoders.frozen import ViTEncoder
from flexpredict.evaluation.knn import knn_accuracy
from flexpredict.evaluation.linear import linear_probe
from flexpredict.features.extraction import extract_features
from flexpredict.files import write_text_atomically
from flexpredict.model.encoder import Encoder
from flexpredict.pretraining import run
from flexpredict.progress import duration
from flexpredict.runs.encoder_file import load_encoder
from flexpredict.settings.recipe import Recipe
from flexpredict.training.plan import make_plan
from flexpredict.training.recipe_parser import make_recipe

TRAIN, TEST, SIZE = 10_000, 2_000, 64
FIRST_TEST = 10_000  # earlier scenes of the test split were looked at while the recipe was chosen
SUBSETS = 5  # label subsets over which the 1 % probe is averaged

# A small model, trained for some two minutes. What differs from the paper's recipe, and why:
RECIPE: dict[str, Any] = {
    "data": f"scenes:{TRAIN},size={SIZE}",
    "model": "vit_tiny_patch16_224",
    "model_options": {"embed_dim": 96, "depth": 4, "num_heads": 3},
    "image_size": SIZE,
    "patch_size": 16,  # 4x4 patches: many more images a second, which is what counts in two minutes
    "predictor": {"dim": 48, "depth": 2, "heads": 3},
    "augmentation": "ijepa",  # crops only: blur and greyscale would hide patterns from so small a model
    "batch_size": 64,
    "optimizer": {
        "lr": 1e-3,
        "start_lr": 0.1,
        "final_lr": 0.01,
        "final_weight_decay": 0.1,  # 0.4 belongs to hundreds of epochs
        "ema_momentum": 0.998,  # at 0.99 so small a model drifts towards features that tell only the place
    },
    "log_every": 20,
    "accelerator": "cpu",
    "devices": 1,
}
STEPS = 2_100
ARMS: dict[str, dict[str, Any]] = {
    "sin-cos": {"kind": "sincos"},
    "StoP": {"kind": "stochastic", "noise_to_signal": 0.2},
}

COLUMNS = {
    "linear_100": "linear, all labels",
    "linear_1": "linear, 1 % labels",
    "knn": "k-NN",
    "count": "counting",
    "distance": "nearest distance",
}


@dataclass
class LabelledScenes:
    """Scenes with the three things that are asked about them."""

    source: ArraySource
    classes: Tensor
    counts: Tensor
    distances: Tensor


def run_demo(out: Path, steps: int | None = None, seed: int = 0, console: Console | None = None) -> dict[str, Any]:
    """Pre-train both arms, evaluate both and an untrained encoder, print one table, save results.json."""
    console = console or Console(soft_wrap=True)
    started = time.monotonic()
    console.print(f"Drawing {TRAIN + TEST:,} scenes of {SIZE}x{SIZE} pixels …", highlight=False)
    train, test = labelled_scenes("train", TRAIN), labelled_scenes("test", TEST)
    results: dict[str, dict[str, float]] = {}
    epochs = (steps or STEPS) * RECIPE["batch_size"] / TRAIN
    optimizer = {**RECIPE["optimizer"], "warmup_epochs": epochs / 10}
    for name, positions in ARMS.items():
        recipe = make_recipe(
            {**RECIPE, "optimizer": optimizer, "epochs": epochs, "seed": seed, "positions": positions}
        )
        folder = out / name
        if not results:
            console.print("\n[bold]Untrained encoder[/bold]: the same network, never trained")
            results["untrained"] = evaluate(_untrained(recipe, train.source), train, test)
        console.print(f"\n[bold]{name}[/bold]")
        run(recipe, folder, overwrite=True, console=console, source=train.source)
        results[name] = evaluate(load_encoder(folder), train, test)
    seconds = time.monotonic() - started
    _print_table(console, results)
    saved = {
        "accuracy_percent": results,
        "protocol": {
            "encoder": "target encoder, average-pooled patches of the last layer, frozen",
            "train_images": TRAIN,
            "test_images": TEST,
            "first_test_scene": FIRST_TEST,
            "label_subsets_of_1_percent": SUBSETS,
            "steps": steps or STEPS,
            "seed": seed,
            "recipe": RECIPE,
            "arms": ARMS,
        },
        "seconds": round(seconds, 1),
    }
    write_text_atomically(out / "results.json", json.dumps(saved, indent=2) + "\n")
    console.print(
        f"\nTook {duration(seconds)}. Results: {out / 'results.json'} · runs: "
        + ", ".join(f"{out / name}/ (report.html, encoder.safetensors)" for name in ARMS),
        highlight=False,
    )
    return saved


def recipe_values(arm: str, steps: int, seed: int) -> dict[str, Any]:
    """The recipe of one arm, for so many steps."""
    epochs = steps * RECIPE["batch_size"] / TRAIN
    optimizer = {**RECIPE["optimizer"], "warmup_epochs": epochs / 10}
    return {**RECIPE, "optimizer": optimizer, "epochs": epochs, "seed": seed, "positions": ARMS[arm]}


def labelled_scenes(split: str, count: int) -> LabelledScenes:
    first = FIRST_TEST if split == "test" else 0
    drawn = draw_scenes(np.arange(first, first + count), size=SIZE, split=split)
    classes = torch.from_numpy(drawn.classes)
    return LabelledScenes(
        ArraySource(f"scenes ({split})", torch.from_numpy(drawn.images), labels=classes),
        classes,
        torch.from_numpy(drawn.counts),
        torch.from_numpy(nearest_bins(drawn.nearest)),
    )


def _untrained(recipe: Recipe, source: ArraySource) -> Encoder:
    plan = make_plan(recipe, source, torch.device("cpu"), world_size=1)
    return plan.build_model().saved_encoder[0]


def evaluate(encoder: Encoder, train: LabelledScenes, test: LabelledScenes) -> dict[str, float]:
    """Accuracies in per cent. Everything is fitted and chosen on training scenes."""
    frozen = ViTEncoder(encoder.eval(), "demo", "target encoder")
    known = extract_features(frozen, train.source).vectors
    asked = extract_features(frozen, test.source).vectors

    def probe(labels: Tensor, truth: Tensor, rows: Tensor | slice = slice(None)) -> float:
        return linear_probe(known[rows], labels[rows], asked, truth).accuracy

    subsets = [label_subset(train.classes, 0.01, seed) for seed in range(SUBSETS)]
    accuracies = {
        "linear_100": probe(train.classes, test.classes),
        "linear_1": sum(probe(train.classes, test.classes, rows) for rows in subsets) / SUBSETS,
        "knn": knn_accuracy(known, train.classes, asked, test.classes),
        "count": probe(train.counts - 1, test.counts - 1),
        "distance": probe(train.distances, test.distances),
    }
    return {name: round(100 * accuracy, 2) for name, accuracy in accuracies.items()}


def _print_table(console: Console, results: dict[str, dict[str, float]]) -> None:
    table = Table(title="Accuracy on test scenes, frozen encoder (%)", title_justify="left")
    table.add_column("encoder", no_wrap=True)
    for title in COLUMNS.values():
        table.add_column(title, justify="right")
    for name, accuracies in results.items():
        table.add_row(name, *(f"{accuracies[column]:.1f}" for column in COLUMNS))
    table.add_section()
    gain = {column: results["StoP"][column] - results["sin-cos"][column] for column in COLUMNS}
    table.add_row("difference", *(f"{gain[column]:+.1f}" for column in COLUMNS))
    console.print()
    console.print(table)
    better = [title for column, title in COLUMNS.items() if gain[column] > 0]
    worse = [title for column, title in COLUMNS.items() if gain[column] <= 0]
    sentence = f"StoP is ahead of sin-cos in: {'; '.join(better) or 'nothing'}."
    if worse:
        sentence += f" It is not in: {'; '.join(worse)}."
    console.print(f"{sentence} One seed of a small model: differences of a point or two are chance.", highlight=False)
