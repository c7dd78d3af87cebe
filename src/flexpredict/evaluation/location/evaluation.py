"""Evaluates how much features depend on position: fits on some images, and measures on others."""

from dataclasses import asdict
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from flexpredict.data.label_subsets import all_but, label_subset, strata
from flexpredict.data.sources.derived import SubsetSource
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.labeled_images import numbered_alike, with_labels
from flexpredict.evaluation.linear import FittedProbe, fit_probe
from flexpredict.evaluation.location.place import (
    Patches,
    PlaceTold,
    Robustness,
    fit_places,
    measure_places,
    plan_shifts,
    robustness,
)
from flexpredict.evaluation.probing import fitting_device
from flexpredict.evaluation.results import Result, encoder_facts
from flexpredict.evaluation.shared_images import shared_images
from flexpredict.features.encoding import feature_shape
from flexpredict.features.extraction import Features, cached_features
from flexpredict.features.workspace import Workspace
from flexpredict.settings.extraction import Extraction
from flexpredict.showing import numbers_table
from flexpredict.sizes import Grid

_FEWEST = 10  # images to fit on, and images to test on


class LocationResult(Result):
    """Shown as two tables: the position of a patch, and shifted images."""

    def tables(self) -> list[tuple[str, Table]]:
        place, shifts = self.details["place"], self.details["shifts"]
        told = {
            "location share": f"{100 * place['share']:.1f} %",
            "row and column read out, R²": f"{self.numbers['place R²']:.3f}",
            "mean error in patches": f"{place['error']:.2f}",
            "mean error of always predicting the center": f"{place['error_of_center']:.2f}",
        }
        shown = [(self.full_title(), numbers_table({name: {self.data: value} for name, value in told.items()}))]
        rows = {}
        for moved in shifts["moved"]:
            row = {
                "1 - cosine": f"{moved['cosine_distance']:.4f}",
                "of distance between images (%)": f"{100 * moved['relative']:.1f}",
            }
            if shifts["accuracy"] is not None:
                row["accuracy (%)"] = f"{100 * moved['accuracy']:.2f}"
                row["lost"] = f"{100 * (shifts['accuracy'] - moved['accuracy']):.2f}"
            rows[moved["shift"]["name"]] = row
        if rows:
            accuracy = shifts["accuracy"]
            unshifted = "" if accuracy is None else f" (accuracy without a shift: {100 * accuracy:.2f} %)"
            shown.append((f"Pooled features of shifted test images{unshifted}", numbers_table(rows)))
        return shown


def measure_location(
    space: Workspace,
    data: ImageSource,
    test: ImageSource | None,
    how: Extraction,
    *,
    shifts: int | None = None,
    images: int | None = None,
    seed: int = 0,
) -> LocationResult:
    """Location share, linear read-out of row and column, and what shifts of the image do to pooled features.

    Without `test`, the data is halved, class by class if there are labels. If both have labels, a linear probe is
    measured too. The options are those of `LocationSettings`.
    """
    encoder, fabric, console = space.encoder, space.fabric, space.console
    # Settings that cannot work are refused before hours of work.
    grid = _grid(encoder, how)
    planned = plan_shifts(grid, encoder.patch_size, shifts)
    train, test = _train_and_test(data, test, images, seed)
    labels = _labels(train, test)
    shared = shared_images(encoder, train, test, fabric, console)

    known, asked = (Patches(encoder, source, how, fabric.device, console) for source in (train, test))
    readout, choice = fit_places(known, grid)
    place = measure_places(asked, grid, readout)

    def pooled(source: ImageSource) -> Features:
        return cached_features(encoder, source, how, fabric, console)

    probe = _probe(pooled(train), labels[0], seed, fitting_device(fabric)) if labels else None
    moved = robustness(test, planned, pooled, probe.predict if probe else None, labels[1] if labels else None)
    protocol: dict[str, Any] = {
        **encoder_facts(encoder),
        **how.describe(encoder),
        "settings": ", ".join(filter(None, (how.settings(encoder), f"{images} images" if images else ""))),
        "train": known.counts(),
        "test": asked.counts(),
        **shared,
        "grid": f"{grid[0]}x{grid[1]}",
        "location_share": "of the test images, corrected for finite samples",
        "read_out": "ridge regression on standardized features of single patches; penalty chosen on held-out "
        "training images",
        "shifted": "test images, as the encoder sees them; borders reflected; mean over directions",
        "shifts_in_pixels": {shift.name: shift.pixels for shift in planned},
        "probe": f"linear, on unshifted training images, l2 {probe.l2:g}" if probe else "none, without labels",
        "seed": seed,
    }
    details = {"place": {**asdict(place), **choice}, "shifts": asdict(moved)}
    numbers, title = _numbers(place, moved), "How much patch features depend on position"
    return LocationResult("location", encoder.what, test.name, numbers, protocol, details, title)


