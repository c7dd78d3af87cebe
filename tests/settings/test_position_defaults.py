"""Which positions a method has by default."""

from typing import Any

import pytest

from flexpredict.settings.positions import Positions


@pytest.mark.parametrize(
    ("method", "given", "kind"),
    [
        ("ijepa", {}, "stochastic"),
        ("mae", {}, "sincos"),
        ("data2vec", {}, "sincos"),
        ("mae", {"l1": 0.1}, "sincos"),
        ("mae", {"noise_std": 0.25}, "stochastic"),
        ("mae", {"hold": True}, "stochastic"),
        ("ijepa", {"kind": "learned"}, "learned"),
        ("mae", {"kind": "stochastic"}, "stochastic"),
    ],
)
def test_noise_is_the_default_of_ijepa_and_of_who_speaks_of_it(method: str, given: dict[str, Any], kind: str) -> None:
    assert Positions(**given).of(method).kind == kind
