"""Reading broken files again and again takes no more memory than reading them once."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from ranks import warm_processes

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.sources.folders import open_folder
from flexpredict.settings.augmentation import PRESETS
from hostile.corpus import write_corpus


def test_eight_epochs_of_hostile_files_take_no_more_memory_than_three(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    with ProcessPoolExecutor(1, mp_context=warm_processes()) as process:
        sizes, descriptors = process.submit(_read, tmp_path / "corpus").result()
    assert max(sizes[5:]) < max(sizes[:3]) + 16, "megabytes"
    assert descriptors < 20


def _read(corpus: Path) -> tuple[list[float], int]:
    """The memory of this process after each of eight epochs, and its open files."""
    torch.set_num_threads(1)
    source = open_folder(corpus, lambda found: None)
    sizes = []
    for epoch in range(8):
        for part in torch.arange(len(source)).split(50):
            source.read(part, draw_crops(PRESETS["stop"], part + epoch * len(source)), (32, 32))
        sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20)
    return sizes, len(list(Path("/proc/self/fd").iterdir()))
