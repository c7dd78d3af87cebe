"""Images with their labels: which of them are trained on, which are set aside, and that both sets mean the same."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from flexpredict.data.label_subsets import label_subset
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.subset_source import SubsetSource
from flexpredict.errors import UserError, did_you_mean

_SHOWN = 3


@dataclass(frozen=True)
class LabelledImages:
    """Images, each of which has a label."""

    source: ImageSource
    labels: Tensor  # N int64: into `classes`
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Tensor) -> "LabelledImages":
        return LabelledImages(SubsetSource(self.source, indices), self.labels[indices], self.classes)


def with_labels(source: ImageSource, role: str) -> LabelledImages:
    """All images of a source that have a label. role: "training" or "test"."""
    if source.labels is None or not bool((source.labels >= 0).any()):
        raise UserError(
            f"The {role} images of {source.name} have no labels. Sort them into one folder a class, or name the "
            "column of a table with ,label=NAME."
        )
    classes = source.classes or tuple(str(number) for number in range(int(source.labels.max()) + 1))
    images = LabelledImages(source, source.labels, classes)
    labelled = (source.labels >= 0).nonzero()[:, 0]
    return images if len(labelled) == len(source) else images.subset(labelled)


def numbered_alike(test: LabelledImages, train: LabelledImages) -> LabelledImages:
    """`test` with the class numbers of `train`, found by the names of the classes."""
    if len(train.classes) < 2:
        raise UserError(f"{train.source.name} has one class only, {train.classes[0]}: at least 2 are needed.")
    used = {test.classes[number] for number in torch.unique(test.labels).tolist()}
    known = {train.classes[number] for number in torch.unique(train.labels).tolist()}
    strange = [name for name in test.classes if name in used and name not in known]
    if strange:
        raise UserError(
            f"{len(strange)} of the {len(used)} classes of {test.source.name} have no image in {train.source.name}:"
            f" {_some(strange)}.{did_you_mean(strange[0], train.classes)} Nothing can be right about them: name the"
            " classes alike, or leave these out."
        )
    number_of = {name: number for number, name in enumerate(train.classes)}
    renumbered = torch.tensor([number_of.get(name, -1) for name in test.classes])
    return LabelledImages(test.source, renumbered[test.labels], train.classes)


def choose(images: LabelledImages, image_list: str | None, fraction: float, seed: int) -> LabelledImages:
    """Those named in the file `image_list`, or all; and of these a stratified `fraction`."""
    if image_list is not None:
        images = images.subset(listed(images.source, Path(image_list)))
        _check_classes(images, f"among those listed in {image_list}")
    _check_classes(images, f"in {images.source.name}")
    if not 0 < fraction < 1:  # what is out of range is refused with the other settings
        return images
    if round(fraction * len(images)) < len(images.classes):
        least = len(images.classes) / len(images)
        raise UserError(
            f"{fraction:.3g} of the {len(images)} images of {images.source.name} are "
            f"{round(fraction * len(images))}, which leaves some of the {len(images.classes)} classes without an "
            f"image. Use --fraction {least:.2g} or more."
        )
    return images.subset(label_subset(images.labels, fraction, seed))


def set_aside(images: LabelledImages, share: float, seed: int) -> tuple[LabelledImages, LabelledImages | None]:
    """A stratified share of the images, with at least one of each class, taken out: the rest, and what was taken."""
    if not share:
        return images, None
    aside = label_subset(images.labels, share, seed)
    rest = torch.ones(len(images), dtype=torch.bool)
    rest[aside] = False
    remaining = images.subset(rest.nonzero()[:, 0])
    _check_classes(remaining, f"once {len(aside)} of {len(images)} are held out (--held_out 0 trains on all)")
    return remaining, images.subset(aside)


def _check_classes(images: LabelledImages, where: str) -> None:
    absent = (torch.bincount(images.labels, minlength=len(images.classes)) == 0).nonzero()[:, 0].tolist()
    if absent:
        names = _some([images.classes[number] for number in absent])
        raise UserError(
            f"{len(absent)} of {len(images.classes)} classes have no training image {where}: {names}. Add images of "
            "them, or leave these classes out."
        )


def listed(source: ImageSource, path: Path) -> Tensor:
    """Indices of the images that a text file names, one a line, with as much of the path as tells them apart."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The list of images {path} cannot be read: {error}. Give a text file.") from error
    wanted = list(dict.fromkeys(line for line in lines if line))
    bare_names = {_bare(line) for line in wanted}
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for index in range(len(source)):
        name = source.describe(index)
        if (bare := _bare(name)) in bare_names:
            found[bare].append((f"/{name}", index))
    indices = {
        line: [index for name, index in found[_bare(line)] if name.endswith(f"/{line.lstrip('/')}")]
        for line in wanted
    }
    absent = [line for line, hits in indices.items() if not hits]
    if absent or not wanted:
        raise UserError(
            f"{len(absent)} of {len(wanted)} images named in {path} are not in {source.name}"
            + (f": {_some(absent)}" if absent else "")
            + f". Name them as they are there, for example {source.describe(0)}."
        )
    unclear = [line for line, hits in indices.items() if len(hits) > 1]
    if unclear:
        raise UserError(
            f"{len(unclear)} names in {path} stand for several images of {source.name}: {_some(unclear)}. Give more "
            "of their paths."
        )
    chosen: Tensor = torch.unique(torch.tensor([hits[0] for hits in indices.values()]))
    return chosen


def _bare(name: str) -> str:
    return name.rpartition("/")[2]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
