"""How similar a position is to all others, with and without noise (the paper's Figure 5).

For a query patch q the maps show the cosine of ψ_q + A n with each sin-cos position ψ_k: without noise, for one draw
of n, and on average over many draws.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from flexpredict.errors import UserError
from flexpredict.model.positions import noise_to_signal
from flexpredict.randomness import normal, sample_keys, stream_key
from flexpredict.sizes import Grid
from flexpredict.studies.analyses.opening import OpenedModel
from flexpredict.studies.analyses.output import Analysis, places_for, write_arrays
from flexpredict.studies.figures import drawing

_DRAWS_AT_ONCE = 256
_TITLE_WIDTH = 16  # letters per line above a map, so that titles do not overlap


@dataclass(frozen=True, eq=False)
class Similarities:
    """Cosines of Q query positions with all N, each Q N."""

    deterministic: Tensor
    one_draw: Tensor
    mean: Tensor


def similarities(
    positions: Tensor, matrix: Tensor, noise_std: float, queries: Tensor, draws: int, seed: int = 0
) -> Similarities:
    """positions: ψ N d_p; matrix: A d_p d_n; queries: Q int64, patches."""
    places = F.normalize(positions, dim=1)
    asked = positions[queries]
    total = torch.zeros(len(queries), len(positions), dtype=torch.float64)
    first = torch.empty(0)
    key = stream_key(seed, "noise of the positions figure")
    for start in range(0, draws, _DRAWS_AT_ONCE):
        numbers = torch.arange(start, min(start + _DRAWS_AT_ONCE, draws))
        # One stream for each draw of each query, so that more draws do not change the earlier ones.
        keys = sample_keys(key, numbers[:, None] * len(positions) + queries)
        moved = asked + noise_std * normal(keys, matrix.shape[1]) @ matrix.T  # draws Q d_p
        cosines = F.normalize(moved, dim=-1) @ places.T
        first = cosines[0] if start == 0 else first
        total += cosines.sum(dim=0, dtype=torch.float64)
    return Similarities(F.normalize(asked, dim=1) @ places.T, first, (total / draws).float())


def draw_positions(
    opened: OpenedModel,
    out: Path,
    *,
    queries: Sequence[str] = (),
    noise_std: float | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Analysis:
    """Write positions.png and positions.npz. queries: "ROW,COLUMN", from 1; noise_std: default, the run's own."""
    if draws < 1:
        raise UserError(f"draws={draws} is too small: at least one draw is needed.")
    grid, level = opened.tokens.grid, opened.level(noise_std)
    asked = torch.tensor([place(text, grid, "queries") for text in queries] or _usual_queries(grid))
    found = similarities(opened.positions, opened.matrix, level, asked, draws, seed)
    ratio = noise_to_signal(opened.matrix, opened.positions, level)
    columns = {
        "deterministic": found.deterministic,
        f"one draw, noise_std {level:.3g}": found.one_draw,
        f"mean of {draws:,} draws": found.mean,
    }
    picture, data = places_for(out, "positions", "npz")
    write_arrays(data, queries=asked, grid=grid, noise_std=level, noise_to_signal=ratio, **vars(found))
    _draw(picture, columns, asked, grid, f"{opened.label}: ‖A n‖ / ‖ψ‖ = {ratio:.2f}")
    factor, rest = _shrinkage(found)
    lines = [
        f"The noise is {ratio:.2f} times as long as ψ. On average it multiplies the map by {factor:.2f}; this "
        f"leaves {100 * rest:.1f} % of the variance of the mean map unexplained.",
    ]
    if not level:
        lines.append("This run has no noise, so the columns are equal. Give noise_std to see the effect of noise.")
    table = [
        {
            "query": in_words(int(query), grid),
            **{title: _summary(maps[number], int(query), grid) for title, maps in columns.items()},
        }
        for number, query in enumerate(asked)
    ]
    return Analysis(picture, data, tuple(lines), tuple(table))


def _shrinkage(found: Similarities) -> tuple[float, float]:
    """Fits the mean map by a multiple of the deterministic one: the factor, and the unexplained share of variance."""
    clean, mean = found.deterministic.double(), found.mean.double()
    factor = float((clean * mean).sum() / clean.square().sum())
    spread = (mean - mean.mean(dim=1, keepdim=True)).square().sum()
    return factor, float((mean - factor * clean).square().sum() / spread.clamp_min(1e-12))


def _usual_queries(grid: Grid) -> list[int]:
    """A corner, the middle of an edge, and two inside."""
    rows, columns = grid
    chosen = ((0, 0), (0, columns // 2), (rows // 2, columns // 2), (3 * rows // 4, columns // 4))
    return list(dict.fromkeys(row * columns + column for row, column in chosen))


def _summary(similarity: Tensor, query: int, grid: Grid) -> str:
    """Similarity at the query, and its mean over the neighbors and over all others."""
    near, far = neighborhood(query, grid)
    return f"{similarity[query]:.2f} / {similarity[near].mean():.2f} / {similarity[far].mean():.2f}"


def place(text: str, grid: Grid, option: str) -> int:
    """The index, row by row from 0, of the patch at "ROW,COLUMN", which are counted from 1."""
    found = re.fullmatch(r"(\d+)\s*,\s*(\d+)", text.strip())
    if found is None:
        raise UserError(f"{option}={text} is not a patch. Give ROW,COLUMN, counted from 1, such as {option}=2,3.")
    row, column = int(found[1]) - 1, int(found[2]) - 1
    if not (0 <= row < grid[0] and 0 <= column < grid[1]):
        raise UserError(
            f"{option}={text} is outside the grid of {grid[0]}x{grid[1]} patches: rows are 1 to {grid[0]}, "
            f"columns 1 to {grid[1]}."
        )
    return row * grid[1] + column


def in_words(index: int, grid: Grid) -> str:
    """Row and column from 1, as in `place` and on the page."""
    return f"row {index // grid[1] + 1}, column {index % grid[1] + 1}"


def neighborhood(query: int, grid: Grid) -> tuple[Tensor, Tensor]:
    """Masks of the eight neighbors of a patch and of all patches farther away: N bool each."""
    rows, columns = (torch.arange(length) for length in grid)
    distance = torch.maximum((rows - query // grid[1]).abs()[:, None], (columns - query % grid[1]).abs()).flatten()
    return distance == 1, distance > 1


def _draw(path: Path, columns: dict[str, Tensor], queries: Tensor, grid: Grid, title: str) -> None:
    count, aspect = len(queries), grid[0] / grid[1]
    with drawing(path, 6.6, 0.8 + 1.8 * aspect * count) as figure:
        axes = figure.subplots(count, len(columns), squeeze=False)
        low = min(float(maps.min()) for maps in columns.values())
        for column, (name, maps) in enumerate(columns.items()):
            for row, query in enumerate(queries.tolist()):
                axis = axes[row, column]
                # One scale for all, so that a map that is lower as a whole looks lower.
                shown = axis.imshow(maps[row].view(grid).numpy(), vmin=low, vmax=1.0, cmap="viridis")
                # Black on white is visible on any color of the map.
                for color, size in (("white", 7), ("black", 4)):
                    axis.plot(query % grid[1], query // grid[1], "s", color=color, markersize=size)
                axis.set(xticks=[], yticks=[], title="" if row else textwrap.fill(name, _TITLE_WIDTH))
                axis.set_ylabel("" if column else in_words(query, grid))
        figure.colorbar(shown, ax=axes, label="cosine similarity to each position", shrink=0.7)
        figure.suptitle(title, fontsize=11)
