"""A run of fine-tuning: from labeled images to a trained classifier and its accuracy."""

from pathlib import Path
from typing import Any

from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.streams import identity
from flexpredict.evaluation.finetuning.classifier import (
    Classified,
    Classifier,
    classify,
    layered_groups,
    save_classifier,
)
from flexpredict.evaluation.finetuning.loop import train as run_loop
from flexpredict.evaluation.finetuning.plan import FinetunePlan, make_plan
from flexpredict.evaluation.labeled_images import (
    LabeledImages,
    choose,
    hold_out,
    numbered_alike,
    with_labels,
)
from flexpredict.evaluation.results import Result, encoder_facts, write_result
from flexpredict.evaluation.shared_images import shared_images
from flexpredict.features.workspace import Workspace
from flexpredict.runs.claim import Claim
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.finetuning import FREE_ON_RESUME, Finetuning
from flexpredict.showing import facts_table
from flexpredict.training.engine import holding, on_first_rank
from flexpredict.training.progress import TrainingProgress


def run_finetuning(
    space: Workspace,
    train: ImageSource,
    test: ImageSource,
    folder: RunFolder,
    settings: Finetuning,
    names: dict[str, Any],
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> Result:
    """Train the encoder of `space`, in place, and a linear head on `train`; measure on `test`.

    names: of encoder and images, by which a resumed run finds them.
    """
    encoder, fabric, console = space.encoder, space.fabric, space.console
    labeled = with_labels(train, "training")
    test_images = numbered_alike(with_labels(test, "test"), labeled)
    chosen = choose(labeled, settings.image_list, settings.fraction, settings.seed)
    train_images, held_out = hold_out(chosen, settings.held_out, settings.seed)
    shared = shared_images(encoder, train_images.source, test_images.source, fabric, console)
    plan = make_plan(settings, encoder, len(train_images), fabric.device, fabric.world_size)
    facts = {
        **encoder_facts(encoder),
        "train": train.name,
        "test": test.name,
        "train_images": len(train_images),
        "list_of_train_images": identity(train_images.source)["list_of_images"],
        "test_images": len(test_images),
        "classes": len(labeled.classes),
    }
    recorded = {
        "names": names,
        **facts,
        "list_of_test_images": identity(test_images.source)["list_of_images"],
        **plan.describe(),
    }
    # Some published weights are stored in half precision, which is too coarse for small steps.
    encoder.float().to(fabric.device)
    model = Classifier(encoder, labeled.classes, plan.pooling, plan.image_size, plan.drop_path, settings.seed)
    model.to(fabric.device).eval()
    groups = layered_groups(model, encoder.depth, settings.layer_decay, encoder.what)
    claim = Claim(folder, resume=resume, overwrite=overwrite)
    with holding(fabric, claim):
        on_first_rank(fabric, lambda: _prepare(claim, recorded, resume))
        _announce(space, plan, model, train_images, held_out, test_images, folder, resume)
        with TrainingProgress(console, plan.steps, "fine-tuning") as progress:
            run_loop(fabric, plan, model, groups, train_images, held_out, folder, progress)

    share = plan.batch_size // fabric.world_size
    classified = classify(fabric, model, test_images, plan.image_size, share, plan.workers, console)
    result = _result(plan, space, facts, shared, classified)
    if fabric.is_global_zero:
        save_classifier(folder.path / "model.safetensors", model)
        write_result(result, folder.path / "result.json")
        result.files += [folder.path / "result.json", folder.path / "model.safetensors"]
    return result


def _prepare(claim: Claim, config: dict[str, Any], resume: bool) -> None:
    folder = claim.folder
    if resume:
        saved = folder.load_config()
        # Encoder and images may have moved. Earlier versions knew test images by their name alone.
        moved = ("names", "encoder", "train", "image_list")
        test = "test" if "list_of_test_images" in saved else "list_of_test_images"
        folder.refuse_changes(config, (*FREE_ON_RESUME, *moved, test), saved)
    else:
        claim.begin()
        folder.save_config(config)
    folder.record_start()


def _announce(
    space: Workspace,
    plan: FinetunePlan,
    model: Classifier,
    train: LabeledImages,
    held_out: LabeledImages | None,
    test: LabeledImages,
    folder: RunFolder,
    resume: bool,
) -> None:
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad) / 1e6
    aside = f", {len(held_out):,} more held out" if held_out is not None else ""
    devices = f" on {space.fabric.world_size} devices" if space.fabric.world_size > 1 else ""
    rows = {
        "encoder": f"{model.encoder.what}, {parameters:.1f} M parameters trained",
        "train": f"{train.source.name}: {len(train):,} images{aside}, {len(train.classes):,} classes",
        "test": f"{test.source.name}: {len(test):,} images",
        "images": f"{plan.image_size[0]}x{plan.image_size[1]}, {plan.pooling} pooling",
        "batch": f"{plan.batch_size}{devices}, {plan.precision}",
        "length": f"{plan.epochs:g} epochs, {plan.steps:,} steps",
        "learning rate": f"{plan.lr:.2g} after {plan.warmup_steps:,} warm-up steps",
        "layer decay": f"{plan.layer_decay:g}",
        "folder": f"{folder.path}{' (resumed)' if resume else ''}",
    }
    space.console.print(facts_table(rows), highlight=False)


def _result(
    plan: FinetunePlan, space: Workspace, facts: dict[str, Any], shared: dict[str, str], classified: Classified
) -> Result:
    task = "fine-tuning"
    if plan.image_list is not None:
        task += f" on {Path(plan.image_list).name}"
    if plan.fraction < 1:
        task += f" on {100 * plan.fraction:g} % of the labels"
    size = f"{plan.image_size[0]}x{plan.image_size[1]}"
    return Result(
        task=task,
        encoder=space.encoder.what,
        data=facts["test"],
        numbers=classified.numbers(),
        protocol={
            **facts,
            **plan.describe(),
            "train": {"data": facts["train"], "images": facts["train_images"]},
            "test": {
                "data": facts["test"],
                "images": facts["test_images"] - len(classified.unreadable),
                "unreadable": len(classified.unreadable),
            },
            **shared,
            "steps": plan.steps,
            "settings": f"{size}, {plan.epochs:g} epochs of {plan.batch_size} at {plan.lr:.2g}",
        },
        details={"accuracy of classes": classified.of_classes(), "unreadable": classified.unreadable},
        title=f"Accuracy of {task} on {facts['test_images']:,} test images (%)",
    )
