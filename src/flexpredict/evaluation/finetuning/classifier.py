"""An encoder with a linear head; all weights are trained."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from rich.console import Console
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from flexpredict.data.loader import evaluation_batches
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.labeled_images import LabeledImages
from flexpredict.files import write_atomically
from flexpredict.progress import Counting
from flexpredict.randomness import normal, stream_key, uniform
from flexpredict.settings.extraction import Pooling
from flexpredict.training.engine import gather

_BEST = 5  # guesses of top-5 accuracy
_HEAD_STD = 2e-5  # MAE's: so small that a new head hardly disturbs the encoder
# blocks.3. in timm; encoder.layer.3. or layers.3. in Hugging Face's models.
_BLOCK = re.compile(r"(?:^|\.)(?:blocks|layers?)\.(\d+)\.")
_AFTER_BLOCKS = re.compile(r"(?:^|\.)(?:(?:fc_|post_)?(?:norm|layer_?norm)|head|pooler|attn_pool)\.")
_NEVER_DECAYS = ("pos_embed", "positions", "position_embeddings", "_token", "_tokens", "relative_position_bias_table")


class Classifier(nn.Module):
    """Computes logits of images. The encoder is not copied: training changes it.

    Parameters that its pooled features do not depend on are not trained. drop_path: rate of the last block, see
    `DropPath`; seed: of the initial head.
    """

    def __init__(
        self,
        encoder: ImageEncoder,
        classes: tuple[str, ...],
        pooling: Pooling | None,
        image_size: tuple[int, int],
        drop_path: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.encoder, self.classes, self.pooling, self.image_size = encoder, classes, pooling, image_size
        width = self._try_out()
        self.head = nn.utils.skip_init(nn.Linear, width, len(classes))  # not from torch's global generator
        with torch.no_grad():
            self.head.bias.zero_()
            numbers = normal(torch.tensor(stream_key(seed, "classifier head")), self.head.weight.numel())
            self.head.weight.copy_(_HEAD_STD * numbers.view_as(self.head.weight))
        self._drop_paths = _put_in_drop_paths(encoder, drop_path) if drop_path else []

    def forward(self, images: Tensor, keys: Tensor | None = None) -> Tensor:
        """images: B 3 H W uint8 -> B C. keys: B random streams, in training, that choose branches to leave out."""
        numbers = None if keys is None or not self._drop_paths else uniform(keys, len(self._drop_paths))
        for place, drop_path in enumerate(self._drop_paths):
            drop_path.numbers = None if numbers is None else numbers[:, place]
        logits: Tensor = self.head(self.encoder.pooled(images, pooling=self.pooling))
        return logits.float()

    def _try_out(self) -> int:
        """The width of the features. Parameters that they do not depend on (mask tokens, other heads) are frozen.

        Otherwise several ranks would wait for gradients that never come.
        """
        self.encoder.requires_grad_()
        device = next(self.encoder.parameters()).device
        features = self.encoder.pooled(
            torch.zeros(1, 3, *self.image_size, dtype=torch.uint8, device=device), pooling=self.pooling
        )
        features.sum().backward()
        for parameter in self.encoder.parameters():
            parameter.requires_grad_(parameter.grad is not None)
            parameter.grad = None
        return features.shape[1]


class DropPath(nn.Module):
    """Leaves out a residual branch for some images of a batch (stochastic depth), by numbers given from outside."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.numbers: Tensor | None = None  # B in [0, 1); None keeps the branch for all images

    def forward(self, branch: Tensor) -> Tensor:
        if self.numbers is None:
            return branch
        kept = (self.numbers >= self.rate).to(branch.dtype) / (1 - self.rate)
        return branch * kept.view(-1, *(1 for _ in branch.shape[1:]))


def drop_path_places(encoder: nn.Module) -> list[str]:
    """Names of the modules for stochastic depth, which most vision transformers have at the end of a branch."""
    return [
        name
        for name, _ in encoder.named_modules()
        if re.search(r"\.drop_path\d?$", name) and block_of(name) is not None
    ]


def _put_in_drop_paths(encoder: ImageEncoder, rate: float) -> list[DropPath]:
    """Put in modules whose rate rises linearly from 0 in the first block to `rate` in the last, as published."""
    drop_paths = []
    for name in drop_path_places(encoder):
        drop_path = DropPath(rate * (block_of(name) or 0) / max(1, encoder.depth - 1))
        parent, _, attribute = name.rpartition(".")
        setattr(encoder.get_submodule(parent), attribute, drop_path)
        drop_paths.append(drop_path)
    return drop_paths


def save_classifier(path: Path, classifier: Classifier) -> None:
    """Weights of encoder and head; the names of the classes are in the header."""
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in classifier.state_dict().items()}
    facts = {
        "encoder": classifier.encoder.name,
        "classes": classifier.classes,
        "pooling": classifier.pooling,
        "image_size": classifier.image_size,
    }
    header = {"format": "pt", "flexpredict": json.dumps({"classifier": facts})}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata=header))


