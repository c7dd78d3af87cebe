"""The I-JEPA of the package `lightly`, assembled as in its examples, with the sizes of a given model.

It draws its own masks, with the published settings. Contexts are cut to the smallest of the batch, so it may process
fewer tokens; their numbers are in `tokens`.
"""

import copy
from typing import Any

import torch
from machine import plain_copy
from torch import Tensor
from torch.nn import functional as F

from flexpredict.masking import Masks
from flexpredict.methods.ijepa import IJEPA
from flexpredict.settings.masking import Masking
from flexpredict.torchvision_repair import repair

repair()

from lightly.data import IJEPAMaskCollator  # noqa: E402
from lightly.models import utils  # noqa: E402
from lightly.models.modules import MaskedVisionTransformerTIMM  # noqa: E402
from lightly.models.modules.ijepa_timm import IJEPAPredictorTIMM  # noqa: E402


class Lightly:
    """A contender with the model's weights."""

    def __init__(self, model: IJEPA, images: Tensor, masking: Masking) -> None:
        self.images = images
        source = model.context_encoder
        self.collator = IJEPAMaskCollator(
            input_size=tuple(images.shape[2:]),
            patch_size=source.patch_size[0],
            enc_mask_scale=masking.context_scale,
            pred_mask_scale=masking.target_scale,
            aspect_ratio=masking.target_aspect,
            nenc=1,
            npred=masking.targets,
        )
        self.encoder = MaskedVisionTransformerTIMM(
            plain_copy(source.vit), weight_initialization="skip", pos_embed_initialization="skip"
        )
        self.first_weight = self.encoder.vit.patch_embed.proj.weight
        self.target_encoder = copy.deepcopy(self.encoder)
        utils.deactivate_requires_grad(self.target_encoder)
        self.predictor = predictor_like(model)
        parameters = [*self.encoder.parameters(), *self.predictor.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.04)
        self.tokens: dict[int, tuple[int, tuple[int, int]]] = {}  # round: context, (blocks, patches of a block)

    def __call__(self, number: int) -> None:
        torch.manual_seed(number)  # the collator uses torch's global generator
        # Numbers replace the images, which it would also stack: that belongs to data loading.
        _, contexts, targets = self.collator(list(range(len(self.images))))
        self.tokens[number] = contexts[0].shape[1], (len(targets), targets[0].shape[1])
        loss = self._loss(contexts, targets)
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        utils.update_momentum(self.encoder, self.target_encoder, m=0.996)

    def loss(self, masks: Masks) -> Tensor:
        return self._loss([masks.context[:, 0]], list(masks.targets[:, 0].unbind(1)))

    def _loss(self, contexts: list[Tensor], targets: list[Tensor]) -> Tensor:
        with torch.no_grad():
            features = self.target_encoder.encode(self.images)
            features = F.layer_norm(features, features.shape[-1:])
            wanted = utils.apply_masks(features, targets)
        visible = self.encoder.encode(self.images, idx_keep=contexts[0])
        return F.smooth_l1_loss(self.predictor(visible, contexts, targets), wanted)


def predictor_like(model: IJEPA) -> IJEPAPredictorTIMM:
    """lightly's predictor with the sizes and weights of ours."""
    source = model.predictor
    first: Any = source.blocks[0]
    predictor = IJEPAPredictorTIMM(
        num_patches=source.positions.shape[0],
        depth=len(source.blocks),
        mlp_dim=source.projection.in_features,
        predictor_embed_dim=source.projection.out_features,
        num_heads=first.attn.num_heads,
    )
    places = {"projection": "predictor_embed", "output": "predictor_proj", "blocks": "decoder.blocks"}
    weights = {
        "decoder.pos_embed": source.positions[None],
        "decoder.mask_token": source.mask_token.detach().view(1, 1, -1),
        **{f"decoder.norm.{name}": tensor for name, tensor in source.norm.state_dict().items()},
    }
    for ours, theirs in places.items():
        for name, tensor in source.get_submodule(ours).state_dict().items():
            weights[f"{theirs}.{name}"] = tensor
    predictor.load_state_dict(weights)
    return predictor
