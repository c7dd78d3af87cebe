"""Reading broken files again and again takes no more memory than reading them once."""

import subprocess
import sys
from pathlib import Path

_READ = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from hostile.corpus import write_corpus
import torch
from flexpredict.data.augmentation import draw_crops
from flexpredict.settings.augmentation import PRESETS
from flexpredict.data.sources.folders import open_folder

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

write_corpus(Path(sys.argv[1]))
source = open_folder(Path(sys.argv[1]), lambda found: None)
indices = torch.arange(len(source))
sizes = []
for epoch in range(8):
    for part in indices.split(50):
        source.read(part, draw_crops(PRESETS["stop"], part + epoch * len(source)), (32, 32))
    sizes.append(resident())
print(max(sizes[:3]), max(sizes[5:]), len(list(Path("/proc/self/fd").iterdir())))
"""


def test_eight_epochs_of_hostile_files_take_no_more_memory_than_three(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _READ, str(tmp_path / "corpus"), str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    early, late, descriptors = map(float, done.stdout.split())
    assert late < early + 16, "megabytes"
    assert descriptors < 20
