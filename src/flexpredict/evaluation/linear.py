"""The linear probe: fitted on training features, its penalty chosen on held-out ones, measured on test features."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flexpredict.evaluation.checks import check_split
from flexpredict.evaluation.logistic import (
    LinearClassifier,
    classifier_of,
    fit_logistic,
    minimize,
    prior,
    standardize,
)
from flexpredict.randomness import permutation, stream_key

L2_GRID = tuple(10.0 ** (-exponent / 2) for exponent in range(13))  # 1 ... 1e-6, the strongest first
L2_WITHOUT_VALIDATION = 1e-2  # one image per class leaves nothing to validate on
_FOLDS = 5
_FEW = 5000  # images; with more, one fold resolves accuracies to about one point
_PATIENCE = 2  # clearly worse candidates in a row that end the search
_SELECTION_TOLERANCE = 1e-4  # accuracies settle long before the objective does


@dataclass(frozen=True)
class LinearProbeResult:
    """Accuracy of a linear probe, and how it was fitted."""

    accuracy: float  # on the test images, between 0 and 1
    predictions: Tensor  # n_test, in the values of the labels that were given
    l2: float
    candidates: dict[float, float]  # l2 -> accuracy on held-out training images; empty if l2 was given
    n_train: int
    n_test: int
    classes: int

    def summary(self) -> dict[str, Any]:
        """Everything but the predictions, ready for JSON."""
        candidates = [{"l2": l2, "accuracy": accuracy} for l2, accuracy in self.candidates.items()]
        values = {name: getattr(self, name) for name in ("accuracy", "l2", "n_train", "n_test", "classes")}
        return {**values, "candidates": candidates}


@dataclass(frozen=True)
class FittedProbe:
    """A linear classifier, and the labels that its classes stand for."""

    classifier: LinearClassifier
    values: Tensor  # C, the labels as they were given
    l2: float
    candidates: dict[float, float]  # as in LinearProbeResult

    def predict(self, features: Tensor) -> Tensor:
        """features: N D -> N labels."""
        labels: Tensor = self.values[self.classifier.predict(features).to(self.values.device)]
        return labels


def linear_probe(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    l2: float | None = None,
    seed: int = 0,
) -> LinearProbeResult:
    """Fit on train (N D and N), measure on test. Labels may be any integers, the same in both.

    Without `l2`, it is chosen on held-out training images, never on test images: on a stratified fifth of them, or by
    5-fold cross-validation if there are fewer than 5000. Then all training images are fitted again.
    """
    check_split(train_features, train_labels, test_features, test_labels)
    fitted = fit_probe(train_features, train_labels, l2=l2, seed=seed)
    predictions = fitted.predict(test_features)
    return LinearProbeResult(
        accuracy=(predictions == test_labels.to(predictions.device)).double().mean().item(),
        predictions=predictions,
        l2=fitted.l2,
        candidates=fitted.candidates,
        n_train=len(train_labels),
        n_test=len(test_labels),
        classes=len(fitted.values),
    )


def fit_probe(
    features: Tensor, labels: Tensor, *, l2: float | None = None, seed: int = 0, groups: Tensor | None = None
) -> FittedProbe:
    """The classifier of `linear_probe`. features: N D, labels: N, of at least two classes.

    groups: N, whole numbers. Rows of one group are held out together, such as the patches of one image.
    """
    values, numbers = torch.unique(labels, return_inverse=True)
    candidates: dict[float, float] = {}
    if l2 is None:
        folds = stratified_folds(numbers, _FOLDS, seed) if groups is None else groups % _FOLDS
        candidates = _validate_grid(features, numbers, len(values), folds)
        # On ties the first, which is the most strongly regularized.
        l2 = max(candidates, key=lambda value: candidates[value], default=L2_WITHOUT_VALIDATION)
    return FittedProbe(fit_logistic(features, numbers, l2=l2, classes=len(values)), values, l2, candidates)


def stratified_folds(labels: Tensor, folds: int, seed: int) -> Tensor:
    """The fold of each image, -1 for the only image of a class: it always stays in training. labels: N -> N."""
    shuffled = permutation(stream_key(seed, "probe folds"), len(labels)).to(labels.device)
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]
    # Dealing out one class after the other gives every fold its share of each class, up to one image.
    fold = torch.empty_like(labels)
    fold[by_class] = torch.arange(len(labels), device=labels.device).to(fold) % folds
    counts = torch.bincount(labels)
    return torch.where(counts[labels] > 1, fold, -1)


def _validate_grid(features: Tensor, labels: Tensor, classes: int, folds: Tensor) -> dict[float, float]:
    """Accuracy on held-out training images for each l2, from strong to weak until it clearly falls."""
    held_out = [folds == i for i in range(1 if len(labels) >= _FEW else _FOLDS)]
    held_out = [rows for rows in held_out if rows.any()]
    if not held_out:
        return {}
    count = sum(int(rows.sum()) for rows in held_out)
    problems = [standardize(features[~rows], labels[~rows], classes) for rows in held_out]
    parameters = [prior(problem) for problem in problems]
    accuracies: dict[float, float] = {}
    for l2 in L2_GRID:
        correct = 0
        for i, (rows, problem) in enumerate(zip(held_out, problems, strict=True)):
            solution = minimize(problem, l2, parameters[i], _SELECTION_TOLERANCE, max_iterations=100)
            parameters[i] = solution.point.parameters  # the next, slightly weaker l2 starts from here
            predictions = classifier_of(problem, solution).predict(features[rows])
            correct += int((predictions == labels[rows].to(predictions.device)).sum())
        accuracies[l2] = correct / count
        best = max(accuracies.values())
        standard_error = (best * (1 - best) / count) ** 0.5
        if all(accuracy < best - standard_error for accuracy in list(accuracies.values())[-_PATIENCE:]):
            break
    return accuracies
