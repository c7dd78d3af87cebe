"""What is in a source, in numbers, and in words where somebody should act."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.usual_sizes import usual_image_size
from flexpredict.prepare.inspection.examination import Findings

_NAMED = 5  # classes and sizes that are named
# From where on a person should act. At the first, training gives up unless it is told otherwise.
_MANY_BROKEN = 0.05
_MANY_DUPLICATES = 0.01
_MANY_SMALL = 0.1
_UNEVEN = 10  # times as many images in the largest class as in the smallest


@dataclass(frozen=True)
class Spread:
    """Of many values the smallest, the largest, and those that 5, 50 and 95 % lie below; all five do occur."""

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
    """How many images each class has. Among the classes are those without any image."""

    count: int
    images: Spread
    largest: list[tuple[str, int]]
    smallest: list[tuple[str, int]]  # from the smallest up; empty where `largest` names them all
    labelled: int
    unlabelled: int


@dataclass(frozen=True)
class Duplicates:
    """Images with the same content, byte for byte."""

    groups: int
    superfluous: int  # all but one of each group


@dataclass(frozen=True)
class Survey:
    """What was found."""

    source: str
    images: int | None  # in total, where that is known
    looked_at: int
    readable: int
    bytes: int  # of the readable
    formats: dict[str, int]
    modes: dict[str, int]
    turned: int  # JPEGs that EXIF turns upright
    animated: int
    colourless: int
    sizes: Sizes | None  # None where nothing can be read
    classes: Classes | None
    broken: int  # images that cannot be read
    problems: int  # places that could not be listed: folders, shards
    reasons: dict[str, int]  # of both; numbers in them are left out
    duplicates: Duplicates
    image_size: tuple[int, int] | None  # for training
    patch_size: int | None
    smaller: int  # than the images that training would make of them
    warnings: list[str] = field(default_factory=list)


def take_survey(
    source: str,
    images: int | None,
    findings: Findings,
    duplicates: list[NDArray[np.int64]],
    problems: list[UnreadableImage],
    labels: NDArray[np.integer] | None,
    names: tuple[str, ...] | None,
    image_size: tuple[int, int] | None,
    patch_size: int | None,
) -> Survey:
    """Put together what was found.

    Args:
        source: Its name.
        images: How many it has, where that is known.
        findings: What was seen of those that were looked at.
        duplicates: As `duplicate_groups` finds them.
        problems: What could not be listed.
        labels: Of all images or of those that were looked at; -1 where there is none.
        names: Of the classes.
        image_size: Of the crops that training would make.
        patch_size: Of their patches.
    """
    rows = findings.rows
    readable = rows[rows["height"] > 0]
    heights, widths = readable["height"], readable["width"]
    small = np.zeros(0, np.bool_) if image_size is None else (heights < image_size[0]) | (widths < image_size[1])
    survey = Survey(
        source=source,
        images=images,
        looked_at=len(rows),
        readable=len(readable),
        bytes=findings.bytes,
        formats=dict(findings.formats.most_common()),
        modes=dict(findings.modes.most_common()),
        turned=findings.turned,
        animated=findings.animated,
        colourless=findings.colourless,
        sizes=_sizes(heights, widths) if len(readable) else None,
        classes=_classes(labels, names),
        broken=len(rows) - len(readable),
        problems=len(problems),
        reasons=_reasons([*problems, *findings.broken]),
        duplicates=Duplicates(len(duplicates), sum(map(len, duplicates)) - len(duplicates)),
        image_size=image_size,
        patch_size=patch_size,
        smaller=int(small.sum()),
    )
    survey.warnings.extend(_warnings(survey))
    return survey


def duplicate_groups(findings: Findings) -> list[NDArray[np.int64]]:
    """Which readable images are the same: for each group of two or more, the rows of the findings; all ascending."""
    readable = np.flatnonzero(findings.rows["height"])
    digests = findings.rows["digest"][readable]
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    ordered = digests[order]
    order = readable[order]
    starts = np.flatnonzero(np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))[: len(order)])
    counts = np.diff(np.append(starts, len(order)))
    several = counts > 1
    groups = [order[start : start + count] for start, count in zip(starts[several], counts[several], strict=True)]
    return sorted(groups, key=lambda group: int(group[0]))


def _sizes(heights: NDArray[np.int32], widths: NDArray[np.int32]) -> Sizes:
    pairs = heights.astype(np.int64) << 32 | widths
    distinct, counts = np.unique(pairs, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:_NAMED]
    return Sizes(
        shorter_side=Spread.of(np.minimum(heights, widths)),
        megapixels=Spread.of(heights * (widths / 1e6)),
        aspect=Spread.of(widths / heights),
        distinct=len(distinct),
        most_frequent=[
            (int(pair) >> 32, int(pair) & 0xFFFFFFFF, int(count))
            for pair, count in zip(distinct[most], counts[most], strict=True)
        ],
    )


def _classes(labels: NDArray[np.integer] | None, names: tuple[str, ...] | None) -> Classes | None:
    if labels is None or not (labels >= 0).any():
        return None
    counts = np.bincount(labels[labels >= 0], minlength=len(names or ()))
    order = np.argsort(-counts, kind="stable")
    named = [(names[index] if names and index < len(names) else str(index), int(counts[index])) for index in order]
    return Classes(
        count=len(counts),
        images=Spread.of(counts),
        largest=named if len(named) <= 2 * _NAMED else named[:_NAMED],
        smallest=[] if len(named) <= 2 * _NAMED else named[: -_NAMED - 1 : -1],
        labelled=int(counts.sum()),
        unlabelled=int((labels < 0).sum()),
    )


def _reasons(failures: list[UnreadableImage]) -> dict[str, int]:
    """`truncated (12 bytes not processed)` and `truncated (90 bytes …)` are one reason."""
    return dict(Counter(re.sub(r"\b\d+\b", "…", failure.reason) for failure in failures).most_common())


def _warnings(survey: Survey) -> list[str]:
    readable, warnings = max(1, survey.readable), []
    if survey.broken > _MANY_BROKEN * survey.looked_at:
        warnings.append(
            f"{_share(survey.broken, survey.looked_at)} of the images cannot be read. Training would stop at more"
            f" than {100 * _MANY_BROKEN:.0f} %: mend or remove what broken.jsonl lists."
        )
    if survey.problems:
        warnings.append(
            f"{survey.problems:,} places could not be listed (see broken.jsonl): images in them are missing here."
        )
    if survey.duplicates.superfluous > _MANY_DUPLICATES * readable:
        warnings.append(
            f"{_share(survey.duplicates.superfluous, readable)} of the images are copies of others. They are seen"
            " more often in training, and make results look better where they are also in a test set: remove all but"
            " one of each group in duplicates.jsonl."
        )
    if survey.image_size and survey.sizes and survey.smaller > _MANY_SMALL * readable:
        smaller = usual_image_size([(int(survey.sizes.shorter_side.low),) * 2])
        advice = (
            f"Use image_size={smaller}" if smaller < min(survey.image_size) else "Nothing smaller is usual; go on"
        )
        warnings.append(
            f"{_share(survey.smaller, readable)} of the images are smaller than the {_by(survey.image_size)} pixels"
            f" of training and would be enlarged. {advice}, or leave them out."
        )
    if survey.classes:
        warnings += _class_warnings(survey.classes)
    if survey.readable and survey.colourless == survey.readable:
        warnings.append("No image has colours. That is no fault, but taking colours away (greyscale) does nothing.")
    return warnings


def _class_warnings(classes: Classes) -> list[str]:
    (most, many), (least, few) = classes.largest[0], (classes.smallest[:1] or classes.largest[-1:])[0]
    if many == classes.labelled:
        return [f"All labelled images are of one class, {most}. To measure what is learnt, at least two are needed."]
    if many > _UNEVEN * few:
        return [
            f"The classes are very uneven: {most} has {many:,} images, {least} {few:,}. Pre-training does not look at"
            " labels, but sees the large classes most; judge the others by themselves."
        ]
    return []


def _share(part: int, whole: int) -> str:
    """3 of 1,000 -> `3 (0.3 %)`."""
    percent = 100 * part / whole
    return f"{part:,} ({percent:.0f} %)" if percent >= 10 else f"{part:,} ({percent:.2g} %)"


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
