"""Memory growth in long runs: resident memory and open files over the steps of a small run.

python benchmarks/memory.py              # 10,000 steps
python benchmarks/memory.py --steps 500  # a quick check
"""

import argparse
import gc
import os
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console

from flexpredict import pretrain
from flexpredict.training.progress import TrainingProgress

_EVERY = 20  # steps between two measurements
_SETTLED = 0.2  # share of the run after which caches are full


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    steps = parser.parse_args().steps
    seen: list[tuple[int, float, int]] = []
    proceed = TrainingProgress.step

    def look(self: TrainingProgress, step: int) -> None:
        proceed(self, step)
        if step % _EVERY == 0:
            gc.collect()
            seen.append((step, _resident(), len(os.listdir("/proc/self/fd"))))  # noqa: PTH208

    TrainingProgress.step = look  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        pretrain(
            "scenes:512,size=32",
            out,
            model="vit_tiny_patch16_224",
            model_options={"embed_dim": 24, "depth": 2, "num_heads": 2},
            batch_size=8,
            epochs=steps * 8 / 512,
            checkpoint_every=max(1, steps // 50),
            accelerator="cpu",
        )
        lines = (out / "metrics.jsonl").stat().st_size
    settled = np.array([entry for entry in seen if entry[0] > _SETTLED * steps])
    slope, _ = np.polyfit(settled[:, 0], settled[:, 1], 1)
    spread = float(settled[:, 1].std())
    growth = slope * (settled[-1, 0] - settled[0, 0])
    Console().print(
        f"{steps:,} steps: resident {settled[0, 1]:.1f} to {settled[-1, 1]:.1f} MB, growth {growth:+.2f} MB "
        f"(spread {spread:.2f} MB), open files {int(settled[0, 2])} to {int(settled[-1, 2])}, "
        f"metrics.jsonl {lines / 1e3:.0f} kB",
        highlight=False,
    )


def _resident() -> float:
    """Resident memory in megabytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
