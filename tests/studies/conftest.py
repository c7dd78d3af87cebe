"""For the tests of studies, which measure many encoders."""

import pytest

from flexpredict.evaluation import linear


@pytest.fixture(autouse=True)
def few_penalties(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a probe chooses its penalty is tested elsewhere; it takes longer than all else in a small study."""
    monkeypatch.setattr(linear, "L2_GRID", (1.0, 0.1))