def load_classifier(path: Path, encoder: ImageEncoder) -> Classifier:
    """The classifier in a `model.safetensors`. encoder: of the same architecture; receives the weights."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("flexpredict", "{}")).get("classifier")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{path} is not a readable classifier: {error}. Give the model.safetensors of a fine-tuning run."
        ) from error
    if facts is None:
        raise UserError(f"{path} holds weights, but no classifier. Give the model.safetensors of a fine-tuning run.")
    classifier = Classifier(encoder, tuple(facts["classes"]), facts["pooling"], tuple(facts["image_size"]))
    try:
        classifier.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(
            f"The weights in {path} do not fit {encoder.what}: {str(error).splitlines()[-1].strip()} It was made "
            f"from {facts['encoder']}."
        ) from error
    return classifier.eval()


def layer_of(name: str, depth: int) -> int:
    """Embeddings, positions and tokens are layer 0, block i is i + 1, the final norm and the head are depth + 1."""
    block = block_of(name)
    if block is not None:
        return block + 1
    return depth + 1 if _AFTER_BLOCKS.search(name) and "embed" not in name else 0


def block_of(name: str) -> int | None:
    """The number of the block that a parameter or module belongs to."""
    found = _BLOCK.search(name)
    return int(found.group(1)) if found else None


def layered_groups(model: nn.Module, depth: int, decay: float, what: str) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer: `scale` multiplies the learning rate, `decays` tells if weights decay.

    A layer's scale is decay^(depth + 1 - layer), so 1 for the head. Weight decay applies to matrices only: not to
    biases, norms, tokens and positions.
    """
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if decay != 1 and {block_of(name) for name, _ in trained} - {None} != set(range(depth)):
        raise UserError(
            f"The {depth} layers of {what} cannot be told from the names of its parameters, so layers cannot have "
            "learning rates of their own. Use layer_decay=1."
        )
    groups: dict[tuple[float, bool], list[Tensor]] = {}
    for name, parameter in trained:
        scale = 1.0 if decay == 1 else decay ** (depth + 1 - layer_of(name, depth))
        decays = parameter.squeeze().ndim >= 2 and not name.endswith(_NEVER_DECAYS)
        groups.setdefault((scale, decays), []).append(parameter)
    return [
        {"params": parameters, "scale": scale, "decays": decays} for (scale, decays), parameters in groups.items()
    ]


@dataclass(frozen=True)
class Classified:
    """Which images were classified correctly."""

    top1: Tensor  # N bool
    top5: Tensor  # N bool: among the five best guesses
    labels: Tensor  # N
    classes: tuple[str, ...]
    unreadable: list[str]  # images that could not be read and are not counted

    def numbers(self) -> dict[str, float]:
        """Accuracies in percent: over images, over classes, and within five guesses for more than five classes."""
        of_classes = [accuracy for accuracy in self.of_classes().values() if accuracy is not None]
        numbers = {
            "accuracy": 100 * float(self.top1.double().mean()),
            "mean of classes": sum(of_classes) / len(of_classes),
        }
        if len(self.classes) > _BEST:
            numbers["top-5"] = 100 * float(self.top5.double().mean())
        return numbers

    def of_classes(self) -> dict[str, float | None]:
        """Accuracy of each class in percent; None if there is no image of it."""
        images = torch.bincount(self.labels, minlength=len(self.classes))
        right = torch.bincount(self.labels[self.top1], minlength=len(self.classes))
        return {
            name: 100 * hits / count if count else None
            for name, hits, count in zip(self.classes, right.tolist(), images.tolist(), strict=True)
        }


@torch.no_grad()
def classify(
    fabric: Fabric,
    model: Classifier,
    images: LabeledImages,
    image_size: tuple[int, int],
    batch_size: int,
    workers: int,
    console: Console | None = None,
) -> Classified:
    """Classify all images once. Ranks share the work and get the same result. batch_size: of one rank."""
    mine = images.subset(torch.arange(fabric.global_rank, len(images), fabric.world_size))
    guesses = [torch.empty(0, min(_BEST, len(images.classes)), dtype=torch.int64)]
    labels = [torch.empty(0, dtype=torch.int64)]
    unreadable = []
    with Counting(console or Console(quiet=True), "testing", "images", len(mine)) as counting:
        for batch in evaluation_batches(mine.source, image_size, batch_size, workers=workers):
            unreadable += [str(image) for image in batch.skipped]
            counting.add(len(batch.images) + len(batch.skipped))
            if not len(batch.images):
                continue
            with fabric.autocast():
                logits = model(batch.images.to(fabric.device))
            guesses.append(logits.topk(guesses[0].shape[1], dim=1).indices.cpu())
            labels.append(mine.labels[batch.indices])
    shares = gather(fabric, (torch.cat(guesses), torch.cat(labels), unreadable))
    all_labels = torch.cat([labels for _, labels, _ in shares])
    right = torch.cat([guesses for guesses, _, _ in shares]) == all_labels[:, None]
    broken = [name for _, _, names in shares for name in names]
    if not len(all_labels):
        raise UserError(f"None of the {len(images)} images of {images.source.name} could be read: {broken[0]}.")
    return Classified(right[:, 0], right.any(dim=1), all_labels, images.classes, broken)
