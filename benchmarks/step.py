"""Speed of a pre-training step, compared with peers and with the machine's speed at matrix products.

    python benchmarks/step.py                    # three model sizes: about five minutes on two quiet cores
    python benchmarks/step.py --settings vit-ti4 --rounds 5 --json step.json

A step is masks, target encoder, context encoder, predictor, loss, backward, AdamW and moving average; the images are
random and in memory. All contenders take turns, and times are processor time, which other processes disturb less. The
straightforward peer gets the same masks, the package `lightly` draws its own. Both start from our weights, and before
anything is timed, they must agree with us on the loss and on the gradient of the first weight, which depends on all
other parts. The package `stable-pretraining` has a predictor of its own, which sees all target blocks at once.

The last column is useful work over time, as a share of what large square products reach on this machine with the
faster of torch's matrix libraries. Useful work is the matrix products that the result depends on, for the tokens that
a contender was given (see flexpredict/costs). `--plain` uses MKL for our linear layers and the square products.
"""

import argparse
import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from machine import (
    Contender,
    SquareProducts,
    announce_machine,
    describe_machine,
    save_numbers,
    spread,
    take_turns,
)
from rich import box
from rich.console import Console
from rich.table import Table
from straightforward import Straightforward
from torch import Tensor

from flexpredict.costs.passes import Tokens, flops_by_part, passes_of
from flexpredict.masking import Masks, sample_masks
from flexpredict.methods.ijepa import IJEPA
from flexpredict.model import linear
from flexpredict.model.building import build_encoder
from flexpredict.model.linear import bfloat16_is_faster
from flexpredict.model.predictor import Predictor
from flexpredict.randomness import normal, sample_keys, stream_key
from flexpredict.settings.masking import Masking
from flexpredict.settings.optimizer import SettledOptimizer
from flexpredict.settings.positions import Positions
from flexpredict.training.optimizer import build_optimizers
from flexpredict.training.precision import low_precision


@dataclass(frozen=True)
class Setting:
    """A model and a batch small enough for a CPU."""

    title: str
    model: str
    image_size: int
    patch_size: int
    batch: int
    predictor: tuple[int, int, int]  # dim, depth, heads
    rounds: int
    options: dict[str, Any] = field(default_factory=dict)


SETTINGS = {
    "vit-b16": Setting("ViT-B/16, 224 px", "vit_base_patch16_224", 224, 16, 4, (384, 6, 12), rounds=7),
    "vit-s16": Setting("ViT-S/16, 224 px", "vit_small_patch16_224", 224, 16, 8, (192, 6, 6), rounds=9),
    "vit-ti4": Setting("ViT-Ti/4, 32 px", "vit_tiny_patch16_224", 32, 4, 64, (96, 6, 3), rounds=11),
}
QUICK = Setting(
    "two blocks, 32 px",
    "vit_tiny_patch16_224",
    32,
    4,
    4,
    (24, 2, 2),
    3,
    {"embed_dim": 48, "depth": 2, "num_heads": 2},
)
MASKING = Masking()
OURS, STOCHASTIC, STRAIGHTFORWARD = "flexpredict, sin-cos", "flexpredict, StoP", "straightforward"
BF16 = "flexpredict, sin-cos, bf16-mixed"
LIGHTLY, STABLE = "lightly", "stable-pretraining"
_PRODUCTS = "square products"


