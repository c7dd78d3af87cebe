"""How fast features are extracted, beside the plain forward pass of timm's model with the same weights.

    python benchmarks/extraction.py dinov2_vits14.safetensors --image_size 112

timm's model is handed normalized pixels, all at once; ours reads images as bytes, crops, normalizes, pools and
collects them, as every evaluation does. They take turns. Times are processor time of one thread, which other work on
the machine changes little; the ratio is the median over pairs of turns.
"""

import argparse
import time
from collections.abc import Callable

import torch
from machine import announce_machine, spread
from torch import Tensor

import flexpredict
from flexpredict.data.sources.image_source import ArraySource
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.features.extraction import extract_features
from flexpredict.randomness import sample_keys, stream_key, uniform
from flexpredict.settings.extraction import Extraction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("encoder", help="a run folder or a checkpoint of a plain ViT")
    parser.add_argument("--image_size", type=int, default=224)
    parser.add_argument("--images", type=int, default=64, help="in each turn, as one batch")
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()

    torch.set_num_threads(1)
    console = announce_machine()
    encoder = flexpredict.load(asked.encoder)
    assert isinstance(encoder, ViTEncoder)
    side = asked.image_size
    model = encoder.resized((side, side)).timm().eval()
    drawn = uniform(sample_keys(stream_key(0, "images"), torch.arange(asked.images)), side * side * 3)
    images = drawn.mul(255).byte().view(asked.images, side, side, 3)
    source, how = ArraySource("noise", images), Extraction(image_size=side, batch_size=asked.images, pooling="mean")
    mean, std = (torch.tensor(values) * 255 for values in (encoder.mean, encoder.std))
    pixels = images.float().sub(mean).div(std).movedim(3, 1).contiguous()

    @torch.inference_mode()
    def plain() -> Tensor:
        tokens: Tensor = model.forward_features(pixels)  # type: ignore[operator]
        return tokens[:, model.num_prefix_tokens :].mean(dim=1)

    def ours() -> Tensor:
        return extract_features(encoder, source, how).vectors

    difference = float((plain() - ours()).abs().max())
    turns = [(_seconds(plain), _seconds(ours)) for _ in range(asked.rounds)]
    speeds = {"timm's forward": [asked.images / one for one, _ in turns]}
    speeds["extraction"] = [asked.images / other for _, other in turns]
    for name, values in speeds.items():
        console.print(f"{name:15} {spread(values).median:7.1f} images/s", highlight=False)
    ratio = spread([one / other for one, other in turns])
    console.print(
        f"extraction / timm {ratio.median:.3f} (quartiles {ratio.low:.3f} and {ratio.high:.3f}); features differ by "
        f"{difference:.1e} at most",
        highlight=False,
    )


def _seconds(turn: Callable[[], Tensor]) -> float:
    started = time.process_time()
    turn()
    return time.process_time() - started


if __name__ == "__main__":
    main()
