"""What bf16-mixed means on a CPU."""

from pathlib import Path

import pytest
import torch
from tiny import RECIPE

from flexpredict import pretrain
from flexpredict.training import precision
from flexpredict.training.engine import launch_fabric
from flexpredict.training.precision import default_precision


@pytest.mark.parametrize(("faster", "chosen"), [(True, "bf16-mixed"), (False, "32-true")])
def test_a_cpu_rounds_products_where_that_is_faster(
    faster: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "bfloat16_is_faster", lambda: faster)
    assert default_precision("cpu") == chosen


def test_on_a_cpu_only_linear_layers_are_rounded() -> None:
    fabric = launch_fabric("cpu", 1, precision="bf16-mixed")
    x = torch.randn(64, 64)
    with fabric.autocast():
        assert not torch.is_autocast_enabled("cpu")
        assert torch.equal(x @ x, torch.matmul(x, x)) and (x @ x).dtype == torch.float32


def test_recomputed_activations_change_nothing_in_bf16(pictures: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    short = {**RECIPE, "epochs": 1, "precision": "bf16-mixed"}
    pretrain(pictures, tmp_path / "kept", **short)
    pretrain(pictures, tmp_path / "recomputed", **short, checkpoint_activations=True)
    kept, recomputed = (load_file(tmp_path / name / "encoder.safetensors") for name in ("kept", "recomputed"))
    assert all(torch.equal(kept[name], recomputed[name]) for name in kept)
