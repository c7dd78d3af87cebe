"""The contents of a set of images in numbers, and warnings about what needs action."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexpredict.data.decoding import UnreadableImage
from flexpredict.prepare.examination import Examined
from flexpredict.sizes import Size, default_image_size

_NAMED = 5  # classes and sizes that are named
# Thresholds of the warnings. At the first, training stops unless max_skipped is raised.
_MANY_BROKEN = 0.05
_MANY_DUPLICATES = 0.01
_MANY_SMALL = 0.1
_UNEVEN = 10  # times as many images in the largest class as in the smallest


@dataclass(frozen=True)
class Spread:
    """The smallest of many values, their 5th, 50th and 95th percentile, and the largest, without interpolation."""

    smallest: float
    low: float
    median: float
    high: float
    largest: float

    @classmethod
    def of(cls, values: NDArray[Any]) -> "Spread":
        return cls(*np.percentile(values, (0, 5, 50, 95, 100), method="nearest").tolist())


@dataclass(frozen=True)
class Sizes:
    """How large the readable images are."""

    shorter_side: Spread
    megapixels: Spread
    aspect: Spread  # width / height
    distinct: int
    most_frequent: list[tuple[int, int, int]]  # height, width, images


@dataclass(frozen=True)
class Classes:
    """How many images each class has. Classes without any image count too."""

    count: int
    images: Spread
    largest: list[tuple[str, int]]
    smallest: list[tuple[str, int]]  # from the smallest up; empty if `largest` names them all
    labeled: int
    unlabeled: int


@dataclass(frozen=True)
class Duplicates:
    """Images with the same content, byte for byte."""

    groups: int
    superfluous: int  # all but one of each group


@dataclass(frozen=True)
class Survey:
    """Statistics of a set of images."""

    source: str
    images: int | None  # in total, if known
    examined: int
    readable: int
    bytes: int  # of the readable images
    formats: dict[str, int]
    modes: dict[str, int]
    rotated: int  # JPEGs that EXIF turns upright
    animated: int
    grayscale: int  # whatever their mode
    sizes: Sizes | None  # None if no image can be read
    classes: Classes | None
    broken: int  # images that cannot be read
    problems: int  # places that could not be listed: folders, shards
    reasons: dict[str, int]  # of both; numbers in them are left out
    duplicates: Duplicates
    image_size: Size | None  # for training
    patch_size: int | None
    smaller: int  # images that are smaller than the crops of training

    @property
    def warnings(self) -> list[str]:
        """Problems that a person should act on."""
        warnings = []
        if self.broken > _MANY_BROKEN * self.examined:
            warnings.append(
                f"{_share(self.broken, self.examined)} of the images cannot be read. Training would stop at more than"
                f" {100 * _MANY_BROKEN:.0f} %: repair or remove what broken.jsonl lists."
            )
        if self.problems:
            warnings.append(
                f"{self.problems:,} places could not be listed (see broken.jsonl): images in them are missing here."
            )
        if self.duplicates.superfluous > _MANY_DUPLICATES * self.readable:
            warnings.append(
                f"{_share(self.duplicates.superfluous, self.readable)} of the images are copies of others. In a test"
                " set, they make results look too good: remove all but one of each group in duplicates.jsonl."
            )
        if self.image_size and self.sizes and self.smaller > _MANY_SMALL * self.readable:
            usual = default_image_size([(int(self.sizes.shorter_side.low),) * 2])
            is_smaller = usual < min(self.image_size)
            advice = f"Use image_size={usual}" if is_smaller else "No usual size is smaller: keep them"
            warnings.append(
                f"{_share(self.smaller, self.readable)} of the images are smaller than the {self.image_size[0]}x"
                f"{self.image_size[1]} pixels of training and would be enlarged. {advice}, or leave them out."
            )
        if self.classes:
            largest, smallest = self.classes.largest, self.classes.smallest
            (most, many), (least, few) = largest[0], (smallest or largest[::-1])[0]
            if many == self.classes.labeled:
                warnings.append(
                    f"All labeled images are of one class, {most}. Measuring what is learned takes at least two."
                )
            elif many > _UNEVEN * few:
                warnings.append(
                    f"The classes are very uneven: {most} has {many:,} images, {least} {few:,}. Pre-training sees the"
                    " large classes most; judge the others by themselves."
                )
        if self.readable and self.grayscale == self.readable:
            warnings.append("No image has colors. That is no fault, but the grayscale augmentation does nothing.")
        return warnings


def survey_of(examined: Examined, image_size: Size | None, patch_size: int | None) -> Survey:
    """Compute the survey. image_size: of the crops of training; patch_size: of their patches."""
    images, findings, duplicates = examined.images, examined.findings, examined.duplicates
    readable = findings.rows[findings.readable]
    heights, widths = readable["height"], readable["width"]
    small = 0 if image_size is None else int(((heights < image_size[0]) | (widths < image_size[1])).sum())
    return Survey(
        source=images.name,
        images=examined.count,
        examined=len(findings.rows),
        readable=len(readable),
        bytes=findings.counts["bytes"],
        formats=dict(findings.formats.most_common()),
        modes=dict(findings.modes.most_common()),
        rotated=findings.counts["rotated"],
        animated=findings.counts["animated"],
        grayscale=findings.counts["grayscale"],
        sizes=_sizes(heights, widths) if len(readable) else None,
        classes=_classes(examined.labels, images.classes),
        broken=len(findings.rows) - len(readable),
        problems=len(examined.problems),
        reasons=_reasons([*examined.problems, *findings.broken]),
        duplicates=Duplicates(len(duplicates), sum(len(group) - 1 for group in duplicates)),
        image_size=image_size,
        patch_size=patch_size,
        smaller=small,
    )


def _sizes(heights: NDArray[np.int32], widths: NDArray[np.int32]) -> Sizes:
    distinct, counts = np.unique(np.stack((heights, widths), axis=1), axis=0, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:_NAMED]
    return Sizes(
        shorter_side=Spread.of(np.minimum(heights, widths)),
        megapixels=Spread.of(heights * (widths / 1e6)),
        aspect=Spread.of(widths / heights),
        distinct=len(distinct),
        most_frequent=[(*distinct[size].tolist(), int(counts[size])) for size in most],
    )


def _classes(labels: NDArray[np.integer] | None, names: tuple[str, ...] | None) -> Classes | None:
    if labels is None or not (labels >= 0).any():
        return None
    counts = np.bincount(labels[labels >= 0], minlength=len(names or ()))
    order = np.argsort(-counts, kind="stable")
    named = [(names[index] if names and index < len(names) else str(index), int(counts[index])) for index in order]
    few = len(named) <= 2 * _NAMED
    return Classes(
        count=len(counts),
        images=Spread.of(counts),
        largest=named if few else named[:_NAMED],
        smallest=[] if few else named[: -_NAMED - 1 : -1],
        labeled=int(counts.sum()),
        unlabeled=int((labels < 0).sum()),
    )


def _reasons(failures: list[UnreadableImage]) -> dict[str, int]:
    """`truncated (12 bytes not processed)` and `truncated (90 bytes …)` are one reason."""
    return dict(Counter(re.sub(r"\b\d+\b", "…", failure.reason) for failure in failures).most_common())


def _share(part: int, whole: int) -> str:
    """3 of 1,000 -> `3 (0.3 %)`."""
    percent = 100 * part / whole
    return f"{part:,} ({percent:.0f} %)" if percent >= 10 else f"{part:,} ({percent:.2g} %)"
