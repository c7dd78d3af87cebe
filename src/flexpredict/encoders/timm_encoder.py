"""Models of timm, transformers and convolutional networks alike, as image encoders."""

import copy
import inspect
from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from flexpredict.encoders.checkpoints.architecture import spec_of
from flexpredict.encoders.image_encoder import ForeignEncoder, Tokens
from flexpredict.encoders.loaded_weights import LoadedWeights
from flexpredict.encoders.names import EncoderName
from flexpredict.errors import UserError
from flexpredict.hub_connection import errors_in_words, fetching
from flexpredict.model.building import known_model
from flexpredict.model.encoder import Encoder, heads_of, norm_eps_of
from flexpredict.model.relative_encoder import RelativeEncoder
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import stream_key
from flexpredict.settings.extraction import Pooling


class TimmEncoder(ForeignEncoder):
    """A model of timm. Its patches are a transformer's, or the cells of a convolutional network's feature maps."""

    def __init__(self, model: Any, name: str, what: str, image_size: tuple[int, int]) -> None:
        parameters = inspect.signature(model.forward_intermediates).parameters
        self.is_transformer = "return_prefix_tokens" in parameters
        if self.is_transformer:
            # The patch_size of a hybrid counts cells of convolutional maps; feat_ratio counts pixels.
            ratio = getattr(model.patch_embed, "feat_ratio", None)
            patch = ratio(as_scalar=False) if ratio else model.patch_embed.patch_size
            dim, depth = model.num_features, len(model.blocks)
        else:
            last = model.feature_info[-1]
            dim, depth, patch = last["num_chs"], len(model.feature_info), (last["reduction"],) * 2
        self._own_pooling = _own_pooling(model)
        pooling: Pooling = "class" if self.is_transformer and self._own_pooling == "class" else "mean"
        config = model.pretrained_cfg
        super().__init__(name, what, dim, depth, tuple(patch), image_size, pooling, config["mean"], config["std"])
        self.model = model
        options = {
            "norm": True,
            "intermediates_only": True,
            "output_fmt": "NLC" if self.is_transformer else "NCHW",
            "return_prefix_tokens": getattr(model, "num_prefix_tokens", 0) > 0,
        }
        self._options = {key: value for key, value in options.items() if key in parameters}

    def timm(self) -> nn.Module:
        model: nn.Module = self.model
        return model

    def check_size(self, image_size: tuple[int, int]) -> None:
        if self.is_transformer:  # convolutional networks pad incomplete cells
            super().check_size(image_size)
        strict = getattr(getattr(self.model, "patch_embed", None), "strict_img_size", False)
        if strict and not getattr(self.model, "dynamic_img_size", False) and image_size != self.image_size:
            raise UserError(
                f"{self.what} takes images of {self.image_size[0]}x{self.image_size[1]} only, not of {image_size[0]}x"
                f"{image_size[1]}: its positions cannot be resized. Leave image_size out."
            )

    def pooling_in_words(self, pooling: Pooling | None) -> str:
        return pooling or self._own_pooling or self.pooling

    def pools_layers_alike(self, pooling: Pooling | None) -> bool:
        return not self._own_pooling or pooling not in (None, self._own_pooling)

    def architecture(self) -> str:
        return f"{super().architecture()} {self.model.pretrained_cfg['architecture']}"

    def _tokens(self, pixels: Tensor, count: int) -> list[Tokens]:
        found = self._intermediates(pixels, count)
        if not self.is_transformer:
            return [Tokens(cells.flatten(2).mT, None) for cells in found]
        if self.model.num_prefix_tokens == 0:
            return [Tokens(patches, None) for patches in found]
        has_class_token = self.model.cls_token is not None
        return [Tokens(patches, prefix[:, 0] if has_class_token else None) for patches, prefix in found]

    def _intermediates(self, pixels: Tensor, count: int) -> list[Any]:
        try:
            found: list[Any] = self.model.forward_intermediates(pixels, indices=count, **self._options)
        except AssertionError as error:
            if "norm" not in str(error) or not self._options.get("norm"):
                raise
            self._options["norm"] = False  # some models assert norm=False: their maps have no norm
            found = self._intermediates(pixels, count)
        return found

    def _pooled(
        self, pixels: Tensor, count: int, pooling: Pooling | None, layers: list[Tokens] | None = None
    ) -> Tensor:
        """For one layer with the model's own pooling, the vector that its classifier would receive."""
        if count > 1 or self.pools_layers_alike(pooling):
            return super()._pooled(pixels, count, pooling, layers)
        vector: Tensor = self.model.forward_head(self.model.forward_features(pixels), pre_logits=True)
        return vector.float()


