"""For all tests: no network, and the tests' own folder on the path."""

import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path[:0] = [str(Path(__file__).parent), *map(str, Path(__file__).parent.glob("*/"))]
