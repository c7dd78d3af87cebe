"""Encoders of timm and of Hugging Face transformers, to be compared with ours by the same protocols."""

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flexpredict.data.pixels import MEAN, STD
from flexpredict.encoders.checkpoints.config_file import pair
from flexpredict.encoders.frozen import FrozenEncoder, Layer, Pooling
from flexpredict.errors import UserError, did_you_mean, in_a_line
from flexpredict.model.timm_parts import timm
from flexpredict.named_options import split_options
from flexpredict.randomness import stream_key


class ForeignEncoder(FrozenEncoder):
    """A model of another library, which may be built for some sizes of images only."""

    def layers(self, images: Tensor, count: int = 1) -> list[Layer]:
        with self._size_refused(images):
            return super().layers(images, count)

    @contextmanager
    def _size_refused(self, images: Tensor) -> Iterator[None]:
        """Says in words what the libraries below say of shapes somewhere inside the model."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, AssertionError, ValueError) as error:
            given = (images.shape[-2], images.shape[-1])
            if given == self.image_size:
                raise
            raise UserError(
                f"{self.what} was trained at {self.image_size[0]}x{self.image_size[1]} and cannot take images of "
                f"{given[0]}x{given[1]} ({in_a_line(error) or 'a size of its own is asserted'}). Leave --image_size "
                "out."
            ) from error


class TimmEncoder(ForeignEncoder):
    """A model of timm: a transformer's tokens, or the cells of a convolutional network's feature maps."""

    def __init__(self, model: Any, name: str, what: str, image_size: tuple[int, int]) -> None:
        parameters = inspect.signature(model.forward_intermediates).parameters
        self.is_transformer = "return_prefix_tokens" in parameters
        if self.is_transformer:
            # Not the patch size of a hybrid: it cuts up the maps of a convolutional network.
            ratio = getattr(model.patch_embed, "feat_ratio", None)
            patch = ratio(as_scalar=False) if ratio else model.patch_embed.patch_size
            dim, depth = model.num_features, len(model.blocks)
        else:
            last = model.feature_info[-1]
            dim, depth, patch = last["num_chs"], len(model.feature_info), (last["reduction"],) * 2
        self._own_pooling = _timm_pooling(model)
        pooling: Pooling = "class" if self.is_transformer and self._own_pooling == "class" else "mean"
        config = model.pretrained_cfg
        super().__init__(name, what, dim, depth, tuple(patch), image_size, pooling, config["mean"], config["std"])
        self.model = model
        self._options = {
            "norm": True,
            "intermediates_only": True,
            "output_fmt": "NLC" if self.is_transformer else "NCHW",
            "return_prefix_tokens": getattr(model, "num_prefix_tokens", 0) > 0,
        }
        self._options = {key: value for key, value in self._options.items() if key in parameters}

    def _layers(self, images: Tensor, count: int) -> list[Layer]:
        found = self._intermediates(images, count)
        if not self.is_transformer:
            return [Layer(cells.flatten(2).mT, None) for cells in found]
        if self.model.num_prefix_tokens == 0:
            return [Layer(patches, None) for patches in found]
        has_class_token = self.model.cls_token is not None
        return [Layer(patches, prefix[:, 0] if has_class_token else None) for patches, prefix in found]

    def _intermediates(self, images: Tensor, count: int) -> list[Any]:
        try:
            found: list[Any] = self.model.forward_intermediates(images, indices=count, **self._options)
        except AssertionError as error:
            if "norm" not in str(error) or not self._options.get("norm"):
                raise
            self._options["norm"] = False  # some say no when asked for the norm, which their maps do not get
            found = self._intermediates(images, count)
        return found

    def check_size(self, image_size: tuple[int, int]) -> None:
        if self.is_transformer:  # a convolutional network pads what does not fill its last cells
            super().check_size(image_size)
        strict = getattr(getattr(self.model, "patch_embed", None), "strict_img_size", False)
        if strict and not getattr(self.model, "dynamic_img_size", False) and image_size != self.image_size:
            raise UserError(
                f"{self.what} takes images of {self.image_size[0]}x{self.image_size[1]} only, not of {image_size[0]}x"
                f"{image_size[1]}: its positions cannot be resized. Leave --image_size out."
            )

    def pooled(self, images: Tensor, count: int = 1, pooling: Pooling | None = None) -> Tensor:
        """Of the last layer alone and in the model's own way, what its classifier would be given."""
        if count > 1 or not self._own_pooling or pooling not in (None, self._own_pooling):
            return super().pooled(images, count, pooling)
        self.check_size((images.shape[2], images.shape[3]))
        with self._size_refused(images):
            features = self.model.forward_features(self._normalised(images))
            vector: Tensor = self.model.forward_head(features, pre_logits=True)
        return vector.float()

    def pooling_in_words(self, pooling: Pooling | None) -> str:
        return pooling or self._own_pooling or self.pooling

    def architecture(self) -> str:
        return f"{super().architecture()} {self.model.pretrained_cfg['architecture']}"