def open_timm(name: EncoderName) -> TimmEncoder:
    """Open timm:NAME, timm:NAME,pretrained=no or timm:NAME,pretrained=no,seed=0."""
    known_model(name.model)
    pretrained, seed = name.options.get("pretrained", "yes"), name.options.get("seed", "0")
    if pretrained not in ("yes", "no") or not seed.isdecimal():
        raise UserError(f"{name.text} is not valid. Write it like timm:{name.model},pretrained=no,seed=0.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_key(int(seed), "encoder weights"))
        if pretrained == "no":
            model = _created(name.model, pretrained=False)
        else:
            remedy = f"The first time, the network is needed; timm:{name.model},pretrained=no is the untrained model."
            with fetching(f"timm's {name.model}", remedy):
                model = _created(name.model, pretrained=True)
    weights = "pre-trained" if pretrained == "yes" else "untrained"
    return _wrapped(model, name.text, f"timm's {name.model}, {weights}")


def open_timm_folder(name: EncoderName) -> TimmEncoder:
    """A folder in timm's layout whose model is not a plain vision transformer."""
    with errors_in_words(name.text, "Check the folder."):
        model = _created(f"local-dir:{name.path}", pretrained=True)
    return _wrapped(model, name.text, f"timm's {model.pretrained_cfg['architecture']} in {name.text}")


def open_timm_model(model: nn.Module) -> TimmEncoder:
    """Wrap a copy of a model in memory, which itself stays unchanged."""
    name = getattr(model, "pretrained_cfg", {}).get("architecture") or type(model).__name__
    encoder = _wrapped(copy.deepcopy(model), f"timm:{name}", f"a given {name}")
    return encoder.eval().requires_grad_(False)


def _created(model_name: str, pretrained: bool) -> Any:
    """The timm model, with positions that adapt to the image size if it supports that."""
    try:
        return timm.create_model(model_name, pretrained=pretrained, num_classes=0, dynamic_img_size=True)
    except TypeError:
        return timm.create_model(model_name, pretrained=pretrained, num_classes=0)


def _wrapped(model: Any, name: str, what: str) -> TimmEncoder:
    try:
        size = getattr(getattr(model, "patch_embed", None), "img_size", None)
        size = size or model.pretrained_cfg["input_size"][1:]
        return TimmEncoder(model, name, what, tuple(size))
    except (AttributeError, KeyError) as error:
        raise UserError(
            f"{what} does not give its inner features in a known way ({error}), so it cannot be used."
        ) from error


def _own_pooling(model: Any) -> str:
    """How a timm model pools an image: "class", "mean", another way by timm's name, or "" for none."""
    pool = getattr(model, "global_pool", None)
    if pool is None:
        head = getattr(model, "head", None)
        pool = getattr(head, "global_pool", head)
    kind = getattr(pool, "pool_type", pool)
    if kind is None or isinstance(kind, str):
        return {"token": "class", "avg": "mean"}.get(kind or "", kind or "")
    return type(pool).__name__


def weights_of_timm(model: Any, name: str, image_size: tuple[int, int]) -> LoadedWeights:
    """The encoder of a plain vision transformer or of a BEiT; any other model is refused.

    name: of the model, for messages; image_size: height and width of its own positions.
    """
    (RelativeEncoder if type(model) is timm.models.beit.Beit else Encoder).check(model)
    weights = {key: tensor.detach().clone() for key, tensor in model.state_dict().items()}
    spec = spec_of(weights, name, heads=heads_of(model), image_size=image_size, norm_eps=norm_eps_of(model))
    config = model.pretrained_cfg
    spec = replace(spec, model=config["architecture"])  # shapes do not show its activation, but its name does
    with torch.device("meta"):
        needed = spec.build().vit.state_dict()
    wrong = [key for key, tensor in needed.items() if key not in weights or weights[key].shape != tensor.shape]
    if wrong:
        raise UserError(
            f"{name} is not a plain vision transformer: {wrong[0]} is missing or has another shape. It can be "
            "evaluated, but neither trained further nor exported."
        )
    return LoadedWeights(
        name,
        "encoder",
        spec,
        {key: weights[key] for key in needed},
        left_out=Counter(key.split(".")[0] for key in weights if key not in needed),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )
