"""Simulates the paper's recipes on many accelerators: time, and what limits it.

    python benchmarks/scale.py
    python benchmarks/scale.py --on h100 --accelerators 8 64 512 --configs vit_h14

A step takes as long as the longest of three: computing, plus the part of adding up gradients that does not overlap
with it; drawing masks and starting kernels, which the processor does meanwhile; reading images. Measured on this
machine: drawing the masks (processor time, one core). Counted: operations, bytes, and the operators that a step
calls. All else is set by options, with defaults from data sheets and earlier measurements.
"""

import argparse
import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from machine import announce_machine
from rich import box
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode

from flexpredict.costs.accelerators import ACCELERATORS, Accelerator
from flexpredict.costs.estimate import Estimate, estimate
from flexpredict.costs.passes import CONTEXT, PREDICTOR, mask_grid
from flexpredict.data.sources.opening import ArraySource
from flexpredict.masking import sample_masks
from flexpredict.randomness import sample_keys, stream_key
from flexpredict.training.checkpoint_timer import seconds_between
from flexpredict.training.plan import Plan, make_plan
from flexpredict.training.recipe_parser import make_recipe

_IMAGES = 1_281_167  # ImageNet-1k
_BUCKET = 25e6  # bytes of gradients that DDP adds up at a time
_DAY = 86_400


@dataclass(frozen=True)
class Step:
    """Milliseconds of a step."""

    computing: float
    exposed: float  # adding up gradients, as far as it does not overlap with computing
    processor: float
    reading: float

    @property
    def total(self) -> float:
        return max(self.computing + self.exposed, self.processor, self.reading)

    @property
    def limit(self) -> str:
        if self.total == self.processor:
            return "processor: masks and kernel launches"
        if self.total == self.reading:
            return "reading images"
        return "communication" if self.exposed > 0.5 * self.computing else "computing"