class HuggingFaceEncoder(ForeignEncoder):
    """A vision transformer of the transformers library."""

    def __init__(
        self, model: Any, name: str, what: str, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD
    ) -> None:
        config = model.config
        embeddings = getattr(model, "embeddings", None)
        tokens = (getattr(embeddings, token, None) for token in ("cls_token", "class_embedding"))
        self._has_class_token = any(token is not None for token in tokens)
        averages = not self._has_class_token or getattr(config, "use_mean_pooling", False)
        self._is_autoencoder = hasattr(config, "mask_ratio")
        if self._is_autoencoder:
            config.mask_ratio = 0.0  # a masked autoencoder is evaluated on whole images
        super().__init__(
            name,
            what,
            config.hidden_size,
            config.num_hidden_layers,
            pair(config.patch_size),
            pair(config.image_size),
            "mean" if averages else "class",
            mean,
            std,
        )
        self.model = model
        self._accepted = inspect.signature(model.forward).parameters
        self._norm = _final_norm(model)

    def _layers(self, images: Tensor, count: int) -> list[Layer]:
        rows, columns = images.shape[2] // self.patch_size[0], images.shape[3] // self.patch_size[1]
        options: dict[str, Any] = {}
        if "interpolate_pos_encoding" in self._accepted and (images.shape[2], images.shape[3]) != self.image_size:
            options["interpolate_pos_encoding"] = True
        if self._is_autoencoder:
            # It shuffles patches by this noise before it masks them: in rising order they stay in their places.
            options["noise"] = torch.arange(rows * columns, device=images.device).float().expand(len(images), -1)
        output = self.model(pixel_values=images, output_hidden_states=count > 1, **options)
        earlier = output.hidden_states[-count:-1] if count > 1 else ()
        norm = self.model.get_submodule(self._norm) if self._norm else nn.Identity()
        return [self._layer(state, rows * columns) for state in (*map(norm, earlier), output.last_hidden_state)]

    def _layer(self, state: Tensor, patches: int) -> Layer:
        """state: B (class token, patches; registers anywhere between) D."""
        if state.ndim != 3 or state.shape[1] < patches + self._has_class_token:
            raise UserError(
                f"{self.what} gives features of shape {tuple(state.shape)} for {patches} patches: not one for each "
                "patch, so it cannot be evaluated here."
            )
        return Layer(state[:, -patches:], state[:, 0] if self._has_class_token else None)

    def architecture(self) -> str:
        return f"{type(self.model).__name__} {getattr(self.model.config, 'hidden_act', '')}"


def open_timm(name: str, rest: str) -> TimmEncoder:
    """rest: NAME, or NAME,pretrained=no,seed=0."""
    model_name, given = split_options(rest, ("pretrained", "seed"))
    options = {"pretrained": "yes", "seed": "0"} | given
    known = model_name.split(".")[0]
    if not timm.is_model(known):
        near = did_you_mean(known, timm.list_models())
        raise UserError(f"timm has no model named '{model_name}'.{near} `timm.list_models()` lists them all.")
    if options["pretrained"] not in ("yes", "no") or not options["seed"].isdecimal():
        raise UserError(f"{name} is not understood. Write it like timm:{model_name},pretrained=no,seed=0.")
    pretrained = options["pretrained"] == "yes"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_key(int(options["seed"]), "encoder weights"))
        model = _created(model_name, pretrained)
    weights = "pre-trained" if pretrained else "untrained"
    return _wrapped(model, name, f"timm's {model_name}, {weights}")


