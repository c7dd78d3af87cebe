"""Any encoder, ours or others', behind one face: images in, features of patches and one vector an image out."""

import hashlib
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor, nn

from flexpredict.data.pixels import MEAN, STD
from flexpredict.encoders.checkpoints.config_file import is_plain, is_timm
from flexpredict.encoders.checkpoints.finding import Which, build, find
from flexpredict.errors import UserError, did_you_mean
from flexpredict.model.encoder import Encoder
from flexpredict.runs.encoder_file import EncoderSpec, is_own, read_encoder

Pooling = Literal["mean", "class"]


class Layer(NamedTuple):
    """Features after one block."""

    patches: Tensor  # B N D, row by row over the grid
    class_token: Tensor | None  # B D, where the encoder has one


class FrozenEncoder(nn.Module, ABC):
    """An encoder to be evaluated. It takes images as bytes and normalises them as it was trained with.

    Args:
        name: as it was asked for.
        what: what it is, in words.
        dim: features of the last layer.
        depth: layers there are.
        patch_size: pixels a patch, height and width.
        image_size: that it was trained at; any multiple of the patch size will do.
        pooling: its own way to make one vector of an image.
    """

    def __init__(
        self,
        name: str,
        what: str,
        dim: int,
        depth: int,
        patch_size: tuple[int, int],
        image_size: tuple[int, int],
        pooling: Pooling,
        mean: tuple[float, ...] = MEAN,
        std: tuple[float, ...] = STD,
    ) -> None:
        super().__init__()
        self.name, self.what = name, what
        self.dim, self.depth = dim, depth
        self.patch_size, self.image_size = patch_size, image_size
        self.pooling = pooling
        self.found: tuple[str, ...] = ()  # what was found where it came from, and what was left out, a line each
        self.mean, self.std = tuple(mean), tuple(std)
        self._mean: Tensor
        self._std: Tensor
        self.register_buffer("_mean", torch.tensor(mean).view(3, 1, 1) * 255.0, persistent=False)
        self.register_buffer("_std", torch.tensor(std).view(3, 1, 1) * 255.0, persistent=False)

    @abstractmethod
    def _layers(self, images: Tensor, count: int) -> list[Layer]:
        """Of normalised images, the last `count` layers in their order, with the final norm."""

    def layers(self, images: Tensor, count: int = 1) -> list[Layer]:
        """images: B 3 H W uint8 -> the last `count` layers, the final norm applied to each."""
        self.check_layers(count)
        self.check_size((images.shape[2], images.shape[3]))
        return self._layers(self._normalised(images), count)

    def pooled(self, images: Tensor, count: int = 1, pooling: Pooling | None = None) -> Tensor:
        """One vector an image, of the last `count` layers side by side: B 3 H W uint8 -> B (count·D)."""
        vectors = [pool(layer, pooling or self.pooling, self.what) for layer in self.layers(images, count)]
        return torch.cat(vectors, dim=1)

    def pooling_in_words(self, pooling: Pooling | None) -> str:
        """What `pooled` does when asked for this: a model's own way may be neither a mean nor its class token."""
        return pooling or self.pooling

    def check_layers(self, count: int) -> None:
        if not 1 <= count <= self.depth:
            raise UserError(
                f"Features of the last {count} layers were asked of {self.what}, which has {self.depth}. "
                f"Ask for 1 to {self.depth}."
            )

    def check_size(self, image_size: tuple[int, int]) -> None:
        """Refuse images that patches do not fill."""
        near = [max(1, round(side / patch)) * patch for side, patch in zip(image_size, self.patch_size, strict=True)]
        if tuple(near) != image_size:
            raise UserError(
                f"Images of {image_size[0]}x{image_size[1]} cannot be cut into the {self.patch_size[0]}x"
                f"{self.patch_size[1]} patches of {self.what}. Use a multiple, such as --image_size "
                f"{near[0]}x{near[1]}."
            )

    def fingerprint(self) -> str:
        """Tells whether two encoders have the same weights, and make the same of them and of pixels."""
        pixels = f"{self._mean.flatten().tolist()} {self._std.flatten().tolist()}"
        digest = hashlib.blake2b(f"{self.architecture()} {self.patch_size} {pixels}".encode(), digest_size=16)
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def architecture(self) -> str:
        """What weights alone do not tell, such as the activation."""
        return type(self).__name__

    def _normalised(self, images: Tensor) -> Tensor:
        if images.ndim != 4 or images.shape[1] != 3 or images.dtype != torch.uint8:
            raise UserError(
                f"{self.what} takes images as bytes, B 3 H W uint8, not {images.dtype} of {tuple(images.shape)}."
            )
        weight_type = next(self.parameters()).dtype
        return images.float().sub_(self._mean).div_(self._std).to(weight_type)


