"""What a step costs, as reckoned, against what torch counts and what its allocator hands out."""

import itertools
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from allocations import peak_of
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from flexpredict.costs.memory import StepMemory
from flexpredict.costs.passes import TARGET, flops_by_part, mask_grid, pass_flops, passes_of, tokens_of
from flexpredict.data.sources.opening import ArraySource
from flexpredict.masking import Masks, sample_masks
from flexpredict.methods.method import Method
from flexpredict.randomness import sample_keys
from flexpredict.training.optimizer import build_optimizers
from flexpredict.training.plan import Plan, make_plan
from flexpredict.training.precision import low_precision
from flexpredict.training.recipe_parser import make_recipe

TINY4 = {"model": "vit_tiny_patch16_224", "image_size": 32, "patch_size": 4}
SMALL = {**TINY4, "model_options": {"embed_dim": 48, "depth": 3, "num_heads": 3}}
PUBLISHED_PREDICTOR = {"dim": 384, "depth": 6, "heads": 12}


def plan_of(values: dict[str, Any]) -> Plan:
    image = torch.zeros(1, 224, 224, 3, dtype=torch.uint8)
    recipe = make_recipe({"scale": "published", "epochs": 1, "batch_size": 2, "accelerator": "cpu", **values})
    return make_plan(recipe, ArraySource("images", image.expand(1000, -1, -1, -1)), torch.device("cpu"), 1)


def drawn(plan: Plan, model: Method) -> Masks:
    return sample_masks(plan.recipe.masking, mask_grid(model, model.context_encoder.grid), 5, plan.recipe.batch_size)


def arguments(plan: Plan, masks: Masks, device: str = "cpu") -> tuple[Tensor, ...]:
    images = torch.randn(plan.recipe.batch_size, 3, *plan.image_size, device=device)
    keys = sample_keys(1, torch.arange(masks.context[..., 0].numel())).view(masks.context.shape[:2])
    return images, masks.context.to(device), masks.targets.to(device), keys.to(device)


@pytest.mark.parametrize(
    "values",
    [
        TINY4,
        {"model": "vit_small_patch16_224"},
        {"model": "vit_base_patch16_224", "predictor": PUBLISHED_PREDICTOR},
        {"model": "vit_huge_patch14_224", "positions": {"kind": "sincos"}},
        {**SMALL, "masking": {"contexts_per_image": 2}, "positions": {"noise_on": "both"}},
        {**SMALL, "class_token": True, "targets": {"layers": 2}},
        {**SMALL, "image_size": 64, "targets": {"resolution": "half_bilinear"}},
        {**SMALL, "method": "mae", "class_token": True},
        {**SMALL, "method": "data2vec"},
        {**SMALL, "model": "beit_base_patch16_224", "class_token": True},
    ],
    ids=lambda values: "-".join(str(value) for value in values.values())[:40],
)
def test_operations_are_those_that_torch_counts(values: dict[str, Any]) -> None:
    """On the meta device a step does everything but compute, so large models can be counted, too."""
    plan = plan_of(values)
    with torch.device("meta"):
        model = plan.build_model()
    masks = drawn(plan, model)
    with FlopCounterMode(display=False) as counter:
        model(*arguments(plan, masks, "meta")).loss.backward()
    passes = passes_of(model, tokens_of(model, masks, model.context_encoder.grid))
    reckoned = plan.recipe.batch_size * sum(flops_by_part(passes).values())
    assert reckoned == pytest.approx(counter.get_total_flops(), rel=0.03)


def test_operations_of_a_real_step_by_part() -> None:
    plan = plan_of(SMALL)
    model = plan.build_model()
    masks = drawn(plan, model)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # the fused kernel is not counted
        model(*arguments(plan, masks)).loss.backward()
    counts = {name: sum(operations.values()) for name, operations in counter.get_flop_counts().items()}
    passes = {one.part: one for one in passes_of(model, tokens_of(model, masks, model.context_encoder.grid))}
    reckoned = {part: plan.recipe.batch_size * pass_flops(one) for part, one in passes.items()}
    assert sum(reckoned.values()) == pytest.approx(counts["Global"], rel=0.03)
    assert reckoned[TARGET] == pytest.approx(counts["IJEPA.target_encoder"], rel=0.03)
    assert pass_flops(passes[TARGET], backward=False) == pass_flops(passes[TARGET]), "it is not trained"


@pytest.mark.parametrize(
    ("device", "values"),
    [
        ("cpu", {"batch_size": 16}),
        ("cpu", {"batch_size": 2}),  # where gradients take more than activations
        ("cpu", {"batch_size": 2, "scale": "small"}),
        ("cpu", {"batch_size": 16, "precision": "bf16-mixed"}),
        ("cuda", {"batch_size": 16, "precision": "bf16-mixed"}),
        ("cpu", {"batch_size": 16, "checkpoint_activations": True}),
        ("cpu", {"batch_size": 16, "checkpoint_activations": True, "precision": "bf16-mixed"}),
        ("cpu", {"batch_size": 16, "method": "mae"}),
        ("cpu", {"batch_size": 16, "method": "data2vec"}),
    ],
    ids=str,
)
def test_memory_is_what_a_step_takes_at_its_peak(device: str, values: dict[str, Any]) -> None:
    plan = plan_of({**TINY4, "model_options": {"depth": 4}, "precision": "32-true", **values})
    precision = plan.recipe.precision
    model = plan.build_model()
    optimizers = build_optimizers(plan.recipe.optimizer, model)
    masks = drawn(plan, model)
    given = arguments(plan, masks)

    def step() -> None:
        with as_on(device, precision):
            loss = model(*given).loss
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        model.after_step(0.99)

    step()  # makes the state of the optimizers
    states = (state.values() for optimizer in optimizers for state in optimizer.state.values())
    lasting = [*model.parameters(), *model.buffers(), *itertools.chain.from_iterable(states), given[0]]
    measured = sum(tensor.numel() * tensor.element_size() for tensor in lasting) + peak_of(step)
    passes = passes_of(model, tokens_of(model, masks, model.context_encoder.grid))
    reckoned = StepMemory(model, passes, plan.recipe, device).of(plan.recipe.batch_size).peak
    assert reckoned == pytest.approx(measured, rel=0.1)


def as_on(device: str, precision: str) -> AbstractContextManager[Any]:
    """What a GPU rounds is known from torch.autocast, which a CPU can do as well."""
    if device == "cpu":
        return low_precision(torch.device("cpu"), precision)
    return torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed")


def test_the_largest_batch_just_fits() -> None:
    plan = plan_of(TINY4)
    model = plan.build_model()
    memory = StepMemory(model, passes_of(model, tokens_of(model, drawn(plan, model), (8, 8))), plan.recipe, "cpu")
    images = memory.largest_batch(1e9)
    assert memory.of(images).peak <= 1e9 < memory.of(images + 1).peak
    assert memory.largest_batch(1e6) == 0, "not even the weights fit"
