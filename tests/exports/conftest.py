"""For the tests of exports."""

from pathlib import Path

import pytest
from tiny import RECIPE

from flexpredict import pretrain


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By convention of the masked tokens; to be read only."""
    folder = tmp_path_factory.mktemp("runs")
    for convention in ("paper", "released"):
        settings = RECIPE | {"epochs": 0.5, "positions": {"convention": convention}}
        pretrain("scenes:48,size=32", folder / convention, **settings)
    return {convention: folder / convention for convention in ("paper", "released")}
