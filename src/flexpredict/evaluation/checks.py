"""Refuses features and labels that no classifier can be fitted to or tested with."""

import torch
from torch import Tensor

from flexpredict.errors import UserError


def check_split(train_features: Tensor, train_labels: Tensor, test_features: Tensor, test_labels: Tensor) -> None:
    """Refuse what would make a probe fail later, or succeed with a meaningless number."""
    check_features(train_features, train_labels, "training")
    check_features(test_features, test_labels, "test")
    if train_features.shape[1] != test_features.shape[1]:
        raise UserError(
            f"Training features have {train_features.shape[1]} dimensions, test features "
            f"{test_features.shape[1]}. Extract both with the same encoder and layers."
        )
    known = torch.unique(train_labels).cpu()
    if len(known) < 2:
        raise UserError(
            f"All {len(train_labels)} training labels are {int(known[0])}. At least 2 classes are needed."
        )
    unknown = torch.unique(test_labels).cpu()
    unknown = unknown[~torch.isin(unknown, known)].tolist()
    if unknown:
        raise UserError(
            f"{len(unknown)} classes of the test labels never occur in training, the first is {unknown[0]}, so they "
            "cannot be classified correctly. Check that both use the same class numbers, or leave these images out."
        )


def check_features(features: Tensor, labels: Tensor, name: str) -> None:
    """Refuse unless features are N D, finite and not empty, and labels N integers. name: of the set, for messages."""
    if features.ndim != 2 or not features.numel() or labels.ndim != 1 or labels.is_floating_point():
        raise UserError(
            f"The {name} set must be features N x D, not empty, with N integer labels, but has features "
            f"{tuple(features.shape)} and {labels.dtype} labels {tuple(labels.shape)}."
        )
    if len(features) != len(labels):
        raise UserError(
            f"The {name} set has {len(features)} feature rows but {len(labels)} labels. Give one label for each row."
        )
    check_finite(features, name)


def check_finite(features: Tensor, name: str) -> None:
    """Refuse NaN and infinity. features: N D; name: of the set, for messages."""
    if torch.isfinite(features.sum()):  # NaN and infinity survive a sum, which is much cheaper than a search
        return
    bad = ~torch.isfinite(features).all(dim=1)
    if bad.any():
        raise UserError(
            f"{int(bad.sum())} of {len(bad)} rows of the {name} features hold NaN or infinity, the first is row "
            f"{int(bad.nonzero()[0])}. The encoder diverged or overflowed (try float32), or the image is damaged."
        )