class Ours:
    """A contender: the hot path of `flexpredict.training.loop`, without data, schedules and logs."""

    def __init__(self, model: IJEPA, images: Tensor, precision: str = "32-true") -> None:
        self.model, self.images, self.precision = model, images, precision
        self.first_weight = model.context_encoder.vit.patch_embed.proj.weight
        (self.optimizer,) = build_optimizers(SettledOptimizer(lr=1e-4, weight_decay=0.04), model)

    def __call__(self, number: int) -> None:
        masks = draw_masks(self.model, number, len(self.images))
        keys = noise_keys(number, len(self.images))
        with low_precision(self.images.device, self.precision):
            loss = self.model(self.images, masks.context, masks.targets, keys).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.model.update_target_encoder(0.996)

    def loss(self, masks: Masks) -> Tensor:
        loss: Tensor = self.model(self.images, masks.context, masks.targets).loss
        return loss


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    if arguments.plain:
        linear.onednn_is_faster = lambda: False  # type: ignore[assignment]
    console = announce_machine()
    machine = describe_machine()
    chosen = [QUICK] if arguments.quick else [SETTINGS[name] for name in arguments.settings]
    numbers = []
    for setting in (dataclasses.replace(each, rounds=arguments.rounds or each.rounds) for each in chosen):
        result = measure(setting, console, SquareProducts(256 if arguments.quick else 2048))
        console.print(table_of(setting, result))
        numbers.append(result)
    if arguments.json:
        save_numbers(arguments.json, machine, numbers)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--rounds", type=int, help="timed steps of each contender (default: 7 to 11, by setting)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="use torch's usual matrix library for our linear layers")
    parser.add_argument("--quick", action="store_true", help="a toy model, to check that everything runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the numbers here")
    return parser.parse_args()


def measure(setting: Setting, console: Console, products: SquareProducts) -> dict[str, Any]:
    """Times of all contenders, and the numbers derived from them."""
    model = build_model(setting, "sincos")
    images = random_images(setting)
    masks = [draw_masks(model, number, setting.batch) for number in range(setting.rounds + 1)]
    ours = Ours(model, images)
    straightforward = Straightforward(model, images, MASKING, masks)
    peers: dict[str, Any] = {STRAIGHTFORWARD: straightforward}
    lightly = find_peer(LIGHTLY, model, images, console)
    if lightly is not None:
        peers[LIGHTLY] = lightly
    refuse_unequal(ours, peers, masks[0])
    stable = find_peer(STABLE, model, images, console)
    if stable is not None:
        peers[STABLE] = stable

    counted = {False: model, True: build_model(setting, "stochastic")}
    contenders: dict[str, Contender] = {OURS: ours, STOCHASTIC: Ours(counted[True], images)}
    if bfloat16_is_faster():
        contenders[BF16] = Ours(build_model(setting, "sincos"), images, "bf16-mixed")
    console.print(f"{setting.title}: {setting.rounds} rounds of {len(contenders) + len(peers)} contenders ...")
    seconds = take_turns({**contenders, **peers, _PRODUCTS: products}, setting.rounds)
    speed = products.flops / statistics.median(seconds.pop(_PRODUCTS))

    given = [tokens_of(drawn) for drawn in masks[1:]]
    result: dict[str, Any] = {
        "setting": dataclasses.asdict(setting),
        "matmul_gflops": speed / 1e9,
        "contenders": {},
    }
    own_masks = {LIGHTLY: lightly, STABLE: stable}
    for name, times in seconds.items():
        peer = own_masks.get(name)
        tokens = [peer.tokens[number] for number in range(1, setting.rounds + 1)] if peer else given
        flops = [useful_flops(counted[name == STOCHASTIC], setting.batch, seen, targets) for seen, targets in tokens]
        result["contenders"][name] = {
            "seconds": times,
            "images_per_second": setting.batch / statistics.median(times),
            "times_ours": dataclasses.asdict(spread(ratios(times, seconds[OURS]))),
            "context_tokens": statistics.mean(context for context, _ in tokens),
            "target_tokens": statistics.mean(blocks * length for _, (blocks, length) in tokens),
            "useful_gflop": statistics.mean(flops) / 1e9,
            "share_of_matmul": dataclasses.asdict(spread([work / speed for work in ratios(flops, times)])),
        }
    return result


def table_of(setting: Setting, result: dict[str, Any]) -> Table:
    table = Table(
        box=box.MARKDOWN,
        title=f"{setting.title}, batch {setting.batch}; square products reach {result['matmul_gflops']:.0f} GFLOP/s",
        caption="medians (and quartiles) of rounds",
    )
    table.add_column("step")
    for heading in ("seconds", "images/s", "time, ours = 1", "tokens seen + predicted", "of square products"):
        table.add_column(heading, justify="right")
    for name, numbers in result["contenders"].items():
        seconds, relative, share = spread(numbers["seconds"]), numbers["times_ours"], numbers["share_of_matmul"]
        table.add_row(
            name,
            f"{seconds.median:.3g} ({seconds.low:.3g}–{seconds.high:.3g})",
            f"{numbers['images_per_second']:.2f}",
            f"{relative['median']:.3f} ({relative['low']:.3f}–{relative['high']:.3f})",
            f"{numbers['context_tokens']:.1f} + {numbers['target_tokens']:.1f}",
            f"{share['median']:.1%} ({share['low']:.0%}–{share['high']:.0%})",
        )
    return table


def build_model(setting: Setting, kind: Any) -> IJEPA:
    """A model whose weights do not depend on the kind of positions."""
    size = (setting.image_size, setting.image_size)
    encoder = build_encoder(setting.model, size, setting.patch_size, options=setting.options)
    return IJEPA(encoder, Predictor(encoder.dim, encoder.grid, *setting.predictor, Positions(kind)))


def random_images(setting: Setting) -> Tensor:
    keys = sample_keys(stream_key(0, "images"), torch.arange(setting.batch))
    return normal(keys, 3 * setting.image_size**2).view(-1, 3, setting.image_size, setting.image_size)


def draw_masks(model: IJEPA, number: int, batch: int) -> Masks:
    return sample_masks(MASKING, model.context_encoder.grid, stream_key(0, "masks", number), batch)


def noise_keys(number: int, batch: int) -> Tensor:
    return sample_keys(stream_key(0, "noise", number), torch.arange(batch)[:, None])


def tokens_of(masks: Masks) -> tuple[int, tuple[int, int]]:
    """Number of context patches; numbers of target blocks and of patches in each."""
    return masks.context.shape[-1], (masks.targets.shape[-2], masks.targets.shape[-1])


def useful_flops(model: IJEPA, images: int, context: int, targets: tuple[int, int]) -> int:
    """Operations of one step. context: visible patches of an image; targets: its blocks, and patches of each."""
    patches = math.prod(model.context_encoder.grid)
    passes = passes_of(model, Tokens(patches, context, 1, *targets))
    return images * sum(flops_by_part(passes).values())


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    return [above / below for above, below in zip(numerators, denominators, strict=True)]


def find_peer(name: str, model: IJEPA, images: Tensor, console: Console) -> Any:
    try:
        if name == LIGHTLY:
            from lightly_peer import Lightly

            return Lightly(model, images, MASKING)
        from stable_peer import StablePretraining

        return StablePretraining(model, images, MASKING)
    except Exception as error:  # peers are optional: if one fails, the others are still measured
        console.print(f"[yellow]Without {name}, which cannot be used here: {error!r}[/yellow]")
        return None


def refuse_unequal(ours: Ours, peers: dict[str, Any], masks: Masks) -> None:
    """Refuse to compare contenders that do not compute the same.

    The loss alone would not show this: a new predictor outputs almost zero, so it depends mostly on the targets.
    """
    expected, expected_gradient = loss_and_gradient(ours, masks)
    for name, peer in peers.items():
        loss, gradient = loss_and_gradient(peer, masks)
        apart = float((gradient - expected_gradient).norm() / expected_gradient.norm())
        if abs(loss - expected) > 1e-4 or apart > 1e-3:
            raise SystemExit(
                f"No fair comparison: {name} has a loss of {loss:.6f}, {OURS} has {expected:.6f}; the relative "
                f"difference of the gradients of their first weights is {apart:.2g}."
            )


def loss_and_gradient(contender: Any, masks: Masks) -> tuple[float, Tensor]:
    loss = contender.loss(masks)
    (gradient,) = torch.autograd.grad(loss, contender.first_weight)
    return loss.item(), gradient


if __name__ == "__main__":
    main()
