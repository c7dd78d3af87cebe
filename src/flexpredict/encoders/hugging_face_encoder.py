"""Vision transformers of the transformers library as image encoders."""

import inspect
import re
from typing import Any

import torch
from torch import Tensor, nn

from flexpredict.data.pixels import MEAN, STD
from flexpredict.encoders.checkpoints.config_file import pair
from flexpredict.encoders.image_encoder import ForeignEncoder, Tokens
from flexpredict.encoders.names import EncoderName
from flexpredict.errors import UserError
from flexpredict.hub_connection import errors_in_words, fetching
from flexpredict.randomness import stream_key


class HuggingFaceEncoder(ForeignEncoder):
    """A vision transformer run by the transformers library."""

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

    def timm(self) -> nn.Module:
        raise UserError(
            f"{self.what} is run by transformers (it is in encoder.model). If it is a plain vision transformer, load "
            "its folder without 'hf:' to get a timm model."
        )

    def architecture(self) -> str:
        return f"{type(self.model).__name__} {getattr(self.model.config, 'hidden_act', '')}"

    def _tokens(self, pixels: Tensor, count: int) -> list[Tokens]:
        rows, columns = pixels.shape[2] // self.patch_size[0], pixels.shape[3] // self.patch_size[1]
        options: dict[str, Any] = {}
        if "interpolate_pos_encoding" in self._accepted and (pixels.shape[2], pixels.shape[3]) != self.image_size:
            options["interpolate_pos_encoding"] = True
        if self._is_autoencoder:
            # The model sorts patches by this noise before it masks them: rising noise keeps their order.
            options["noise"] = torch.arange(rows * columns, device=pixels.device).float().expand(len(pixels), -1)
        output = self.model(pixel_values=pixels, output_hidden_states=count > 1, **options)
        earlier = output.hidden_states[-count:-1] if count > 1 else ()
        norm = self.model.get_submodule(self._norm) if self._norm else nn.Identity()
        return [self._layer(state, rows * columns) for state in (*map(norm, earlier), output.last_hidden_state)]

    def _layer(self, state: Tensor, patches: int) -> Tokens:
        """state: B (class token, patches; registers anywhere between) D."""
        if state.ndim != 3 or state.shape[1] < patches + self._has_class_token:
            raise UserError(
                f"{self.what} gives features of shape {tuple(state.shape)} for {patches} patches. It cannot be used, "
                "because it does not give one feature for each patch."
            )
        return Tokens(state[:, -patches:], state[:, 0] if self._has_class_token else None)


def open_hugging_face(name: EncoderName) -> HuggingFaceEncoder:
    """Open a model from the Hugging Face hub or a folder."""
    try:
        from transformers import AutoImageProcessor, AutoModel
        from transformers.utils import logging
    except ImportError as error:
        raise UserError(f"{name.text} needs the transformers library: pip install 'flexpredict[hf]'.") from error
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    in_folder = name.kind == "hf folder"
    place = str(name.path) if in_folder else name.model
    loading = errors_in_words(name.text, "Check the folder.") if in_folder else fetching(name.text)
    with loading, torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_key(0, "encoder weights"))  # for weights missing from the file and not needed here
        # Code that comes with the weights is never run, and the user is not asked to allow it.
        model, loaded = AutoModel.from_pretrained(place, trust_remote_code=False, output_loading_info=True)
        try:
            processor = AutoImageProcessor.from_pretrained(place, trust_remote_code=False)
            mean, std = tuple(processor.image_mean), tuple(processor.image_std)
        except Exception:
            mean, std = MEAN, STD  # no preprocessor_config.json: nearly all models use ImageNet's
    if not all(hasattr(model.config, key) for key in ("patch_size", "image_size", "hidden_size")):
        raise UserError(f"{name.text} is a {type(model).__name__}, not a vision transformer with patches.")
    model.pooler = None  # many files lack its weights, and nothing here needs it
    unused = re.compile(r"pooler\.|head\.|.*mask_token")
    missing = sorted(key for key in loaded["missing_keys"] if not unused.match(key))
    if missing:
        raise UserError(
            f"{name.text} lacks {len(missing)} of the weights of a {type(model).__name__}, for example {missing[0]}: "
            "they would be random. Complete the file, or give the folder of another model."
        )
    what = f"{type(model).__name__} {name.model or name.text}"
    return HuggingFaceEncoder(model.float(), name.text, what, mean, std)


def _final_norm(model: Any) -> str:
    """The name of the norm between the last block and the last hidden state; "" if there is none."""
    names = [name for name, _ in model.named_children() if name in ("layernorm", "norm", "post_layernorm")]
    # CLIP applies its norm to the class token only.
    return "" if not names or type(model).__name__.startswith("CLIP") else names[0]
