"""Time to draw the masks of a batch: all at once, against the usual loop over images and blocks.

    python benchmarks/masking.py

Both give the same kind of masks: uniform locations, no target in the context, a random part of each context kept.
The two take turns, so that other processes affect both; times are medians of processor time.
"""

import statistics
import time
from collections.abc import Callable

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from flexpredict.masking import Masks, sample_masks
from flexpredict.randomness import stream_key
from flexpredict.settings.masking import Masking

_SETTINGS = [((8, 8), 256), ((14, 14), 256), ((14, 14), 2048), ((56, 56), 64)]
_TURNS = 9
# Calls in one turn: a turn of the sampler would otherwise be too short to time.
_CALLS = {"sampled": 20, "looped": 1}


def main() -> None:
    torch.set_num_threads(1)  # masks are drawn beside the data workers: one core
    # After a first large allocation is freed, malloc keeps such memory, as it does in any training run.
    torch.ones(2**22)
    headings = ("grid", "batch", "at once, ms", "loop, ms", "loop / at once")
    table = Table(*headings, box=box.MARKDOWN, title="Multi-block masks, one core")
    for grid, batch in _SETTINGS:
        at_once, loop = _median_seconds(grid, batch)
        table.add_row(
            f"{grid[0]}x{grid[1]}", str(batch), f"{at_once * 1e3:.2f}", f"{loop * 1e3:.1f}", f"{loop / at_once:.0f}"
        )
    Console().print(table)


def sampled(masking: Masking, grid: tuple[int, int], step: int, batch: int) -> Masks:
    """Draws masks as training does at each step."""
    return sample_masks(masking, grid, stream_key(0, "masks", step), batch)


def looped(masking: Masking, grid: tuple[int, int], step: int, batch: int) -> Masks:
    """Draws the same kind of masks image by image and block by block, as is usual."""
    generator = torch.Generator().manual_seed(step)
    scale, aspect, context_scale = torch.rand(3, generator=generator).tolist()
    area = grid[0] * grid[1] * _between(masking.target_scale, scale)
    ratio = _between(masking.target_aspect, aspect)
    side = _between(masking.context_scale, context_scale) ** 0.5
    target = (round((area * ratio) ** 0.5), round((area / ratio) ** 0.5))
    context = (round(grid[0] * side), round(grid[1] * side))

    all_targets, all_contexts = [], []
    for _ in range(batch):
        while True:
            targets = [_block(grid, target, generator) for _ in range(masking.targets)]
            left = _block(grid, context, generator)
            for block in targets:
                left &= ~block
            patches = left.flatten().nonzero().squeeze(-1)
            if len(patches) >= masking.min_context * grid[0] * grid[1]:
                break
        all_targets.append(torch.stack([block.flatten().nonzero().squeeze(-1) for block in targets]))
        all_contexts.append(patches)
    count = min(len(patches) for patches in all_contexts)
    kept = [_random_part(patches, count, generator) for patches in all_contexts]
    return Masks(torch.stack(kept).unsqueeze(1), torch.stack(all_targets).unsqueeze(1))


def _block(grid: tuple[int, int], size: tuple[int, int], generator: torch.Generator) -> Tensor:
    """A mask of a block at a random location."""
    top = int(torch.randint(0, grid[0] - size[0] + 1, (1,), generator=generator))
    left = int(torch.randint(0, grid[1] - size[1] + 1, (1,), generator=generator))
    mask = torch.zeros(grid, dtype=torch.bool)
    mask[top : top + size[0], left : left + size[1]] = True
    return mask


def _random_part(patches: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return patches[torch.randperm(len(patches), generator=generator)[:count]].sort().values


def _between(span: tuple[float, float], number: float) -> float:
    return span[0] + number * (span[1] - span[0])


def _median_seconds(grid: tuple[int, int], batch: int) -> list[float]:
    """Processor time of one call of each function; they take turns."""
    functions: list[Callable[..., Masks]] = [sampled, looped]
    seconds: list[list[float]] = [[] for _ in functions]
    for turn in range(_TURNS):
        for function, times in zip(functions, seconds, strict=True):
            calls = _CALLS[function.__name__]
            start = time.process_time()
            for call in range(calls):
                function(Masking(), grid, turn * calls + call, batch)
            times.append((time.process_time() - start) / calls)
    return [statistics.median(times) for times in seconds]


if __name__ == "__main__":
    main()
