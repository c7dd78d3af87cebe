"""Cost of millions of files before the first batch: time to list them, and memory of all reading processes.

    python benchmarks/listing.py                    # 5,000,000 files, about four minutes; makes and removes them
    python benchmarks/listing.py --files 200000

The files are hard links to a hundred small pictures, a thousand in a folder. Memory is the proportional set size,
which counts pages shared by processes only once. For comparison, the same processes read a hundred files: that is the
memory of Python, torch and PIL; the difference is the listing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import announce_machine
from PIL import Image
from rich import box
from rich.table import Table

from flexpredict.data.scenes.scenes import draw_scenes

_PICTURES = 100
_PER_FOLDER = 1000
_WORKERS = 4

# Runs in a process of its own, so that memory for making the files is not counted.
_READ = """
import sys, time
from pathlib import Path
from flexpredict.settings.augmentation import PRESETS
from flexpredict.data.loader import training_batches
from flexpredict.data.sources.opening import open_source
started = time.perf_counter()
source = open_source(sys.argv[1])
listed = time.perf_counter() - started
batches = training_batches(source, PRESETS["ijepa"], [(32, 32)], seed=0, batch_size=64, first_step=0,
                           last_step=10**9, workers=int(sys.argv[2]))
started = time.perf_counter()
next(batches)
first = time.perf_counter() - started
for _ in range(200):
    next(batches)
def memory(pid, what):
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(what + ":")) / 1024
children = Path(f"/proc/self/task/{__import__('os').getpid()}/children").read_text().split()
processes = ["self", *children]
print(len(source), listed, first, len(children), sum(memory(p, "Pss") for p in processes), memory("self", "Rss"))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5_000_000)
    parser.add_argument("--where", type=Path, default=None, help="a folder on the disk to test (default: /tmp)")
    options = parser.parse_args()
    console = announce_machine()
    root = Path(tempfile.mkdtemp(dir=options.where))
    try:
        few, many = root / "few", root / "many"
        _make(few, _PICTURES)
        _make(many, options.files)
        time.sleep(3)  # Listings of recently changed folders are not cached.
        rows = []
        for name, folder in (("listed", few), ("listed", many), ("remembered", many)):
            environment = {**os.environ, "FLEXPREDICT_CACHE": str(root / "cache"), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-c", _READ, str(folder), str(_WORKERS)]
            said = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
            files, listed, first, _, shared, own = said.split()
            cells = (f"{float(listed):.2f}", f"{float(first):.2f}", f"{float(shared):,.0f}", f"{float(own):,.0f}")
            rows.append((f"{int(files):,}, {name}", *cells))
            print(f"{rows[-1][0]} ...", flush=True)
    finally:
        shutil.rmtree(root)
    memory = f"MB, main and {_WORKERS} workers"
    table = Table("files", "opened, s", "first batch, s", memory, "MB, main alone", box=box.MARKDOWN)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _make(folder: Path, count: int) -> None:
    folder.mkdir()
    pictures = folder.parent / f"{folder.name} pictures"
    pictures.mkdir()
    links = -(-count // _PICTURES)
    for number, image in enumerate(draw_scenes(np.arange(_PICTURES), size=32, seed=0).images):
        for copy in range(-(-links // 50_000)):  # The number of hard links to a file is limited.
            Image.fromarray(image).save(pictures / f"{number}-{copy}.png")
    for number in range(count):
        place = f"{folder}/class {number // _PER_FOLDER:05}"
        if number % _PER_FOLDER == 0:
            os.mkdir(place)  # noqa: PTH102 (a Path for each of five million would take minutes)
        picture = f"{pictures}/{number % _PICTURES}-{number // _PICTURES // 50_000}.png"
        os.link(picture, f"{place}/image_{number:08}.png")


if __name__ == "__main__":
    main()
