"""`flexpredict finetune`: trains all weights of an encoder on labels, and tests once."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from flexpredict.data.arguments import ImagesLike
from flexpredict.encoders.arguments import EncoderChoice
from flexpredict.errors import UserError
from flexpredict.evaluation.results import Result, ResultTable
from flexpredict.settings.finetuning import FREE_ON_RESUME, Finetuning
from flexpredict.settings.parameters import takes_fields_of


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(EncoderChoice, Finetuning, ResultTable):
    """What `finetune` takes.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME. A loaded encoder is
            trained in place.
        train: labeled images to train on.
        test: labeled images of the same classes to test on.
        out: folder of the run.
        resume: continue the interrupted run in OUT.
        overwrite: replace the run in OUT.
    """

    train: ImagesLike = field(kw_only=False)
    test: ImagesLike = field(kw_only=False)
    out: str | Path = "runs/finetune"
    resume: bool = False
    overwrite: bool = False


@takes_fields_of(FinetuneSettings)
def finetune(asked: FinetuneSettings) -> Result:
    """Train all weights of an encoder, and a linear head, on labeled images; test once, at the end.

    The defaults are those of MAE's fine-tuning; the paper's Table 5 is fraction=0.01. Nothing is chosen by test
    images. OUT holds config.yaml, metrics.jsonl (and the same for TensorBoard), checkpoints/, model.safetensors
    (encoder and head) and result.json. If a signal interrupts the training, everything is saved before
    KeyboardInterrupt is raised, and `resume` goes on.
    """
    from flexpredict.evaluation.finetuning.run import run_finetuning
    from flexpredict.features.workspace import open_workspace
    from flexpredict.runs.run_folder import RunFolder
    from flexpredict.training.engine import launch_fabric
    from flexpredict.training.precision import default_precision

    if asked.strategy == "fsdp":
        raise UserError("strategy=fsdp is for pre-training. Use strategy=ddp, or auto.")
    folder = RunFolder(Path(asked.out))
    if asked.resume:
        # What is left open has the values of the run that is resumed, perhaps begun on another machine.
        saved = folder.load_config()
        left_open = [name for name, value in vars(asked).items() if value is None and name not in FREE_ON_RESUME]
        asked = replace(asked, **{name: saved[name] for name in left_open if name in saved})
    asked = replace(asked, precision=asked.precision or default_precision(asked.accelerator))
    fabric = launch_fabric(asked.accelerator, asked.devices, asked.num_nodes, asked.strategy, asked.precision)
    space = open_workspace(asked.encoder, fabric, asked)
    sources = space.open_source(asked.train), space.open_source(asked.test)
    result = run_finetuning(space, *sources, folder, asked, resume=asked.resume, overwrite=asked.overwrite)
    asked.save(result, space.fabric)
    return result
