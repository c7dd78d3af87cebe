"""Chooses training and test images, and makes sure that both have the same classes."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from flexpredict.data.label_subsets import all_but, label_subset
from flexpredict.data.sources.derived import SubsetSource
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError, did_you_mean, some_of

_TEST_NAMES = ("test", "val", "valid", "validation")


@dataclass(frozen=True)
class LabeledImages:
    """Images, each with a label."""

    source: ImageSource
    labels: Tensor  # N int64: into `classes`
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Tensor) -> "LabeledImages":
        return LabeledImages(SubsetSource(self.source, indices), self.labels[indices], self.classes)


def with_labels(source: ImageSource, role: str) -> LabeledImages:
    """All images of a source that have a label. role: "training" or "test"."""
    if source.labels is None or not bool((source.labels >= 0).any()):
        raise UserError(
            f"The {role} images of {source.name} have no labels. Sort them into folders directly below it, one for "
            "each class and at least two; or name the column of a table with ,label=NAME."
        )
    classes = source.classes or tuple(str(number) for number in range(int(source.labels.max()) + 1))
    images = LabeledImages(source, source.labels, classes)
    labeled = (source.labels >= 0).nonzero()[:, 0]
    return images if len(labeled) == len(source) else images.subset(labeled)


def numbered_alike(test: LabeledImages, train: LabeledImages) -> LabeledImages:
    """`test` with the class numbers of `train`; classes are matched by name."""
    if len(train.classes) < 2:
        raise UserError(f"{train.source.name} has only one class, {train.classes[0]}. At least 2 are needed.")
    used = {test.classes[number] for number in torch.unique(test.labels).tolist()}
    known = {train.classes[number] for number in torch.unique(train.labels).tolist()}
    unknown = [name for name in test.classes if name in used and name not in known]
    if unknown:
        raise UserError(
            f"{len(unknown)} of the {len(used)} classes of {test.source.name} have no image in {train.source.name}:"
            f" {some_of(unknown)}.{_suggestion(unknown[0], train.classes)} No classifier could get them right: give"
            " the classes the same names, or leave these out."
        )
    number_of = {name: number for number, name in enumerate(train.classes)}
    renumbered = torch.tensor([number_of.get(name, -1) for name in test.classes])
    return LabeledImages(test.source, renumbered[test.labels], train.classes)


def choose(images: LabeledImages, image_list: str | Path | None, fraction: float, seed: int) -> LabeledImages:
    """The images named in the file `image_list`, or all; and of these a stratified `fraction`."""
    if image_list is not None:
        images = images.subset(listed(images.source, Path(image_list)))
        _check_classes(images, f"among those listed in {image_list}")
    _check_classes(images, f"in {images.source.name}")
    if not 0 < fraction < 1:  # A fraction out of range is refused with the other settings.
        return images
    if round(fraction * len(images)) < len(images.classes):
        least = len(images.classes) / len(images)
        raise UserError(
            f"fraction={fraction:.3g} of the {len(images)} images of {images.source.name} are "
            f"{round(fraction * len(images))}, which leaves some of the {len(images.classes)} classes without an "
            f"image. Use fraction={least:.2g} or more."
        )
    return images.subset(label_subset(images.labels, fraction, seed))


def hold_out(images: LabeledImages, share: float, seed: int) -> tuple[LabeledImages, LabeledImages | None]:
    """The remaining images, and a stratified share of them with at least one of each class (None for share 0)."""
    if not share:
        return images, None
    held_out = label_subset(images.labels, share, seed)
    remaining = images.subset(all_but(held_out, len(images)))
    _check_classes(remaining, f"once {len(held_out)} of {len(images)} are held out (held_out=0 trains on all)")
    return remaining, images.subset(held_out)


def listed(source: ImageSource, path: Path) -> Tensor:
    """Indices of the images named in a text file, one per line, each with enough of its path to be unique."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The list of images {path} cannot be read: {error}. Give a text file.") from error
    wanted = list(dict.fromkeys(line for line in lines if line))
    file_names = {_file_name(line) for line in wanted}
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for index in range(len(source)):
        name = source.describe(index)
        if (file_name := _file_name(name)) in file_names:
            found[file_name].append((f"/{name}", index))
    indices = {
        line: [index for name, index in found[_file_name(line)] if name.endswith(f"/{line.lstrip('/')}")]
        for line in wanted
    }
    absent = [line for line, hits in indices.items() if not hits]
    if absent or not wanted:
        raise UserError(
            f"{len(absent)} of {len(wanted)} images named in {path} are not in {source.name}"
            + (f": {some_of(absent)}" if absent else "")
            + f". Name them as they are there, for example {source.describe(0)}."
        )
    ambiguous = [line for line, hits in indices.items() if len(hits) > 1]
    if ambiguous:
        raise UserError(
            f"{len(ambiguous)} names in {path} stand for several images of {source.name}: {some_of(ambiguous)}. Give "
            "more of their paths."
        )
    chosen: Tensor = torch.unique(torch.tensor([hits[0] for hits in indices.values()]))
    return chosen


