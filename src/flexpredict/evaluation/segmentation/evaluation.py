"""Segmentation: heads fitted on patches of training images, measured on every labeled pixel of test images."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flexpredict.data.sources.image_source import evenly_spaced
from flexpredict.evaluation.dense.encoded_sizes import EncodedSize, check_encoder
from flexpredict.evaluation.dense.patch_maps import PatchesWithMaps
from flexpredict.evaluation.dense.protocol import describe_features, require_enough
from flexpredict.evaluation.overlap import warn_of_overlap
from flexpredict.evaluation.probing import fitting_device
from flexpredict.evaluation.segmentation import SegmentationSettings
from flexpredict.evaluation.segmentation.heads import Heads, fit_heads
from flexpredict.evaluation.segmentation.labels import Classes, MaskLabels
from flexpredict.evaluation.segmentation.layouts import MaskedImages
from flexpredict.evaluation.segmentation.patch_labels import sample_patches
from flexpredict.evaluation.segmentation.pictures import draw_classes
from flexpredict.evaluation.segmentation.scores import Confusion, winners
from flexpredict.evaluation.segmentation.survey import settle_classes, survey_masks, survey_warnings
from flexpredict.evaluation.segmentation.tables import SegmentationResult
from flexpredict.features.workspace import Workspace


def measure_segmentation(
    space: Workspace,
    train: MaskedImages,
    test: MaskedImages,
    labels: MaskLabels,
    asked: SegmentationSettings,
) -> tuple[SegmentationResult, dict[str, NDArray[np.uint8]]]:
    """mIoU, IoU of each class and pixel accuracy; and pictures of some test images, by name.

    Everything that could fail later is refused first: all masks are read once before the encoder is.
    """
    encoder, console = space.encoder, space.console
    require_enough(train)
    encoder.check_layers(asked.layers)
    size = EncodedSize(asked.image_size, encoder)
    surveys = survey_masks(train, "train", console), survey_masks(test, "test", console)
    classes = settle_classes(*surveys, labels)
    warnings = survey_warnings(*surveys, classes, size, encoder)
    overlap = warn_of_overlap(train.source, test.source, space.fabric, console)
    encoder = encoder.to(space.fabric.device).eval()
    check_encoder(encoder, size.of(surveys[0].sizes[0]), "use another image_size")

    known, tested = (
        PatchesWithMaps(images, encoder, size, asked.extraction(), space.fabric.device, console)
        for images in (train, test)
    )
    patches = sample_patches(known, classes, len(train), asked.patches, asked.seed, fitting_device(space.fabric))
    heads = fit_heads(patches, classes, asked)
    confusions, drawn = _measure(tested, heads, classes, 0 if asked.out is None else asked.pictures)

    unusual = {
        f"{asked.patches} patches": asked.patches != SegmentationSettings.patches,
        f"l2 {asked.l2}": asked.l2 is not None,
    }
    protocol: dict[str, Any] = {
        **describe_features(encoder, asked, size, unusual),
        "train": known.counts(),
        "test": tested.counts(),
        "overlap": overlap,
        "classes": len(classes),
        "patches": len(patches.labels),
        "target_of_a_patch": "the class of most of its labeled pixels",
        "l2": heads.probe.l2,
        "chosen_on": "patches of held-out training images" if asked.l2 is None else "given",
        "neighbors": asked.neighbors,
        "measured_on": "all labeled pixels of the test images; scores of patches are up-sampled bilinearly",
        "seed": asked.seed,
    }
    numbers = {
        f"{name} {what}": 100 * value
        for name, confusion in confusions.items()
        for what, value in (("mIoU", confusion.mean_iou()), ("pixel accuracy", confusion.accuracy()))
    }
    candidates = [{"l2": l2, "accuracy": accuracy} for l2, accuracy in heads.probe.candidates.items()]
    details = {"classes": _by_class(confusions, classes), "candidates": candidates}
    return SegmentationResult(
        "segmentation",
        encoder.what,
        test.name,
        numbers,
        protocol,
        details,
        title="IoU of all labeled test pixels, frozen encoder (%)",
        warnings=warnings,
    ), drawn


def _measure(
    tested: PatchesWithMaps[np.uint8], heads: Heads, classes: Classes, pictures: int
) -> tuple[dict[str, Confusion], dict[str, NDArray[np.uint8]]]:
    confusions = {name: Confusion(len(classes)) for name in heads.by_name}
    shown = set(evenly_spaced(len(tested.images), pictures)) if pictures else set()
    drawn = {}
    for batch in tested:
        shape = batch.features.shape[:-1]
        flat = batch.features.flatten(0, 2)
        scores = {name: head(flat).unflatten(0, shape) for name, head in heads.by_name.items()}
        for row, (mask, index) in enumerate(zip(batch.maps, batch.indices, strict=True)):
            truth = classes.of_mask(mask)
            predicted = {name: winners(some[row], (mask.shape[0], mask.shape[1])) for name, some in scores.items()}
            for name, confusion in confusions.items():
                confusion.add(truth, predicted[name])
            if index in shown:
                image = tested.images.source.encoded(index), tested.images.source.describe(index)
                drawn[image[1]] = draw_classes(*image, truth, predicted["linear"], classes)
    return confusions, drawn


def _by_class(confusions: dict[str, Confusion], classes: Classes) -> dict[str, Any]:
    """For each class its share of the test pixels, and its IoU by each head (None if neither there nor predicted)."""
    shares = next(iter(confusions.values())).shares()
    ious = {name: confusion.iou() for name, confusion in confusions.items()}
    return {
        name: {
            "pixels": float(shares[number]),
            "IoU": {head: None if np.isnan(iou[number]) else float(iou[number]) for head, iou in ious.items()},
        }
        for number, name in enumerate(classes.names)
    }