def _grid(encoder: ImageEncoder, how: Extraction) -> Grid:
    grid = feature_shape(encoder, how, "float32").grid
    assert grid is not None
    if grid == (1, 1):
        height, width = how.size_for(encoder)
        raise UserError(
            f"{encoder.what} sees an image of {height}x{width} as one patch, so there are no positions. Use a "
            f"larger image, such as image_size={2 * encoder.patch_size[0]}x{2 * encoder.patch_size[1]}."
        )
    return grid


def _train_and_test(
    data: ImageSource, test: ImageSource | None, most: int | None, seed: int
) -> tuple[ImageSource, ImageSource]:
    """`test` or, without it, the other half of `data`; no more than `most` of each."""
    if most is not None and most < _FEWEST:
        raise UserError(f"images={most} is too few. Use at least {_FEWEST}.")
    needed = _FEWEST if test is not None else 2 * _FEWEST
    if len(data) < needed:
        purpose = "to fit on" if test is not None else "to fit on one half and test on the other"
        raise UserError(f"{data.name} has {len(data)} image(s), but {purpose} takes at least {needed}. Name more.")
    train = data
    if test is None:
        half = label_subset(strata(data.labels, len(data)), 0.5, seed)
        train, test = SubsetSource(data, half), SubsetSource(data, all_but(half, len(data)))
    if most is not None:
        train, test = _at_most(train, most, seed), _at_most(test, most, seed)
    if len(test) < _FEWEST:
        raise UserError(
            f"There are {len(test)} image(s) of {test.name} to test on, but at least {_FEWEST} are needed. Name "
            "more, or name others with test."
        )
    return train, test


def _at_most(source: ImageSource, most: int, seed: int) -> ImageSource:
    if len(source) <= most:
        return source
    return SubsetSource(source, label_subset(strata(source.labels, len(source)), most / len(source), seed))


def _labels(train: ImageSource, test: ImageSource) -> tuple[Tensor, Tensor] | None:
    """Labels in one numbering, -1 for images that have none; None if there is nothing to learn or to test."""
    for source in (train, test):
        if source.labels is None or not bool((source.labels >= 0).any()):
            return None
    assert train.labels is not None and test.labels is not None
    if len(torch.unique(train.labels[train.labels >= 0])) < 2:
        return None
    labels = test.labels.clone()
    labels[labels >= 0] = numbered_alike(with_labels(test, "test"), with_labels(train, "training")).labels
    return train.labels, labels


def _probe(features: Features, labels: Tensor, seed: int, device: torch.device) -> FittedProbe:
    found = labels[features.indices]
    return fit_probe(features.vectors[found >= 0].to(device), found[found >= 0].to(device), seed=seed)


def _numbers(place: PlaceTold, found: Robustness) -> dict[str, float]:
    """All numbers, in percent except R² and the error in patches."""
    numbers = {"location share": 100 * place.share, "place R²": place.mean_r2, "place error": place.error}
    numbers |= {f"moved, {moved.shift.name}": 100 * moved.relative for moved in found.moved}
    if found.accuracy is not None:
        numbers["accuracy"] = 100 * found.accuracy
        for moved in found.moved:
            assert moved.accuracy is not None
            numbers[f"accuracy lost, {moved.shift.name}"] = 100 * (found.accuracy - moved.accuracy)
    return numbers
