"""Turns a recipe into a run folder: opens the data, makes the plan, and hands both to the loop."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from rich.console import Console

from flexpredict.data.sources.opening import ImageSource, ImageStream, absolute_names, is_stream, open_images
from flexpredict.data.sources.streams import identity
from flexpredict.errors import UserError, printable
from flexpredict.evaluation.online_probe import online_probe
from flexpredict.methods.method import Method
from flexpredict.progress import Counting
from flexpredict.reports.writing import refresh_report, write_report
from flexpredict.runs.checkpoint import last_checkpoint, last_step
from flexpredict.runs.claim import Claim
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.recipe import FREE_ON_RESUME, Recipe
from flexpredict.showing import facts_table, say
from flexpredict.training.engine import holding, launch, on_first_rank
from flexpredict.training.initial_weights import initial_weights
from flexpredict.training.loop import Outcome, Training
from flexpredict.training.plan import Plan, make_plan
from flexpredict.training.precision import default_precision
from flexpredict.training.progress import TrainingProgress
from flexpredict.training.recipe_parser import make_recipe
from flexpredict.training.rehearsal import Rehearsal
from flexpredict.training.starting_weights import adopted, start_from
from flexpredict.training.time_limit import FittedRun, fit_to_time

T = TypeVar("T")
_SAVED = "Ctrl-C saves this run, and `resume` continues it."
_ADVICE = "`minutes` fits a run to the time you have. "


def run(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    console: Console | None = None,
    source: ImageSource | ImageStream | None = None,
) -> Outcome:
    """Run a recipe in the folder `out`. source: the images that `recipe.data` names, if already open."""
    if recipe.data is None:
        raise UserError("No data was named. Give `data`, a folder of images, or scenes for the built-in ones.")
    # Resolved before the plan is made, because Fabric needs it.
    precision = recipe.precision or default_precision(recipe.accelerator)
    recipe = dataclasses.replace(recipe, data=absolute_names(recipe.data), precision=precision)
    if recipe.probe_data is not None:
        recipe = dataclasses.replace(recipe, probe_data=absolute_names(recipe.probe_data))
    fabric = launch(recipe)
    console = console or Console(soft_wrap=True)
    if not fabric.is_global_zero:
        console = Console(quiet=True)
    source = source or _first_rank_first(fabric, partial(_open, console, recipe.data or ""))
    folder = RunFolder(out)
    checkpoint = last_checkpoint(folder.checkpoints) if resume else None
    # A resumed run has its own weights, and those it started from may no longer exist.
    initial = None
    if recipe.init_from is not None and checkpoint is None:
        initial = _first_rank_first(fabric, partial(initial_weights, recipe))
        recipe = adopted(recipe, initial, source)
    if resume and recipe.minutes is not None:
        say(console, "minutes is not used: the length of a run is fixed when it starts.")
        recipe = dataclasses.replace(recipe, minutes=None)
    plan = make_plan(recipe, source, fabric.device, fabric.world_size)
    model = plan.build_model()
    notes = [*initial.lines, *start_from(model, initial)] if initial is not None else []
    probe = _probe(plan, source, fabric.device)
    claim = Claim(folder, resume=resume, overwrite=overwrite)
    with holding(fabric, claim):
        fitted: FittedRun | None = None
        if recipe.minutes is not None:
            with console.status("Measuring a step …"):
                fitted = fit_to_time(recipe, Rehearsal(fabric, plan, source, model, probe, folder.rehearsal))
            if fitted is None:
                on_first_rank(fabric, claim.give_up)
                say(console, "Stopped while measuring a step; nothing was started.")
                return Outcome(0, finished=False)
            plan, model = fitted.plan, fitted.model
        step = last_step(folder.checkpoints) if resume else 0
        before = float(folder.load_config()["epochs"]) if resume else plan.recipe.epochs
        on_first_rank(fabric, lambda: _prepare(claim, plan, source, fabric, step if resume else None))
        _announce(console, plan, fabric, model, folder, notes, _history(claim, step if resume else None))
        if fitted is not None:
            say(console, fitted.explanation)
            if fitted.advice:
                console.print(f"[yellow]Warning:[/yellow] {fitted.advice}", highlight=False)
        if resume and step == plan.steps:
            say(console, "This run has done all its steps. Give more epochs to continue it.")
        if before != plan.recipe.epochs:
            say(
                console,
                f"The run had {before:g} epochs. From step {step:,} on, learning rate, weight decay and momentum "
                f"follow the schedules of {plan.recipe.epochs:g} epochs.",
            )
        refresh = partial(refresh_report, folder.path)
        try:
            with TrainingProgress(console, plan.steps, advice=_ADVICE * (fitted is None) + _SAVED) as progress:
                outcome = Training(fabric, plan, source, model, folder, progress, probe, refresh).run()
        except UserError:
            if fabric.is_global_zero:
                with suppress(UserError, OSError):  # the curves show what went wrong
                    refresh()
            raise
        if fabric.is_global_zero:
            write_report([folder.path], source=None if is_stream(source) else source)
    if not outcome.finished:
        say(
            console,
            f"Stopped at step {outcome.steps:,} of {plan.steps:,}; everything is saved. Continue with: "
            f"flexpredict pretrain --out {folder.path} --resume",
        )
    return outcome


def _first_rank_first(fabric: Fabric, make: Callable[[], T]) -> T:
    """Call `make` on the first rank, then on the others, which find its listings and files in the cache."""
    made: list[T] = []
    on_first_rank(fabric, lambda: made.append(make()))
    return made[0] if made else make()


def _open(console: Console, data: str | list[str]) -> ImageSource | ImageStream:
    with Counting(console, f"listing {described(data)}", "images") as counting:
        return open_images(data, counting.add)


def described(data: str | list[str]) -> str:
    """Data as a person would write it, printable whatever bytes are in file names."""
    return printable(data if isinstance(data, str) else " ".join(data))


def _prepare(
    claim: Claim, plan: Plan, source: ImageSource | ImageStream, fabric: Fabric, resumed_step: int | None
) -> None:
    """Make the folder, or check that it holds the run to resume. resumed_step: None for a new run."""
    folder = claim.folder
    config, images = plan.describe(), identity(source)
    saved: dict[str, Any] = {}
    if resumed_step is None:
        claim.begin()
        folder.save_data(images)
    else:
        folder.clear()
        # Read as a recipe, so that options newer than the run get the defaults it was made with.
        saved = folder.load_config()
        before = make_plan(make_recipe(saved), source, fabric.device, fabric.world_size).describe()
        folder.refuse_changes(config, (*FREE_ON_RESUME, "epochs"), before)
        folder.refuse_other_data(images)
        if plan.steps < resumed_step:
            raise UserError(
                f"epochs={plan.recipe.epochs:g} would end the run in {folder.path} at step {plan.steps:,}, but it is "
                f"already at step {resumed_step:,}. Give more epochs."
            )
        config = {**saved, "data": plan.recipe.data, "epochs": plan.recipe.epochs}
    folder.record_start(
        resumed_step or 0,
        device=_device_name(fabric.device),
        ranks=fabric.world_size,
        precision=plan.recipe.precision,
        effective_batch=plan.recipe.batch_size,
        images=plan.samples,
        seed=plan.recipe.seed,
        epochs=plan.recipe.epochs,
    )
    if config != saved:  # last: a folder without it is not a run, so a killed start does not count
        folder.save_config(config)


def _history(claim: Claim, resumed_step: int | None) -> str:
    """What happened to the folder, in a few words."""
    if claim.aside is not None:
        return f" (the run that was there is now {claim.aside})"
    if resumed_step is None:
        return ""
    return " (resumed)" if resumed_step else " (restarted: it had no checkpoint yet)"


def _probe(plan: Plan, source: ImageSource | ImageStream, device: torch.device) -> Any:
    recipe = plan.recipe
    if recipe.probe_every is None:
        return None
    if recipe.probe_data is not None:
        source = open_images(recipe.probe_data)
        asked, remedy = f"probe_data={described(recipe.probe_data)}", "name other images"
    else:
        asked, remedy = f"probe_every={recipe.probe_every:g}", "name labeled images with probe_data"
    if is_stream(source):
        raise UserError(
            f"{asked} reads images repeatedly, but {source.name} is a stream. Convert the data once with "
            f"`flexpredict pack`, or {remedy}."
        )
    if source.labels is None:
        raise UserError(
            f"{asked} needs labels, but {source.name} has none. Sort the images into one folder per class, or "
            f"{remedy}."
        )
    return online_probe(source, plan.image_size, device, recipe.seed)


def _announce(
    console: Console, plan: Plan, fabric: Fabric, model: Method, folder: RunFolder, notes: Sequence[str], history: str
) -> None:
    recipe = plan.recipe
    positions = str(recipe.positions.kind)
    if positions == "stochastic":
        positions += f" (StoP), noise_std {model.masked_tokens.stochastic.noise_std:.3g}"
        if recipe.positions.noise_to_signal is not None:
            positions += f" (noise_to_signal {recipe.positions.noise_to_signal:g} at the start)"
        if recipe.positions.covariance != "tied":
            positions += f", covariance {recipe.positions.covariance}"
    share, parts = "", fabric.world_size * recipe.accumulate
    if parts > 1:
        share = f" = {fabric.world_size} devices x {recipe.accumulate} parts x {recipe.batch_size // parts}"
    grid = model.context_encoder.grid
    parameters = sum(p.numel() for p in model.context_encoder.parameters()) / 1e6
    rows = {
        "data": f"{described(recipe.data or '')}: {plan.samples:,} images",
        "method": recipe.method,
        "encoder": f"{recipe.model}{_options(recipe.model_options)}, {parameters:.1f} M parameters",
        "images": f"{recipe.image_size}: {grid[0]}x{grid[1]} patches of {recipe.patch_size}",
        "positions": positions,
        "effective batch": f"{recipe.batch_size}{share}",
        "length": f"{recipe.epochs:g} epochs, {plan.steps:,} steps",
        "learning rate": f"{recipe.optimizer.lr:.2g} after {plan.warmup_steps:,} warm-up steps",
        "hardware": f"{_device_name(fabric.device)}, {recipe.precision}",
        "run folder": f"{folder.path}{history}",
    }
    if recipe.init_from is not None:
        rows["starts from"] = "\n".join((recipe.init_from, *notes))
    console.print(facts_table(rows), highlight=False)


def _options(options: dict[str, Any]) -> str:
    return f" with {', '.join(f'{name} {value}' for name, value in options.items())}" if options else ""


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads" if device.type == "cpu" else device.type