def _wrapped(model: Any, name: str, what: str) -> TimmEncoder:
    size = getattr(getattr(model, "patch_embed", None), "img_size", None) or model.pretrained_cfg["input_size"][1:]
    try:
        return TimmEncoder(model, name, what, tuple(size))
    except (AttributeError, KeyError) as error:
        raise UserError(
            f"{what} does not give its inner features in a way that is known here ({error}), so it cannot be "
            "evaluated."
        ) from error


def open_timm_folder(name: str, folder: str) -> TimmEncoder:
    """A folder in timm's layout whose model is not a plain vision transformer."""
    model = _created(f"local-dir:{folder}", pretrained=True)
    return _wrapped(model, name, f"timm's {model.pretrained_cfg['architecture']} in {name}")


def _created(model_name: str, pretrained: bool) -> Any:
    """With positions that follow the size of the image, where there are any."""
    try:
        try:
            return timm.create_model(model_name, pretrained=pretrained, num_classes=0, dynamic_img_size=True)
        except TypeError:
            return timm.create_model(model_name, pretrained=pretrained, num_classes=0)
    except Exception as error:  # the libraries below raise errors of many kinds over a missing network
        raise UserError(
            f"timm's {model_name} could not be loaded: {in_a_line(error)} The first time its weights are fetched "
            f"from the network; timm:{model_name},pretrained=no is the untrained model."
        ) from error


def _timm_pooling(model: Any) -> str:
    """How a model of timm makes one vector of an image: "class", "mean", another in timm's word, or "" for none."""
    pool = getattr(model, "global_pool", None)
    if pool is None:
        head = getattr(model, "head", None)
        pool = getattr(head, "global_pool", head)
    kind = getattr(pool, "pool_type", pool)
    if kind is None or isinstance(kind, str):
        return {"token": "class", "avg": "mean"}.get(kind or "", kind or "")
    return type(pool).__name__


def open_hugging_face(name: str, rest: str) -> HuggingFaceEncoder:
    """rest: a name on the hub, or a folder."""
    try:
        from transformers import AutoImageProcessor, AutoModel
        from transformers.utils import logging
    except ImportError as error:
        raise UserError(f"{name} needs the transformers library: pip install transformers.") from error
    if not rest:
        raise UserError("hf: needs a name, for example hf:facebook/ijepa_vith14_1k, or the path of a folder.")
    folder = Path(rest).expanduser()
    place = str(folder) if folder.is_dir() else rest
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_key(0, "encoder weights"))  # of what is not in the file and not needed here
            # Whatever code comes with the weights is not run, and nobody is asked about it.
            model, loaded = AutoModel.from_pretrained(place, trust_remote_code=False, output_loading_info=True)
    except Exception as error:
        hint = "" if folder.is_dir() else " Check the name; the first time, the network is needed."
        raise UserError(f"{name} could not be loaded: {in_a_line(error)}{hint}") from error
    if not all(hasattr(model.config, key) for key in ("patch_size", "image_size", "hidden_size")):
        raise UserError(f"{name} is a {type(model).__name__}, not a vision transformer with patches.")
    model.pooler = None  # many files lack its weights, and nothing here needs it
    unused = re.compile(r"pooler\.|head\.|.*mask_token")
    missing = sorted(key for key in loaded["missing_keys"] if not unused.match(key))
    if missing:
        raise UserError(
            f"{name} lacks {len(missing)} of the weights of a {type(model).__name__}, for example {missing[0]}: they "
            "would be random. Complete the file, or give the folder of another model."
        )
    try:
        processor = AutoImageProcessor.from_pretrained(place, trust_remote_code=False)
        mean, std = tuple(processor.image_mean), tuple(processor.image_std)
    except Exception:
        mean, std = MEAN, STD  # no preprocessor_config.json: ImageNet's, as nearly all have
    return HuggingFaceEncoder(model.float(), name, f"{type(model).__name__} {rest}", mean, std)


def _final_norm(model: Any) -> str:
    """The name of the norm that makes the last hidden state of what the last block gives; "" where there is none."""
    names = [name for name, _ in model.named_children() if name in ("layernorm", "norm", "post_layernorm")]
    # CLIP's is for its class token alone.
    return "" if not names or type(model).__name__.startswith("CLIP") else names[0]
