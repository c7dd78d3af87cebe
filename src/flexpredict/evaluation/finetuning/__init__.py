"""`finetune`: all weights of an encoder trained on labels, all of them or one in a hundred, and tested once.

Nothing is chosen by the test images: training goes on for the epochs that were asked for, and they are classified
when it is over. The output folder has config.yaml, metrics.jsonl, checkpoints/, model.safetensors (encoder and head)
and result.json.
"""

import dataclasses
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from flexpredict.data.sources.identity import identity
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.encoders.frozen import FrozenEncoder
from flexpredict.evaluation.finetuning.classifier import Classifier, load_classifier, save_classifier
from flexpredict.evaluation.finetuning.layer_decay import layered_groups
from flexpredict.evaluation.finetuning.loop import train as run_loop
from flexpredict.evaluation.finetuning.settings import FREE_ON_RESUME, Finetuning, Plan, check_settings, make_plan
from flexpredict.evaluation.finetuning.testing import Hits, classify
from flexpredict.evaluation.labelled_images import (
    LabelledImages,
    choose,
    numbered_alike,
    set_aside,
    with_labels,
)
from flexpredict.evaluation.results import Result, print_numbers, write_result
from flexpredict.runs.run_folder import RunFolder
from flexpredict.training.engine import launch, on_first_rank
from flexpredict.training.plan import default_precision
from flexpredict.training.progress import TrainingProgress

__all__ = ["Finetuning", "finetune", "load_classifier"]


def finetune(
    encoder: FrozenEncoder,
    train: ImageSource,
    test: ImageSource,
    out: Path,
    settings: Finetuning,
    *,
    resume: bool = False,
    overwrite: bool = False,
    console: Console | None = None,
) -> Result | None:
    """Train `encoder`, in place, and a linear head on `train`; measure on `test`.

    None where a signal interrupted the training: everything is saved then, and `resume` goes on.
    """
    check_settings(settings)
    folder = RunFolder(out)
    if resume:
        settings = _as_it_was(settings, folder)
    # Resolved before there is a plan, because Fabric must be told.
    settings = dataclasses.replace(settings, precision=settings.precision or default_precision(settings.accelerator))
    fabric = launch(settings)
    console = console or Console(soft_wrap=True)
    if not fabric.is_global_zero:
        console = Console(quiet=True)

    labelled = with_labels(train, "training")
    test_images = numbered_alike(with_labels(test, "test"), labelled)
    chosen = choose(labelled, settings.image_list, settings.fraction, settings.seed)
    train_images, held_out = set_aside(chosen, settings.held_out, settings.seed)
    plan = make_plan(settings, encoder, len(train_images), fabric.device, fabric.world_size)
    facts = {
        "encoder": encoder.name,
        "fingerprint": encoder.fingerprint(),
        "train": train.name,
        "test": test.name,
        "train_images": len(train_images),
        "list_of_train_images": identity(train_images.source)["list_of_images"],
        "test_images": len(test_images),
        "classes": len(labelled.classes),
    }
    # Some weights of others are stored in half precision, which holds no small steps.
    encoder.float().to(fabric.device)
    model = Classifier(
        encoder, labelled.classes, plan.settings.pooling, plan.image_size, plan.drop_path, plan.settings.seed
    )
    model.to(fabric.device).eval()
    groups = layered_groups(model, encoder.depth, plan.settings.layer_decay, encoder.what)
    on_first_rank(fabric, lambda: _prepare(folder, {**facts, **plan.describe()}, resume, overwrite))
    _announce(console, fabric, plan, model, train_images, held_out, test_images, folder, resume)

    with TrainingProgress(console, plan.steps, "fine-tuning") as progress:
        steps = run_loop(fabric, plan, model, groups, train_images, held_out, folder, progress)
    if steps < plan.steps:
        saved = f"Stopped at step {steps} of {plan.steps}; everything is saved."
        console.print(f"{saved} Go on with the same command and --resume.", highlight=False)
        return None

    share = plan.batch_size // fabric.world_size
    hits = classify(fabric, model, test_images, plan.image_size, share, plan.workers, console)
    result = _result(plan, encoder, test, facts, hits)
    if fabric.is_global_zero:
        save_classifier(out / "model.safetensors", model)
        write_result(result, out / "result.json")
    if hits.unreadable:
        console.print(
            f"[yellow]Warning:[/yellow] {len(hits.unreadable)} of {len(test_images)} test images could not be read "
            f"and are not counted; for example {escape(hits.unreadable[0])}.",
            highlight=False,
        )
    shown = {name: f"{value:.1f} %" for name, value in result.numbers.items()}
    print_numbers(console, f"{result.task} on {test.name}: {len(test_images):,} images", {encoder.what: shown})
    return result


def _as_it_was(settings: Finetuning, folder: RunFolder) -> Finetuning:
    """What is left open now was decided when the run began, perhaps on another machine."""
    saved = folder.load_config()
    left_open = [name for name, value in vars(settings).items() if value is None and name not in FREE_ON_RESUME]
    return dataclasses.replace(settings, **{name: saved[name] for name in left_open if name in saved})


def _prepare(folder: RunFolder, config: dict[str, Any], resume: bool, overwrite: bool) -> None:
    if resume:
        folder.refuse_changes(config, FREE_ON_RESUME)
    else:
        folder.create(overwrite)
        folder.save_config(config)
    folder.save_environment()


def _announce(
    console: Console,
    fabric: Fabric,
    plan: Plan,
    model: Classifier,
    train: LabelledImages,
    held_out: LabelledImages | None,
    test: LabelledImages,
    folder: RunFolder,
    resume: bool,
) -> None:
    settings, encoder = plan.settings, model.encoder
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad) / 1e6
    aside = f", {len(held_out):,} more held out" if held_out is not None else ""
    devices = f" on {fabric.world_size} devices" if fabric.world_size > 1 else ""
    rows = {
        "encoder": f"{encoder.what}, {parameters:.1f} M parameters trained",
        "train": f"{train.source.name}: {len(train):,} images{aside}, {len(train.classes):,} classes",
        "test": f"{test.source.name}: {len(test):,} images",
        "images": f"{settings.image_size}, {settings.pooling} pooling",
        "batch": f"{plan.batch_size}{devices}, {settings.precision}",
        "length": f"{settings.epochs:g} epochs, {plan.steps:,} steps",
        "learning rate": f"{plan.lr:.2g} after {plan.warmup_steps:,} warm-up steps",
        "layer decay": f"{settings.layer_decay:g}",
        "folder": f"{folder.path}{' (resumed)' if resume else ''}",
    }
    table = Table.grid(Column(), Column(overflow="fold"), padding=(0, 2))
    for name, value in rows.items():
        table.add_row(f"[bold]{name}[/bold]", escape(value))
    console.print(table, highlight=False)


def _result(plan: Plan, encoder: FrozenEncoder, test: ImageSource, facts: dict[str, Any], hits: Hits) -> Result:
    settings = plan.settings
    task = "fine-tuning"
    if settings.image_list is not None:
        task += f" on {Path(settings.image_list).name}"
    if settings.fraction < 1:
        task += f" on {100 * settings.fraction:g} % of the labels"
    return Result(
        task=task,
        encoder=encoder.what,
        data=test.name,
        numbers=hits.numbers(),
        protocol={
            **facts,
            **plan.describe(),
            "steps": plan.steps,
            "settings": f"{settings.image_size}, {settings.epochs:g} epochs of {plan.batch_size} at {plan.lr:.2g}",
        },
        details={"accuracy of classes": hits.of_classes(), "unreadable": hits.unreadable},
    )
