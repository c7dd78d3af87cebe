"""FSDP: weights, gradients and optimizer state are split over the devices of a machine; each machine has a copy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from flexpredict.errors import UserError
from flexpredict.model.building import ModelFacts
from flexpredict.settings.recipe import Recipe

if TYPE_CHECKING:
    from lightning_fabric.strategies.model_parallel import ModelParallelStrategy


def sharding_strategy() -> "ModelParallelStrategy":
    """torch's FSDP2 through Fabric."""
    from lightning_fabric.strategies.model_parallel import ModelParallelStrategy

    return ModelParallelStrategy(_shard)


def check_engine(recipe: Recipe, facts: ModelFacts) -> None:
    """Refuse settings that do not work with activation checkpointing or FSDP. recipe: with its method's defaults."""
    if recipe.checkpoint_activations and facts.relative:
        raise UserError(
            f"checkpoint_activations=True does not work with {recipe.model}: models of BEiT's kind have blocks that "
            "need a bias for each image. Leave it out, or use a plain ViT such as vit_base_patch16_224."
        )
    if recipe.strategy != "fsdp":
        return
    refused = {
        "optimizer.kind=muon works on whole matrices": recipe.optimizer.kind == "muon",
        "positions.covariance=conditional has a single number among its weights": (
            recipe.positions.covariance == "conditional"
        ),
        "a model of BEiT's kind has blocks that need a bias for each image": facts.relative,
        "compile=True takes the networks as they are": recipe.compile,
    }
    for reason, applies in refused.items():
        if applies:
            raise UserError(
                f"strategy=fsdp does not work with this recipe: {reason}, and fsdp splits the weights. Use "
                "strategy=ddp, or change that setting."
            )


@contextmanager
def whole_weights(model: nn.Module) -> Iterator[None]:
    """While it lasts, every rank has all weights of the model, even if it usually has only a part."""
    from torch.distributed.fsdp import FSDPModule

    shared = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in shared:
        module.unshard()
    try:
        yield
    finally:
        for module in shared:
            module.reshard()


def blocks_gathered_alone(model: nn.Module) -> Iterator[nn.Module]:
    """The blocks whose weights are gathered one block at a time. All other weights stay gathered during a step."""
    for network in model.modules():
        blocks = getattr(network, "blocks", None)
        if isinstance(blocks, nn.Sequential):
            # The last block may be computed in part, from its weights and not by a call: it belongs to the rest.
            yield from list(blocks)[:-1]


def _shard(model: nn.Module, mesh: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard  # imported late: it takes a while, and few need it

    for block in list(blocks_gathered_alone(model)):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model
