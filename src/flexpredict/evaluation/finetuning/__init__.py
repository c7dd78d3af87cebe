"""`flexpredict finetune`: trains all weights of an encoder on labels, and tests once."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from flexpredict.data.arguments import ImagesLike
from flexpredict.encoders.arguments import EncoderChoice, EncoderLike, EncoderOptions
from flexpredict.errors import UserError
from flexpredict.evaluation.results import Result, ResultTable
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.declarations import declared
from flexpredict.settings.finetuning import Finetuning
from flexpredict.settings.parameters import takes_some_fields_of
from flexpredict.settings.typed_values import typed_values, with_dataclasses
from flexpredict.training.recipe_parser import merge


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(EncoderChoice, Finetuning, ResultTable):
    """Settings of `finetune`.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME. A loaded encoder is
            trained in place.
        train: labeled images to train on.
        test: labeled images of the same classes to test on.
        out: folder of the run.
        resume: continue the interrupted run in OUT, with the encoder, images and settings that it has.
        overwrite: replace the run in OUT.
    """

    encoder: EncoderLike | None = field(default=None, kw_only=False)  # type: ignore[assignment]
    train: ImagesLike | None = field(default=None, kw_only=False)
    test: ImagesLike | None = field(default=None, kw_only=False)
    out: str | Path = "runs/finetune"
    resume: bool = False
    overwrite: bool = False


_NAMED = ("encoder", "train", "test")


@takes_some_fields_of(FinetuneSettings)
def finetune(given: dict[str, Any]) -> Result:
    """Train all weights of an encoder, and a linear head, on labeled images; test once, at the end.

    The defaults are those of MAE's fine-tuning; the paper's Table 5 is fraction=0.01. Nothing is chosen on test
    images. OUT holds config.yaml, metrics.jsonl (and the same for TensorBoard), checkpoints/, model.safetensors
    (encoder and head) and result.json. If a signal interrupts the training, everything is saved before
    KeyboardInterrupt is raised, and `resume` continues.
    """
    from flexpredict.evaluation.finetuning.run import run_finetuning
    from flexpredict.features.workspace import open_workspace
    from flexpredict.training.engine import launch_fabric
    from flexpredict.training.precision import default_precision

    asked = _asked(given)
    if asked.strategy == "fsdp":
        raise UserError("strategy=fsdp is for pre-training. Use strategy=ddp, or auto.")
    asked = replace(asked, precision=asked.precision or default_precision(asked.accelerator))
    assert asked.encoder is not None and asked.train is not None and asked.test is not None
    fabric = launch_fabric(asked.accelerator, asked.devices, asked.num_nodes, asked.strategy, asked.precision)
    space = open_workspace(asked.encoder, fabric, asked)
    sources = space.open_source(asked.train), space.open_source(asked.test)
    result = run_finetuning(
        space,
        *sources,
        RunFolder(Path(asked.out)),
        asked,
        _names(asked),
        resume=asked.resume,
        overwrite=asked.overwrite,
    )
    asked.save(result, space.fabric)
    return result


def _asked(given: dict[str, Any]) -> FinetuneSettings:
    """The given settings; if a run is resumed, its recorded settings are used for all others."""
    values = typed_values(FinetuneSettings, given)
    if values.get("resume"):
        # Settings that are None are taken from the run.
        values = {name: value for name, value in values.items() if value is not None}
        values = merge(_recorded(RunFolder(Path(values.get("out", FinetuneSettings.out))), values), values)
    for name in _NAMED:
        if values.get(name) is None:
            raise UserError(f"`{name}` is missing: {declared(FinetuneSettings)[name].description}")
    return FinetuneSettings(**with_dataclasses(FinetuneSettings, values))


def _recorded(folder: RunFolder, given: dict[str, Any]) -> dict[str, Any]:
    saved = folder.load_config()
    names = saved.get("names") or {}
    missing = [name for name in _NAMED if name not in {**names, **given}]
    if missing:
        raise UserError(
            f"{folder.path} does not say which encoder or images it was started with. Give these as well: "
            f"{', '.join(f'`{name}`' for name in missing)}."
        )
    if "encoder" in given:  # a new encoder has its own options
        options = {field.name for field in fields(EncoderOptions)}
        names = {name: value for name, value in names.items() if name not in options}
    # `workers` was chosen for the machine where the run started.
    settings = {field.name: saved[field.name] for field in fields(Finetuning) if field.name in {*saved} - {"workers"}}
    return typed_values(FinetuneSettings, {**settings, **names})


def _names(asked: FinetuneSettings) -> dict[str, Any]:
    """Names that open the same encoder and images from any folder; objects that were given have none."""
    from flexpredict.data.sources.opening import absolute_names
    from flexpredict.encoders.names import absolute_name

    names: dict[str, Any] = {
        name: absolute_names(data)
        for name, data in (("train", asked.train), ("test", asked.test))
        if isinstance(data, str | list)
    }
    if asked.image_list is not None:
        names["image_list"] = str(Path(asked.image_list).absolute())
    if isinstance(asked.encoder, str):
        names["encoder"] = absolute_name(asked.encoder)
        names |= {field.name: getattr(asked, field.name) for field in fields(EncoderOptions)}
    return names
