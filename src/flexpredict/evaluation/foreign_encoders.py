"""Encoders of timm and of Hugging Face transformers, to be compared with ours by the same protocols."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from flexpredict.data.pixels import MEAN, STD
from flexpredict.errors import UserError, did_you_mean
from flexpredict.evaluation.encoders import FrozenEncoder, Layer, Pooling
from flexpredict.randomness import stream_key
from flexpredict.timm_parts import timm


class TimmEncoder(FrozenEncoder):
    """A model of timm: a transformer's tokens, or the cells of a convolutional network's feature maps."""

    def __init__(self, model: Any, name: str, what: str, image_size: tuple[int, int]) -> None:
        parameters = inspect.signature(model.forward_intermediates).parameters
        self.is_transformer = "return_prefix_tokens" in parameters
        if self.is_transformer:
            patch = model.patch_embed.patch_size
            depth = len(model.blocks)
        else:
            patch = (model.feature_info[-1]["reduction"],) * 2
            depth = len(model.feature_info)
        pooling: Pooling = "class" if self.is_transformer and model.global_pool == "token" else "mean"
        config = model.pretrained_cfg
        super().__init__(
            name, what, model.num_features, depth, tuple(patch), image_size, pooling, config["mean"], config["std"]
        )
        self.model = model
        strict = getattr(getattr(model, "patch_embed", None), "strict_img_size", False)
        self._fixed_size = strict and not getattr(model, "dynamic_img_size", False)
        self._options = {
            "indices": None,
            "norm": True,
            "intermediates_only": True,
            "output_fmt": "NLC" if self.is_transformer else "NCHW",
            "return_prefix_tokens": True,
        }
        self._options = {key: value for key, value in self._options.items() if key in parameters}

    def _layers(self, images: Tensor, count: int) -> list[Layer]:
        found: list[Any] = self.model.forward_intermediates(images, **{**self._options, "indices": count})
        if not self.is_transformer:
            return [Layer(cells.flatten(2).mT, None) for cells in found]
        if self.model.num_prefix_tokens == 0:
            return [Layer(patches, None) for patches in found]
        has_class_token = self.model.cls_token is not None
        return [Layer(patches, prefix[:, 0] if has_class_token else None) for patches, prefix in found]

    def check_size(self, image_size: tuple[int, int]) -> None:
        super().check_size(image_size)
        if self._fixed_size and image_size != self.image_size:
            raise UserError(
                f"{self.what} takes images of {self.image_size[0]}x{self.image_size[1]} only, not of {image_size[0]}x"
                f"{image_size[1]}: its positions cannot be resized. Leave --image_size out."
            )

    def pooled(self, images: Tensor, count: int = 1, pooling: Pooling | None = None) -> Tensor:
        """Of the last layer alone and in the model's own way, what its classifier would be given."""
        if count == 1 and pooling in (None, self.pooling):
            self.check_size((images.shape[2], images.shape[3]))
            features = self.model.forward_features(self._normalised(images))
            vector: Tensor = self.model.forward_head(features, pre_logits=True)
            return vector.float()
        return super().pooled(images, count, pooling)


class HuggingFaceEncoder(FrozenEncoder):
    """A vision transformer of the transformers library."""

    def __init__(
        self, model: Any, name: str, what: str, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD
    ) -> None:
        config = model.config
        patch, size = _pair(config.patch_size), _pair(config.image_size)
        embeddings = getattr(model, "embeddings", None)
        self.has_class_token = getattr(embeddings, "cls_token", None) is not None
        pooling: Pooling = "class" if self.has_class_token else "mean"
        if getattr(config, "mask_ratio", None) is not None:
            config.mask_ratio = 0.0  # a masked autoencoder is evaluated on whole images
        super().__init__(name, what, config.hidden_size, config.num_hidden_layers, patch, size, pooling, mean, std)
        self.model = model
        self._accepted = inspect.signature(model.forward).parameters
        self._is_autoencoder = getattr(config, "mask_ratio", None) is not None

    def _layers(self, images: Tensor, count: int) -> list[Layer]:
        rows, columns = images.shape[2] // self.patch_size[0], images.shape[3] // self.patch_size[1]
        options: dict[str, Any] = {}
        if "interpolate_pos_encoding" in self._accepted and (images.shape[2], images.shape[3]) != self.image_size:
            options["interpolate_pos_encoding"] = True
        if self._is_autoencoder:
            # It shuffles patches by this noise before it masks them: in rising order they stay in their places.
            options["noise"] = torch.arange(rows * columns, device=images.device).float().expand(len(images), -1)
        output = self.model(pixel_values=images, output_hidden_states=True, **options)
        norm = getattr(self.model, "layernorm", None) or nn.Identity()
        states = [norm(state) for state in output.hidden_states[-count:-1]] if count > 1 else []
        patches = rows * columns
        return [
            Layer(state[:, -patches:], state[:, 0] if self.has_class_token else None)
            for state in (*states, output.last_hidden_state)
        ]


