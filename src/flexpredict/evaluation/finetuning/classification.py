"""How many images a classifier gets right, in total and for each class."""

from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import Tensor

from flexpredict.data.loader import evaluation_batches
from flexpredict.errors import UserError
from flexpredict.evaluation.finetuning.classifier import Classifier
from flexpredict.evaluation.labeled_images import LabeledImages
from flexpredict.progress import Counting
from flexpredict.training.engine import gather

_BEST = 5


@dataclass(frozen=True)
class Classified:
    """Which images were classified correctly."""

    top1: Tensor  # N bool
    top5: Tensor  # N bool: among the five best guesses
    labels: Tensor  # N
    classes: tuple[str, ...]
    unreadable: list[str]  # images that could not be read and are not counted

    def numbers(self) -> dict[str, float]:
        """In percent: over images, over classes, and within five guesses if there are more than five classes."""
        of_classes = [accuracy for accuracy in self.of_classes().values() if accuracy is not None]
        numbers = {
            "accuracy": 100 * float(self.top1.double().mean()),
            "mean of classes": sum(of_classes) / len(of_classes),
        }
        if len(self.classes) > _BEST:
            numbers["top-5"] = 100 * float(self.top5.double().mean())
        return numbers

    def of_classes(self) -> dict[str, float | None]:
        """In percent, for each class; None if there is no image of it."""
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
    """All images once, shared by all ranks; the same result on every rank. batch_size: of one rank."""
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
