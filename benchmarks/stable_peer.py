"""The I-JEPA of the package `stable-pretraining`, with the sizes of a given model.

It draws its own masks. Its predictor processes the context once, together with the patches of all target blocks,
while I-JEPA processes the context with each block in turn. It does less work, so times alone are not comparable.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from machine import plain_copy
from torch import Tensor

from flexpredict.methods.ijepa import IJEPA
from flexpredict.settings.masking import Masking
from flexpredict.torchvision_repair import repair

repair()

from stable_pretraining import methods  # noqa: E402


class StablePretraining:
    """A contender with the model's encoder; its predictor is new."""

    def __init__(self, model: IJEPA, images: Tensor, masking: Masking) -> None:
        self.images = images
        with _quiet_random():
            self.model = methods.IJEPA(
                plain_copy(model.context_encoder.vit),
                predictor_embed_dim=model.predictor.projection.out_features,
                predictor_depth=len(model.predictor.blocks),
                num_targets=masking.targets,
                target_scale=masking.target_scale,
                target_aspect_ratio=masking.target_aspect,
                context_scale=masking.context_scale,
            ).train()
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.04)
        self.tokens: dict[int, tuple[int, tuple[int, int]]] = {}  # round: context, (1, patches of all blocks)

    def __call__(self, number: int) -> None:
        torch.manual_seed(number)
        output = self.model(self.images)
        self.tokens[number] = output.num_context, (1, output.num_targets)
        output.loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.model.encoder.update_teacher()


@contextmanager
def _quiet_random() -> Iterator[None]:
    """Seeds torch's random numbers inside the block, without changing them outside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
