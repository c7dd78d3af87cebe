"""How fast a frozen encoder gives features: ours against timm's plain forward and Hugging Face's IJepaModel.

    python benchmarks/forward.py                 # ViT-S/16 and ViT-B/16 at 224 px: about two minutes
    python benchmarks/forward.py --models vit_small_patch16_224 --batch 4 --rounds 3

All three have the same weights, get the same images (uint8, in memory), and must give the same vectors: the mean of
the patch features after the last norm. Ours is what probes and `embed` do, its checks included. They take turns;
times are processor time.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from machine import announce_machine, plain_copy, spread, take_turns
from rich import box
from rich.table import Table
from torch import Tensor

from flexpredict.data.pixels import normalize
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.exports.hugging_face_weights import renamed_weights
from flexpredict.features.encoding import encode
from flexpredict.model.building import build_encoder, model_facts
from flexpredict.settings.extraction import Extraction

_OURS, _TIMM, _HUGGING_FACE = "flexpredict", "timm", "Hugging Face"
_SIZE = 224


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["vit_small_patch16_224", "vit_base_patch16_224"])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    console = announce_machine()
    table = Table(
        box=box.MARKDOWN,
        title=f"Features of {_SIZE} px images, batch {arguments.batch}; medians (and quartiles) of rounds",
    )
    table.add_column("model")
    for heading in ("by", "images/s", "speed, timm = 1"):
        table.add_column(heading, justify="right")
    for model in arguments.models:
        for name, times in measure(model, arguments.batch, arguments.rounds).items():
            relative = spread(times["relative"])
            table.add_row(
                model,
                name,
                f"{arguments.batch / spread(times['seconds']).median:.1f}",
                f"{relative.median:.2f} ({relative.low:.2f}–{relative.high:.2f})",
            )
    console.print(table)


@torch.no_grad()
def measure(model: str, batch: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each, and how many times as fast as timm it was in the same round."""
    encoder = ViTEncoder(build_encoder(model, (_SIZE, _SIZE)), model, model).eval()
    torch.manual_seed(0)
    images = torch.randint(0, 256, (batch, 3, _SIZE, _SIZE), dtype=torch.uint8)
    vit: Any = plain_copy(encoder.encoder.vit)
    how = Extraction()
    hugging_face = hugging_face_model(model, encoder)
    give: dict[str, Callable[[], Tensor]] = {
        _OURS: lambda: encode(encoder, images, how)[0],
        _TIMM: lambda: vit.forward_features(normalize(images)).mean(dim=1),
        _HUGGING_FACE: lambda: hugging_face(pixel_values=normalize(images)).last_hidden_state.mean(dim=1),
    }
    refuse_unequal({name: vectors() for name, vectors in give.items()})
    seconds = take_turns({name: partial(_in_a_round, vectors) for name, vectors in give.items()}, rounds)
    return {
        name: {
            "seconds": times,
            "relative": [timm / own for timm, own in zip(seconds[_TIMM], times, strict=True)],
        }
        for name, times in seconds.items()
    }


def _in_a_round(vectors: Callable[[], Tensor], number: int) -> None:
    vectors()


def hugging_face_model(model: str, encoder: ViTEncoder) -> Any:
    """transformers' I-JEPA with the weights of the encoder."""
    from transformers import IJepaConfig, IJepaModel  # works only after torchvision was mended (torchvision_repair)

    facts = model_facts(model)
    config = IJepaConfig(
        hidden_size=facts.dim,
        num_hidden_layers=facts.depth,
        num_attention_heads=facts.heads,
        intermediate_size=4 * facts.dim,
        image_size=_SIZE,
        patch_size=facts.patch_size,
        layer_norm_eps=facts.norm_eps,
    )
    return IJepaModel.from_pretrained(None, config=config, state_dict=renamed_weights(encoder)).eval()


def refuse_unequal(vectors: dict[str, Tensor]) -> None:
    """A comparison is fair if all compute the same."""
    for name, found in vectors.items():
        apart = float((found - vectors[_OURS]).norm() / vectors[_OURS].norm())
        if apart > 1e-4:
            raise SystemExit(f"No fair comparison: the vectors of {name} are {apart:.2g} of their length apart.")


if __name__ == "__main__":
    main()
