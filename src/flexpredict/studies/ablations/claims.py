"""The paper's claims in one table over all chapters, `python -m flexpredict.studies.ablations.claims`.

Each claim is a difference between arms of a study, taken seed by seed. It is confirmed if the 95 % interval of the
difference lies on the side of zero that the paper reports, refuted if it lies on the other side, else undecided. A
claim of no gain is refuted by any gain beyond chance, and confirmed if the interval excludes a gain of one point.
"""

import argparse
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexpredict.studies.ablations.chapters import as_markdown, write_block, write_index
from flexpredict.studies.ablations.downstream import CLEVR, DAVIS, TRANSFER
from flexpredict.studies.ablations.summary import Estimate, digits_of

_NO_GAIN = 1.0  # points
_ACCURACY = re.compile(r"linear, ([\d.]+) % labels")  # claims use the one with the fewest labels, as in the paper
_ALL_LABELS = "linear, 100 % labels"
BLOCK = "claims"
UNDECIDED = "undecided"

Values = NDArray[np.float64]  # a number for each seed


@dataclass(frozen=True)
class Chapter:
    """The content of results.json of a chapter."""

    folder: Path
    results: dict[str, Any]

    def mean(self, measure: str, **wanted: Any) -> Values:
        """Mean over the arms with these fields, for each seed. KeyError without such arms or without the measure."""
        arms = [arm for arm in self.results["arms"] if all(arm[name] == value for name, value in wanted.items())]
        if not arms:
            raise KeyError(f"no arm with {wanted}")
        mean: Values = np.mean([arm["numbers"][measure] for arm in arms], axis=0)
        return mean

    def all_of(self, field: str) -> list[Any]:
        return sorted({arm[field] for arm in self.results["arms"]})

    def accuracy(self) -> str:
        """The name of the measure that claims about accuracy use."""
        shares = filter(None, map(_ACCURACY.fullmatch, self.results["arms"][0]["numbers"]))
        return min(shares, key=lambda found: float(found[1]))[0]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper."""

    text: str
    study: str  # the study that tests it
    difference: Callable[[Chapter, str], Values]  # seed by seed; KeyError if an arm is missing
    sign: int = 1  # sign of the claimed difference, 1 or -1; 0 if the claim is no gain
    measure: str = ""  # default: accuracy

    def verdict(self, difference: Estimate) -> str:
        if difference.half is None:
            return UNDECIDED
        low, high = difference.mean - difference.half, difference.mean + difference.half
        if self.sign < 0:
            low, high = -high, -low
        confirmed, refuted = (low > 0, high < 0) if self.sign else (low <= 0 and high < _NO_GAIN, low > 0)
        return "confirmed" if confirmed else "refuted" if refuted else UNDECIDED


def _less(one: str, other: str, field: str = "name") -> Callable[[Chapter, str], Values]:
    return lambda chapter, measure: chapter.mean(measure, **{field: one}) - chapter.mean(measure, **{field: other})


def _most_noise(chapter: Chapter, measure: str) -> Values:
    return chapter.mean(measure, level=chapter.all_of("level")[-1]) - chapter.mean(measure, level=0.0)


def _gain(chapter: Chapter, measure: str, freedom: int) -> Values:
    """Gain of noise over no noise, mean over levels. freedom: index into the values of `where`, ascending."""
    series = sorted(chapter.all_of("series"), key=lambda series: float(series.removeprefix("where=")))[freedom]
    noisy = [chapter.mean(measure, series=series, level=level) for level in chapter.all_of("level") if level]
    gain: Values = np.mean(noisy, axis=0) - chapter.mean(measure, series=series, level=0.0)
    return gain


def _most_freedom(chapter: Chapter, measure: str) -> Values:
    return _gain(chapter, measure, -1)


def _freedom(chapter: Chapter, measure: str) -> Values:
    return _gain(chapter, measure, -1) - _gain(chapter, measure, 0)


_STOP = _less("StoP", "sin-cos")
_COVARIANCE = _less("learned covariance", "fixed covariance", "series")
CLAIMS = (
    Claim("Stochastic positions are better than sin-cos (+3.5)", "table6", _STOP),
    Claim("… with all labels (ViT-B, 600 epochs: +1.7)", "table6", _STOP, 1, _ALL_LABELS),
    Claim("… and better than learned positions (+3.4)", "table6", _less("StoP", "learned")),
    Claim("They make features depend less on position", "table6", _STOP, -1, "location share"),
    Claim("They transfer better to other images (Places205: +0.9)", "table6", _STOP, 1, TRANSFER),
    Claim("… to counting (+1.5)", "table6", _STOP, 1, CLEVR["count"]),
    Claim("… to distances (+0.6)", "table6", _STOP, 1, CLEVR["dist"]),
    Claim("… and to objects in videos (+0.9)", "table6", _STOP, 1, DAVIS),
    Claim(
        "Noise on masked tokens is better than on the context (+2.7)", "table7", _less("masked only", "context only")
    ),
    Claim("… and better than on both (+1.0)", "table7", _less("masked only", "both")),
    Claim(
        "Targets of half the resolution are no gain (-0.2)", "table8", _less("half, max-pooled", "full resolution"), 0
    ),
    Claim("… and StoP is better than these (+3.7)", "table8", _less("StoP", "half, max-pooled")),
    Claim("A learned covariance is better than a fixed one (mean over levels)", "fig3", _COVARIANCE),
    Claim("Noise makes ‖A‖ smaller (most noise less none)", "fig4", _most_noise, -1, "‖A‖"),
    Claim("… and ‖m̃‖ larger", "fig4", _most_noise, 1, "‖m̃‖"),
    Claim("It is more than regularization: StoP is better than L1 on A (+2.0)", "l1", _less("StoP", "L1 on A")),
    Claim("On MAE stochastic positions are no gain", "mae", _less("MAE, StoP", "MAE, sin-cos"), 0),
    Claim("They are better than sin-cos where the place of parts is free (mean over levels)", "where", _most_freedom),
    Claim("… with all labels", "where", _most_freedom, 1, _ALL_LABELS),
    Claim("… and help more there than where it is fixed", "where", _freedom),
)


def claims_table(chapters: Path, page: Path) -> str:
    """All claims that a chapter below the folder has tested, as Markdown with links from the page.

    All chapters of one kind, such as `table6-scenes` and `table7-scenes`, share a column. A note below says how many
    intervals exclude zero, and how many would by chance.
    """
    found = [
        Chapter(path.parent, json.loads(path.read_text("utf-8"))) for path in sorted(chapters.glob("*/results.json"))
    ]
    told = [(claim, list(_verdicts(claim, found, page))) for claim in CLAIMS]
    kinds = sorted({verdict.kind for _, verdicts in told for verdict in verdicts})
    lines = [["claim of the paper (its difference)", "measured by", *kinds]]
    for claim, verdicts in told:
        if verdicts:
            usual = verdicts[0].measure
            cells = {
                verdict.kind: verdict.text + f" ({verdict.measure})" * (verdict.measure != usual)
                for verdict in verdicts
            }
            lines.append([claim.text, usual, *(cells.get(kind, "") for kind in kinds)])
    if len(lines) == 1:
        return "No chapter has tested any of these claims yet.\n"
    every = [
        verdict.difference for _, verdicts in told for verdict in verdicts if verdict.difference.half is not None
    ]
    excluding, by_chance = sum(bool(difference.sign) for difference in every), len(every) / 20
    return as_markdown(lines, numbers=False) + (
        f"\n{excluding} of the {len(every)} intervals exclude zero; about {by_chance:.0f} would by chance if nothing "
        "made a difference. Intervals are over training seeds, with the same test images and labels for all. Rows of "
        "one column share runs, so they are not independent.\n"
    )


@dataclass(frozen=True)
class _Verdict:
    """The verdict of one chapter on a claim."""

    kind: str
    measure: str
    difference: Estimate
    text: str


def _verdicts(claim: Claim, chapters: list[Chapter], page: Path) -> Iterator[_Verdict]:
    """One for each chapter that tested the claim."""
    for chapter in chapters:
        if chapter.results["study"] != claim.study:
            continue
        measure = claim.measure or chapter.accuracy()
        try:
            difference = Estimate.of(claim.difference(chapter, measure).tolist())
        except KeyError:  # the chapter lacks an arm or a measure
            continue
        link = Path(os.path.relpath(chapter.folder, page.parent), "README.md").as_posix()
        verdict = claim.verdict(difference)
        shown = verdict if verdict == UNDECIDED else f"**{verdict}**"
        kind = chapter.folder.name.removeprefix(f"{claim.study}-")
        yield _Verdict(kind, measure, difference, f"{shown} [{difference.in_words('+', digits_of(measure))}]({link})")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the table of the paper's claims into pages, between marks.")
    parser.add_argument("pages", type=Path, nargs="*", default=[Path("README.md"), Path("docs/studies/README.md")])
    parser.add_argument("--chapters", type=Path, default=Path("docs/studies"), help="folder of the chapters")
    options = parser.parse_args()
    write_index(options.chapters)  # findings may have been written since
    for page in options.pages:
        written = write_block(page, BLOCK, claims_table(options.chapters, page))
        print(f"{page}: {'written' if written else f'has no <!-- {BLOCK} --> and <!-- end of {BLOCK} -->'}")


if __name__ == "__main__":
    main()