class ViTEncoder(FrozenEncoder):
    """A plain vision transformer, pre-trained here or elsewhere.

    Args:
        encoder: with the weights in timm's layout.
        spec: how to build it, for those who hand it on.
    """

    def __init__(
        self,
        encoder: Encoder,
        name: str,
        what: str,
        *,
        spec: EncoderSpec | None = None,
        found: tuple[str, ...] = (),
        # Nothing in I-JEPA trains a class token to say anything, so patches are averaged even where there is one.
        pooling: Pooling = "mean",
        mean: tuple[float, ...] = MEAN,
        std: tuple[float, ...] = STD,
    ) -> None:
        size = (encoder.grid[0] * encoder.patch_size[0], encoder.grid[1] * encoder.patch_size[1])
        super().__init__(name, what, encoder.dim, encoder.depth, encoder.patch_size, size, pooling, mean, std)
        self.encoder, self.spec, self.found = encoder, spec, found

    def architecture(self) -> str:
        block = self.encoder.vit.blocks[0]
        heads, eps = getattr(block.attn, "num_heads", ""), getattr(block.norm1, "eps", "")
        activation = type(getattr(block.mlp, "act", None)).__name__
        return f"{super().architecture()} {self.encoder.positions} {heads} {eps} {activation}"

    def _layers(self, images: Tensor, count: int) -> list[Layer]:
        prefix = self.encoder.vit.num_prefix_tokens
        has_class_token = self.encoder.vit.cls_token is not None
        return [
            Layer(tokens[:, prefix:], tokens[:, 0] if has_class_token else None)
            for tokens in self.encoder.last_tokens(images, count)
        ]


def open_encoder(
    name: str | Path,
    *,
    which: Which = "target",
    heads: int | None = None,
    grid: tuple[int, int] | None = None,
    partial: bool = False,
) -> FrozenEncoder:
    """The encoder that a name stands for, in evaluation mode. What it is, is found out by looking inside.

    - a run folder, or an encoder.safetensors: the *target* encoder, or the context encoder of the last checkpoint
    - a checkpoint of I-JEPA, StoP, MAE, DINO, iBOT, DINOv2, timm …: .pth.tar, .pth, .pt, .bin or .safetensors
    - a folder in the layout of Hugging Face or timm, with a config.json
    - timm:NAME: any model of timm with its pre-trained weights; timm:NAME,pretrained=no for untrained ones
    - hf:NAME: a vision model of the Hugging Face hub, or a folder in its layout

    Args:
        name: one of these.
        which: of two encoders, a moving average ("target", the teacher) and the one it follows ("context").
        heads: attention heads of a checkpoint that does not tell.
        grid: rows and columns of patches of a checkpoint that does not tell.
        partial: take a checkpoint although tensors are missing or left over.
    """
    text = str(name)
    kind, colon, rest = text.partition(":")
    if colon and kind in ("timm", "hf"):
        from flexpredict.encoders.libraries import open_hugging_face, open_timm

        return (open_timm if kind == "timm" else open_hugging_face)(text, rest).eval()
    path = Path(text).expanduser()
    if not path.exists():
        hint = did_you_mean(kind, ("timm", "hf")) if colon else ""
        raise UserError(
            f"There is no encoder '{text}' (looked for in {Path.cwd()}).{hint} Give a run folder, a checkpoint, "
            "timm:NAME or hf:NAME."
        )
    if is_own(path):
        return _open_own(path, text, which).eval()
    if path.is_dir() and (path / "config.json").is_file() and not is_plain(path):
        from flexpredict.encoders.libraries import open_hugging_face, open_timm_folder

        return (open_timm_folder if is_timm(path) else open_hugging_face)(text, str(path)).eval()
    found = find(path, which=which, heads=heads, grid=grid, partial=partial)
    return ViTEncoder(
        build(found),
        text,
        f"{found.which} of {text}",
        spec=found.spec,
        found=found.in_words(),
        pooling=found.pooling,
        mean=found.mean,
        std=found.std,
    ).eval()


def pool(layer: Layer, pooling: Pooling, what: str) -> Tensor:
    """One vector an image: the mean of its patches, or its class token. B N D -> B D."""
    if pooling == "mean":
        return layer.patches.float().mean(dim=1)
    if layer.class_token is None:
        raise UserError(f"The class token was asked of {what}, which has none to give. Use --pooling mean.")
    return layer.class_token.float()


def _open_own(path: Path, name: str, which: Which) -> ViTEncoder:
    encoder, spec, part = read_encoder(path)
    facts = ""
    if path.is_dir():
        state = path / "checkpoints" / "last" / "state.json"
        step = json.loads(state.read_text()).get("step") if state.is_file() else None
        facts = f" after step {step:,}" if step is not None else ""
    if which == "context":
        part = "context encoder"
        weights = path / "checkpoints" / "last" / "model.safetensors"
        if not weights.is_file():
            raise UserError(
                f"The context encoder is in the checkpoints of a run, and there is no {weights}. Leave --which out "
                "for the target encoder."
            )
        with safe_open(weights, framework="pt") as file:
            prefix = "context_encoder.vit."
            names = [key for key in file.keys() if key.startswith(prefix)]  # noqa: SIM118 (not a mapping)
            encoder.vit.load_state_dict({key.removeprefix(prefix): file.get_tensor(key) for key in names})
    return ViTEncoder(encoder, name, f"{part} of {name}{facts}", spec=spec)
