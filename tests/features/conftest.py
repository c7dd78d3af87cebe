"""For the tests of features."""

import pytest
from small_embedding import PART

from flexpredict.features import parts as parts_module


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few pictures make several parts."""
    monkeypatch.setattr(parts_module, "_MOST_IMAGES", PART)
