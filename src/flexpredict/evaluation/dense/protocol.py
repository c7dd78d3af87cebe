"""What all dense tasks do alike: start one process, refuse too few images, and tell how features were made."""

from collections.abc import Mapping
from typing import Any

from lightning_fabric import Fabric

from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.dense.encoded_sizes import EncodedSize
from flexpredict.evaluation.dense.mapped_images import MappedImages
from flexpredict.evaluation.dense.settings import DenseFeatures
from flexpredict.evaluation.results import encoder_facts
from flexpredict.training.engine import launch_fabric

HELD_OUT = 5  # one training image in so many chooses the penalty


def launch_one(accelerator: str, task: str) -> Fabric:
    """A single process: its passes over the images are not shared."""
    fabric = launch_fabric(accelerator, 1)
    if fabric.world_size > 1:
        raise UserError(f"{task} is evaluated by one process. Start it without torchrun.")
    return fabric


def require_enough(train: MappedImages[Any]) -> None:
    if len(train) < HELD_OUT:
        raise UserError(f"{train.name} has {len(train)} image(s), but at least {HELD_OUT} are needed to fit on.")


def describe_features(
    encoder: ImageEncoder, how: DenseFeatures, size: EncodedSize, unusual: Mapping[str, bool]
) -> dict[str, Any]:
    """The beginning of a protocol. unusual: further settings in words, and whether they are not the default."""
    settings = {f"last {how.layers} layers": how.layers != 1, str(size): not size.is_usual, **unusual}
    return {
        **encoder_facts(encoder),
        "layers": how.layers,
        "image_size": str(size),
        "precision": how.precision,
        "settings": ", ".join(words for words, said in settings.items() if said),
    }