def main() -> None:
    options = parse_arguments()
    torch.set_num_threads(1)
    console = announce_machine()
    accelerator = ACCELERATORS[options.on]
    table = Table("recipe", box=box.MARKDOWN, title=f"{options.on}, {options.utilization:.0%} of its peak")
    headings = ("accelerators", "images each", "parts", "computing, ms", "gradients, ms", "not hidden, ms")
    for heading in (*headings, "processor, ms", "cores to read", "step, ms", "days", "checkpoints", "limit"):
        table.add_column(heading, justify="right")
    for config in options.configs:
        whole = estimate(_plan(config, 1), "cuda")
        masks = _mask_milliseconds(whole.plan)
        operators = _operators(whole.plan)
        console.print(
            f"{config}: masks {masks:.1f} ms, {operators:,} operators a step, "
            f"{whole.operations / 1e9:.0f} GFLOP an image, {4e-9 * whole.trained:.2f} GB of gradients",
            highlight=False,
        )
        for count in options.accelerators:
            here = estimate(_plan(config, count), "cuda", count)
            table.add_row(config, *_cells(here, accelerator, count, masks, operators, options))
    console.print(table)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", nargs="+", default=["vit_b16", "vit_l16", "vit_h14"])
    parser.add_argument("--accelerators", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--on", choices=ACCELERATORS, default="a100-80gb")
    parser.add_argument("--utilization", type=float, default=0.4, help="share of the peak speed (stated: 0.4)")
    parser.add_argument("--per_node", type=int, default=8, help="accelerators of a machine")
    parser.add_argument(
        "--network", type=float, default=25, help="GB/s between machines, each accelerator (200 Gb/s)"
    )
    parser.add_argument("--wire", type=float, default=0.8, help="share of links' speed that all-reduce reaches")
    parser.add_argument("--latency", type=float, default=10, help="microseconds of a hop")
    parser.add_argument("--launch", type=float, default=10, help="microseconds of the processor for an operator")
    parser.add_argument("--cores", type=int, default=16, help="cores for each accelerator")
    parser.add_argument(
        "--reads", type=float, default=805, help="images/s of a core (benchmarks/decoding.py, packed)"
    )
    parser.add_argument("--disk", type=float, default=1, help="GB/s at which the first rank writes a checkpoint")
    return parser.parse_args()


def _cells(
    here: Estimate, accelerator: Accelerator, count: int, masks: float, operators: int, options: Any
) -> list[str]:
    recipe = here.plan.recipe
    each = recipe.batch_size // count
    parts = _parts(here, accelerator, each)
    computing = 1e3 * each * here.operations / (options.utilization * accelerator.peak(recipe.precision))
    gradients = _all_reduce(4 * here.trained, count, accelerator, options)
    trained = sum(here.parts[name].operations for name in (CONTEXT, PREDICTOR))
    backward = computing / parts * 2 / 3 * trained / here.operations  # of the last part
    step = Step(
        computing,
        max(gradients - backward, 0.0),
        masks + parts * operators * options.launch / 1e3,
        1e3 * each / (options.reads * options.cores),
    )
    seconds = here.plan.steps * step.total / 1e3
    memory = here.memory()
    checkpoint = (memory.weights + memory.optimizer) / options.disk / 1e9
    saving = seconds / seconds_between(checkpoint) * checkpoint
    return [
        str(count),
        str(each),
        str(parts),
        *(f"{value:.1f}" for value in (computing, gradients, step.exposed, step.processor)),
        f"{1e3 * each / step.total / options.reads:.1f}",
        f"{step.total:.1f}",
        f"{(seconds + saving) / _DAY:.2f}",
        f"{saving / (seconds + saving):.1%}",
        step.limit,
    ]


def _plan(config: str, ranks: int) -> Plan:
    image = torch.zeros(1, 224, 224, 3, dtype=torch.uint8)
    source = ArraySource("images", image.expand(_IMAGES, -1, -1, -1))
    return make_plan(make_recipe({}, config), source, torch.device("cpu"), ranks)


def _parts(here: Estimate, accelerator: Accelerator, each: int) -> int:
    """Smallest number of equal parts of a device's images such that each fits into its memory."""
    fits = here.largest_batch(0.9 * accelerator.memory)
    return next(parts for parts in range(1, each + 1) if each % parts == 0 and each // parts <= fits)


def _all_reduce(size: float, count: int, accelerator: Accelerator, options: Any) -> float:
    """Milliseconds: a ring limited by its slowest link, and the hops of a tree for each bucket."""
    # Several rings go through a machine, each on its own network card.
    outside = options.per_node * options.network
    link = accelerator.link if count <= options.per_node else min(accelerator.link, outside)
    sent = 2 * (count - 1) / count * size / (options.wire * link * 1e9)
    hops = math.ceil(size / _BUCKET) * 2 * math.ceil(math.log2(count)) * options.latency / 1e6
    return float(1e3 * (sent + hops))


def _mask_milliseconds(plan: Plan, calls: int = 20) -> float:
    """Time to draw the masks of the whole batch, which every rank does."""
    recipe = plan.recipe
    grid = (plan.image_size[0] // recipe.patch_size, plan.image_size[1] // recipe.patch_size)
    started = time.process_time()
    for step in range(calls):
        sample_masks(recipe.masking, grid, stream_key(0, "masks", step), recipe.batch_size)
    return 1e3 * (time.process_time() - started) / calls


class _Counting(TorchDispatchMode):
    """Counts operators that start work on a device; views do not."""

    count: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def _operators(plan: Plan) -> int:
    with torch.device("meta"):
        model = plan.build_model()
    masks = sample_masks(plan.recipe.masking, mask_grid(model, model.context_encoder.grid), 0, 2)
    given = [masks.context, masks.targets, sample_keys(0, torch.arange(2)[:, None])]
    images = torch.empty(2, 3, *plan.image_size, device="meta")
    counting = _Counting()  # type: ignore[no-untyped-call]
    with counting:
        model(images, *(tensor.to("meta") for tensor in given)).loss.backward()
    return counting.count


if __name__ == "__main__":
    main()
