"""What a device holds and takes with FSDP, as reckoned, against two processes that train."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from allocations import peak_of
from ranks import call_on_two_ranks
from torch import Tensor
from torch.distributed.tensor import DTensor

from flexpredict.costs.memory import StepMemory
from flexpredict.costs.passes import mask_grid, passes_of, tokens_of
from flexpredict.data.sources.opening import ArraySource
from flexpredict.masking import Masks, sample_masks
from flexpredict.methods.method import Method
from flexpredict.randomness import sample_keys
from flexpredict.training.engine import launch
from flexpredict.training.optimizer import build_optimizers
from flexpredict.training.plan import Plan, make_plan
from flexpredict.training.recipe_parser import make_recipe

TINY = {"model": "vit_tiny_patch16_224", "image_size": 32, "patch_size": 4, "model_options": {"depth": 4}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        {"batch_size": 32},
        {"batch_size": 32, "precision": "bf16-mixed"},
        {"batch_size": 32, "accumulate": 2},
    ],
    ids=str,
)
def test_a_device_holds_its_share_and_takes_what_is_reckoned(values: dict[str, Any], tmp_path: Path) -> None:
    done = call_on_two_ranks(measure, json.dumps(values), str(tmp_path))
    assert done.returncode == 0, done.stderr
    measured = json.loads((tmp_path / "0").read_text())
    reckoned = reckon(values)
    parts = ("weights", "optimizer", *(() if "accumulate" in values else ("gradients",)))
    assert {part: reckoned[part] for part in parts} == {part: measured[part] for part in parts}
    # Each process frees what it received when it happens to be told, so the peak is not the same every time.
    assert reckoned["peak"] == pytest.approx(measured["peak"], rel=0.15)
    if values == {"batch_size": 32}:
        copies = reckon({**values, "strategy": "ddp"})
        assert reckoned["weights"] < 0.51 * copies["weights"] and reckoned["optimizer"] == copies["optimizer"] // 2


def test_machines_have_copies_of_what_their_devices_share() -> None:
    one = reckon({"batch_size": 32, "devices": 4}, ranks=4)
    two = reckon({"batch_size": 64, "devices": 4, "num_nodes": 2}, ranks=8)
    assert one == two


def test_a_device_alone_holds_everything() -> None:
    values = {"batch_size": 8, "devices": 1}
    assert reckon(values, ranks=1) == reckon({**values, "strategy": "auto"}, ranks=1)


def reckon(values: dict[str, Any], ranks: int = 2) -> dict[str, int]:
    plan = plan_of(values, ranks)
    with torch.device("meta"):
        model = plan.build_model()
    masks = drawn(plan, model)
    passes = passes_of(model, tokens_of(model, masks, model.context_encoder.grid))
    images = plan.recipe.batch_size // ranks // plan.recipe.accumulate
    return dataclasses.asdict(StepMemory(model, passes, plan.recipe, "cpu", ranks).of(images))


def plan_of(values: dict[str, Any], ranks: int) -> Plan:
    image = torch.zeros(1, 32, 32, 3, dtype=torch.uint8)
    usual = {"scale": "published", "epochs": 1, "accelerator": "cpu", "devices": 2, "precision": "32-true"}
    recipe = make_recipe({**usual, **TINY, "strategy": "fsdp", **values})
    return make_plan(recipe, ArraySource("images", image.expand(1000, -1, -1, -1)), torch.device("cpu"), ranks)


def drawn(plan: Plan, model: Method) -> Masks:
    return sample_masks(plan.recipe.masking, mask_grid(model, model.context_encoder.grid), 5, 32)


def measure(values: str, folder: str) -> None:
    """In each of two processes: bytes of what it holds, and the most that it ever has during a step."""
    plan = plan_of(json.loads(values), 2)
    recipe, fabric = plan.recipe, launch(plan.recipe)
    model = plan.build_model()
    masks = drawn(plan, model)
    wrapped, optimizers = fabric.setup_module(model), build_optimizers(recipe.optimizer, model)
    fabric.setup_optimizers(*optimizers)
    images = torch.randn(recipe.batch_size // 2, 3, *plan.image_size)
    keys = sample_keys(1, torch.arange(len(images)))[:, None]
    part = len(images) // recipe.accumulate
    gradients = 0

    def step() -> None:
        nonlocal gradients
        for start in range(0, len(images), part):
            now = slice(start, start + part)
            with fabric.no_backward_sync(wrapped, enabled=start + part < len(images)):
                fabric.backward(wrapped(images[now], masks.context[now], masks.targets[now], keys[now]).loss)
        gradients = local_bytes(one.grad for one in model.parameters() if one.grad is not None)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        model.after_step(0.99)

    step()  # makes the state of the optimizers
    weights = local_bytes([*model.parameters(), *model.buffers()])
    states = [tensor for optimizer in optimizers for state in optimizer.state.values() for tensor in state.values()]
    means = local_bytes(state for state in states if state.ndim)  # the others count steps
    peak = weights + means + local_bytes([images]) + peak_of(step)
    measured = {"weights": weights, "optimizer": means, "gradients": gradients, "peak": peak}
    (Path(folder) / str(fabric.global_rank)).write_text(json.dumps(measured))


def local_bytes(tensors: Iterable[Tensor]) -> int:
    own = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors)
    return sum(tensor.numel() * tensor.element_size() for tensor in own)