def open_timm(name: str, rest: str) -> TimmEncoder:
    """rest: NAME, or NAME,pretrained=no,seed=0."""
    model_name, options = _options(name, rest, ("pretrained", "seed"))
    known = model_name.split(".")[0]
    if not timm.is_model(known):
        near = did_you_mean(known, timm.list_models())
        raise UserError(f"timm has no model named '{model_name}'.{near} `timm.list_models()` lists them all.")
    pretrained = options.get("pretrained", "yes") not in ("no", "false", "0")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_key(int(options.get("seed", 0)), "encoder weights"))
        model = _created(model_name, pretrained)
    if not hasattr(model, "forward_intermediates"):
        raise UserError(f"timm's {model_name} does not give its inner features, so it cannot be evaluated here.")
    size = getattr(getattr(model, "patch_embed", None), "img_size", None) or model.pretrained_cfg["input_size"][1:]
    weights = "pre-trained" if pretrained else "untrained"
    return TimmEncoder(model, name, f"timm's {model_name}, {weights}", tuple(size))


def _created(model_name: str, pretrained: bool) -> Any:
    """With positions that follow the size of the image, where there are any."""
    try:
        try:
            return timm.create_model(model_name, pretrained=pretrained, num_classes=0, dynamic_img_size=True)
        except TypeError:
            return timm.create_model(model_name, pretrained=pretrained, num_classes=0)
    except Exception as error:  # the libraries below raise errors of many kinds over a missing network
        raise UserError(
            f"timm's {model_name} could not be loaded: {_in_a_line(error)} The first time its weights are fetched "
            f"from the network; timm:{model_name},pretrained=no is the untrained model."
        ) from error


def open_hugging_face(name: str, rest: str) -> HuggingFaceEncoder:
    """rest: a name on the hub, or a folder."""
    try:
        from transformers import AutoImageProcessor, AutoModel
        from transformers.utils import logging
    except ImportError as error:
        raise UserError(f"{name} needs the transformers library: pip install transformers.") from error
    if not rest:
        raise UserError("hf: needs a name, for example hf:facebook/ijepa_vith14_1k, or the path of a folder.")
    logging.set_verbosity_error()
    try:
        model = AutoModel.from_pretrained(rest)
    except Exception as error:
        raise UserError(
            f"{name} could not be loaded: {_in_a_line(error)} Check the name; the first time, the network is needed."
        ) from error
    if not all(hasattr(model.config, key) for key in ("patch_size", "image_size", "hidden_size")):
        raise UserError(f"{name} is a {type(model).__name__}, not a vision transformer with patches.")
    try:
        processor = AutoImageProcessor.from_pretrained(rest)
        mean, std = tuple(processor.image_mean), tuple(processor.image_std)
    except Exception:
        mean, std = MEAN, STD  # no preprocessor_config.json: ImageNet's, as nearly all have
    return HuggingFaceEncoder(model, name, f"{type(model).__name__} {rest}", mean, std)


def _options(name: str, rest: str, known: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    model, *given = rest.split(",")
    options = dict(option.partition("=")[::2] for option in given)
    for key in options:
        if key not in known:
            near = did_you_mean(key, known)
            raise UserError(f"'{key}' in {name} is not an option.{near} Options: {', '.join(known)}.")
    return model, options


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]
