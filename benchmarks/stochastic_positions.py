"""Cost of stochastic positions: time and memory of a step with StoP against one with sin-cos positions.

    python benchmarks/stochastic_positions.py        # ViT-B/16 and ViT-Ti/4: about three minutes on two quiet cores

The paper claims no overhead. One model takes both kinds of step in turns, on the same images and masks, with the
noise on or off. Time is the median over rounds of the ratio of the two, with a 95 % confidence interval. This hardly
resolves a percent, so the additional work of StoP (drawing the noise, projecting it, the gradient of A) is also timed
alone. Memory is all that the forward pass keeps for the backward pass, counted to the byte.
"""

import argparse
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from machine import Contender, announce_machine, describe_machine, save_numbers, spread, take_turns
from rich import box
from rich.table import Table
from step import QUICK, SETTINGS, Ours, Setting, build_model, draw_masks, noise_keys, random_images, ratios
from torch import Tensor

from flexpredict.methods.ijepa import IJEPA

_SINCOS, _STOCHASTIC, _ALONE = "sin-cos", "StoP", "alone"
_ROUNDS = {"vit-b16": 13, "vit-ti4": 25}


class Switched:
    """A contender: a step of the shared model with the noise at this level."""

    def __init__(self, ours: Ours, noise_std: float) -> None:
        self.ours, self.noise_std = ours, noise_std

    def __call__(self, number: int) -> None:
        self.ours.model.predictor.stochastic.noise_std = self.noise_std
        self.ours(number)


class NoiseAlone:
    """A contender: the additional work of StoP in a step, forward and backward."""

    def __init__(self, model: IJEPA, setting: Setting, noise_std: float) -> None:
        self.stochastic, self.noise_std, self.batch = model.predictor.stochastic, noise_std, setting.batch
        targets = (draw_masks(model, number, setting.batch).targets for number in range(setting.rounds + 1))
        self.shapes = [indices.flatten(0, 1).shape for indices in targets]

    def __call__(self, number: int) -> None:
        projection = self.stochastic.projection
        self.stochastic.noise_std = self.noise_std
        masked = torch.zeros(*self.shapes[number], projection.weight.shape[0])
        moved = self.stochastic(masked, noise_keys(number, self.batch).flatten())
        moved.backward(masked)
        projection.weight.grad = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(_ROUNDS))
    parser.add_argument("--rounds", type=int, help="timed pairs of steps (default: 13 to 25, by setting)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a toy model, to check that everything runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the numbers here")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    console = announce_machine()
    machine = describe_machine()

    settings = {"quick": QUICK} if arguments.quick else {name: SETTINGS[name] for name in arguments.settings}
    table = Table(box=box.MARKDOWN, title="Stochastic against sin-cos positions")
    table.add_column("model")
    for heading in ("step, s", "time, StoP / sin-cos (95 %)", "StoP alone / step", "activations", "parameters"):
        table.add_column(heading, justify="right")
    numbers = []
    for name, setting in settings.items():
        rounds = arguments.rounds or _ROUNDS.get(name, setting.rounds)
        console.print(f"{setting.title}: {rounds} rounds ...")
        result = measure(dataclasses.replace(setting, rounds=rounds))
        table.add_row(*cells(setting, result))
        numbers.append(result)
    console.print(table)
    if arguments.json:
        save_numbers(arguments.json, machine, numbers)


def measure(setting: Setting) -> dict[str, Any]:
    model = build_model(setting, "stochastic")
    noise_std = model.predictor.stochastic.noise_std
    ours = Ours(model, random_images(setting))
    contenders: dict[str, Contender] = {
        _SINCOS: Switched(ours, 0.0),
        _STOCHASTIC: Switched(ours, noise_std),
        _ALONE: NoiseAlone(model, setting, noise_std),
    }
    seconds = take_turns(contenders, setting.rounds)
    relative = ratios(seconds[_STOCHASTIC], seconds[_SINCOS])
    return {
        "setting": dataclasses.asdict(setting),
        "seconds": seconds,
        "time_ratio": {"median": spread(relative).median, "interval": median_interval(relative)},
        "alone_over_step": spread(ratios(seconds[_ALONE], seconds[_SINCOS])).median,
        "kept_bytes": {_SINCOS: kept_bytes(ours, 0.0), _STOCHASTIC: kept_bytes(ours, noise_std)},
        "parameters": {
            name: sum(parameter.numel() for parameter in build_model(setting, kind).parameters())
            for name, kind in ((_SINCOS, "sincos"), (_STOCHASTIC, "stochastic"))
        },
    }


def cells(setting: Setting, result: dict[str, Any]) -> list[str]:
    low, high = result["time_ratio"]["interval"]
    kept, parameters = result["kept_bytes"], result["parameters"]
    equal = parameters[_SINCOS] == parameters[_STOCHASTIC]
    return [
        f"{setting.title}, batch {setting.batch}",
        f"{spread(result['seconds'][_SINCOS]).median:.3g}",
        f"{result['time_ratio']['median']:.4f} ({low:.4f}–{high:.4f})",
        f"{result['alone_over_step']:.2%}",
        f"{kept[_SINCOS] / 1e6:.1f} MB {kept[_STOCHASTIC] / kept[_SINCOS] - 1:+.2%}",
        f"{parameters[_SINCOS]:,} {'both' if equal else f'and {parameters[_STOCHASTIC]:,}'}",
    ]


def kept_bytes(ours: Ours, noise_std: float) -> int:
    """Bytes of all tensors that the forward pass keeps for the backward pass, without weights and inputs.

    They all exist at the end of the forward pass, when a step needs most memory.
    """
    model, images = ours.model, ours.images
    masks, keys = draw_masks(model, 0, len(images)), noise_keys(0, len(images))
    given = (*model.parameters(), *model.buffers(), images, masks.context, masks.targets, keys)
    known = {tensor.untyped_storage().data_ptr() for tensor in given}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    model.predictor.stochastic.noise_std = noise_std
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        prediction = model(images, masks.context, masks.targets, keys)
    # The graph keeps every storage alive until here, so no two of them had the same address.
    del prediction
    return sum(kept.values())


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """A confidence interval of the median for any distribution: two of the sorted values.

    Each value falls below the median with probability 1/2, so their number is binomial. Fewer than six values do not
    reach this confidence: they give the whole range.
    """
    ordered, count = sorted(values), len(values)
    outside, tail = 0, 0.5**count
    while tail + math.comb(count, outside + 1) * 0.5**count <= (1 - confidence) / 2:
        outside += 1
        tail += math.comb(count, outside) * 0.5**count
    return ordered[outside], ordered[-1 - outside]


if __name__ == "__main__":
    main()