def _check_classes(images: LabeledImages, where: str) -> None:
    absent = (torch.bincount(images.labels, minlength=len(images.classes)) == 0).nonzero()[:, 0].tolist()
    if absent:
        names = some_of([images.classes[number] for number in absent])
        raise UserError(
            f"{len(absent)} of {len(images.classes)} classes have no training image {where}: {names}. Add images of "
            "them, or leave these classes out."
        )


def _suggestion(name: str, known: tuple[str, ...]) -> str:
    """A class that may be meant. "7 objects" is not a misspelling of "6 objects"."""
    without_digits = re.sub(r"\d+", "", name)
    return did_you_mean(name, [other for other in known if re.sub(r"\d+", "", other) != without_digits])


def _file_name(name: str) -> str:
    return name.rpartition("/")[2]


def open_splits(dataset: str) -> tuple[str, ImageSource, ImageSource]:
    """The name, the training images and the test images of NAME=DATA, NAME=TRAIN::TEST, or DATA alone.

    DATA is a folder with train and test (or val) below, scenes, or anything that has such splits.
    """
    name, data = _name_and_data(dataset)
    train, colons, test = data.partition("::")
    if colons:
        return name, open_source(train), open_source(test)
    if data.partition(":")[0] == "scenes":
        comma = "," if ":" in data else ":"
        return name, open_source(f"{data}{comma}split=train"), open_source(f"{data}{comma}split=test")
    folder = Path(data).expanduser()
    if (folder / "train").is_dir():
        tests = [folder / test for test in _TEST_NAMES if (folder / test).is_dir()]
        if not tests:
            raise UserError(
                f"{folder} has a folder train, but none of {', '.join(_TEST_NAMES)}. Name both: NAME=TRAIN::TEST."
            )
        return name, open_source(str(folder / "train")), open_source(str(tests[0]))
    return name, _first_that_opens(data, ("train",)), _first_that_opens(data, _TEST_NAMES)


def _name_and_data(dataset: str) -> tuple[str, str]:
    """Split NAME=DATA; the default name is the last part of the path of the (training) images, without options."""
    name, equals, data = dataset.partition("=")
    if equals and re.fullmatch(r"[\w. -]+", name) and not Path(dataset).exists():
        return name, data
    train, colons, _ = dataset.partition("::")
    path = Path(train.partition(",")[0])
    # DATA/train::DATA/test is called DATA.
    return (path.parent.name if colons and path.name == "train" else path.name) or dataset, dataset


def _first_that_opens(data: str, splits: Sequence[str]) -> ImageSource:
    problems = []
    for split in splits:
        try:
            return open_source(f"{data},split={split}")
        except UserError as error:
            problems.append(str(error))
    raise UserError(
        f"{data} has no {' or '.join(splits)} images that could be opened: {problems[0]} Or name both, as "
        "NAME=TRAIN::TEST."
    )
