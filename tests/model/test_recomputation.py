"""Blocks that are computed again in the backward pass give the same gradients, and keep less."""

from typing import Any

import pytest
import torch
from tiny import RECIPE
from torch import Tensor

from flexpredict.data.sources.opening import ArraySource
from flexpredict.errors import UserError
from flexpredict.masking import sample_masks
from flexpredict.methods.method import Method
from flexpredict.training.plan import make_plan
from flexpredict.training.recipe_parser import make_recipe


def model_of(**values: Any) -> Method:
    source = ArraySource("images", torch.zeros(48, 40, 40, 3, dtype=torch.uint8))
    recipe = make_recipe({**RECIPE, **values})
    return make_plan(recipe, source, torch.device("cpu"), 1).build_model()


def gradients_and_bytes(model: Method) -> tuple[dict[str, Tensor], int]:
    """After one pass, and how much of it was kept for the backward pass."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    masks = sample_masks(make_recipe({}).masking.settled(), (8, 8), 1, 4)
    images = torch.linspace(-1, 1, 4 * 3 * 32 * 32).view(4, 3, 32, 32)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = model(images, masks.context, masks.targets, torch.arange(4).view(4, 1)).loss
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, sum(kept.values())


def test_gradients_are_the_same_and_less_is_kept() -> None:
    predictor = {"dim": 16, "depth": 4, "heads": 2}
    options = {"embed_dim": 24, "depth": 6, "num_heads": 2}
    plain = model_of(model_options=options, predictor=predictor)
    again = model_of(model_options=options, predictor=predictor, checkpoint_activations=True)
    assert plain.state_dict().keys() == again.state_dict().keys()
    (expected, much), (found, little) = gradients_and_bytes(plain), gradients_and_bytes(again)
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert little < 0.5 * much


def test_blocks_that_need_more_than_tokens_are_refused() -> None:
    with pytest.raises(UserError, match="BEiT's kind"):
        model_of(model="beit_base_patch16_224", class_token=True, checkpoint_activations=True)
