"""Speed of feature extraction, compared with plain forward passes of timm's and transformers' models.

    python benchmarks/extraction.py                                    # new ViT-S/16 and ViT-B/16, about two minutes
    python benchmarks/extraction.py dinov2_vits14.safetensors --image_size 112

All three have the same weights and must give the same vectors, the mean of the patches. The others get one batch of
normalized pixels; ours reads images as bytes, crops, normalizes, pools and collects them, as in every evaluation.
They take turns; times are processor time.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from machine import announce_machine, plain_copy, spread, take_turns
from rich import box
from rich.table import Table
from torch import Tensor

import flexpredict
from flexpredict.data.sources.image_source import ArraySource
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.features.extraction import extract_features
from flexpredict.model.building import build_encoder
from flexpredict.randomness import sample_keys, stream_key, uniform
from flexpredict.settings.extraction import Extraction

_OURS, _TIMM, _HUGGING_FACE = "flexpredict", "timm", "transformers"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "encoders",
        nargs="*",
        default=["vit_small_patch16_224", "vit_base_patch16_224"],
        help="run folders or checkpoints of plain ViTs, or timm names of new ones",
    )
    parser.add_argument("--image_size", type=int, default=224)
    parser.add_argument("--images", type=int, default=16, help="in each turn, as one batch")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    console = announce_machine()
    table = Table(
        box=box.MARKDOWN,
        title=f"Features of {asked.image_size} px images, batch {asked.images}; medians (and quartiles) of rounds",
    )
    table.add_column("encoder")
    for heading in ("by", "images/s", "speed, timm = 1"):
        table.add_column(heading, justify="right")
    for name in asked.encoders:
        seconds = measure(encoder_of(name, asked.image_size), asked.image_size, asked.images, asked.rounds)
        for by, own in seconds.items():
            relative = spread([timm / one for timm, one in zip(seconds[_TIMM], own, strict=True)])
            speed = f"{asked.images / spread(own).median:.1f}"
            table.add_row(name, by, speed, f"{relative.median:.2f} ({relative.low:.2f}–{relative.high:.2f})")
    console.print(table)


def encoder_of(name: str, side: int) -> ViTEncoder:
    if not Path(name).exists():
        return ViTEncoder(build_encoder(name, (side, side)), name, name).eval()
    encoder = flexpredict.load(name)
    if not isinstance(encoder, ViTEncoder):
        raise SystemExit(f"{name} is not a plain vision transformer.")
    return encoder


@torch.inference_mode()
def measure(encoder: ViTEncoder, side: int, count: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender, round by round."""
    drawn = uniform(sample_keys(stream_key(0, "images"), torch.arange(count)), side * side * 3)
    images = drawn.mul(255).byte().view(count, side, side, 3)
    source, how = ArraySource("noise", images), Extraction(image_size=side, batch_size=count, pooling="mean")
    mean, std = (torch.tensor(values) * 255 for values in (encoder.mean, encoder.std))
    pixels = images.float().sub(mean).div(std).movedim(3, 1).contiguous()
    timm: Any = plain_copy(encoder.resized((side, side)).timm()).eval()
    transformers = transformers_model(encoder.resized((side, side)))
    patches = (side // encoder.patch_size[0]) * (side // encoder.patch_size[1])
    give: dict[str, Callable[[], Tensor]] = {
        _OURS: lambda: extract_features(encoder, source, how).vectors,
        _TIMM: lambda: timm.forward_features(pixels)[:, -patches:].mean(dim=1),
        _HUGGING_FACE: lambda: transformers(pixel_values=pixels).last_hidden_state[:, -patches:].mean(dim=1),
    }
    refuse_unequal({name: vectors() for name, vectors in give.items()})
    return take_turns({name: partial(_in_a_round, vectors) for name, vectors in give.items()}, rounds)


def _in_a_round(vectors: Callable[[], Tensor], number: int) -> None:
    vectors()


def transformers_model(encoder: ViTEncoder) -> Any:
    """The corresponding model of transformers, with the weights of the encoder."""
    from transformers import AutoModel  # works only after torchvision_repair

    with tempfile.TemporaryDirectory() as folder:
        flexpredict.export(encoder, format="hf", out=f"{folder}/hf")
        return AutoModel.from_pretrained(f"{folder}/hf").eval()


def refuse_unequal(vectors: dict[str, Tensor]) -> None:
    """Refuse to compare contenders that do not compute the same."""
    for name, found in vectors.items():
        apart = float((found - vectors[_OURS]).norm() / vectors[_OURS].norm())
        if apart > 1e-4:
            raise SystemExit(f"No fair comparison: the vectors of {name} differ from ours by {apart:.2g} (relative).")


if __name__ == "__main__":
    main()
