"""Linear probe: multinomial logistic regression on frozen features, solved to its optimum.

With x standardised by the mean and deviation of the training features, the objective is

    f(W, b) = mean_i -log softmax(Wᵀ x_i + b)[y_i] + l2/2 ‖W‖²            (b is not regularised).

scikit-learn's LogisticRegression sums over the N images instead of taking their mean, so its optimum at
C = 1 / (l2 N) is this one. For two classes it fits the single vector W_1 - W_0, and there C = 2 / (l2 N).

The features of a vision transformer are strongly correlated, which is what makes plain L-BFGS slow here. With equal
class probabilities the Hessian is known in closed form: Σ / classes + l2 for every class, Σ being the covariance of
x. It stays roughly cΣ + l2 while the probabilities p sharpen and c, the mean of Σ_k p_k (1 - p_k) / (classes - 1),
falls. L-BFGS that starts each direction from the inverse of this takes its first step as Newton would, and then sees
a problem that is nearly white. It stops when the gradient, measured in the metric of the estimated inverse Hessian H,
is small beside the objective: ∇fᵀ H ∇f <= tolerance * f. That is twice the decrease a Newton step would still bring,
and so means the same whatever the scale of features, loss and l2, which a bound on the entries of ∇f does not.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.evaluation.checks import check_features, check_split
from flexpredict.randomness import permutation, stream_key

L2_GRID = tuple(10.0 ** (-exponent / 2) for exponent in range(13))  # 1 ... 1e-6, the strongest first
L2_WITHOUT_VALIDATION = 1e-2  # one image a class leaves nothing to validate on
_FOLDS = 5
_FEW = 5000  # images; a fifth of more tells accuracies apart to about one point
_PATIENCE = 2  # clearly worse candidates in a row end the search
_SELECTION_TOLERANCE = 1e-4  # accuracies do not change any more where the objective still does
_MEMORY = 10  # pairs kept by L-BFGS
_STALE = 4.0  # change of curvature after which the preconditioner is made anew
_COVARIANCE_ROWS = 16  # a dimension; more saves hardly an iteration


@dataclass(frozen=True)
class ProbeResult:
    """What a table and a JSON file need to know of a probe."""

    accuracy: float  # on the test images, between 0 and 1
    predictions: Tensor  # n_test, in the values of the labels that were given
    l2: float
    candidates: dict[float, float]  # l2 -> accuracy on held-out training images; empty where l2 was given
    n_train: int
    n_test: int
    classes: int

    def summary(self) -> dict[str, Any]:
        """Everything but the predictions, ready for JSON."""
        return {
            "accuracy": self.accuracy,
            "l2": self.l2,
            "n_train": self.n_train,
            "n_test": self.n_test,
            "classes": self.classes,
            "candidates": [{"l2": l2, "accuracy": accuracy} for l2, accuracy in self.candidates.items()],
        }


@dataclass(frozen=True)
class LinearClassifier:
    """Standardisation, weights and bias; `objective`, `gradient` (max |∇f|) and `iterations` say how it ended."""

    mean: Tensor  # D
    inverse_std: Tensor  # D, 0 for a feature that was constant in training
    weight: Tensor  # D C, acts on standardised features
    bias: Tensor  # C, sums to 0
    objective: float
    gradient: float
    iterations: int

    def logits(self, features: Tensor) -> Tensor:
        """features: N D -> N C."""
        return torch.cat([torch.addmm(self.bias, self._standardise(x), self.weight) for x in _chunks(features)])

    def predict(self, features: Tensor) -> Tensor:
        """features: N D -> N class indices."""
        return self.logits(features).argmax(dim=1)

    def _standardise(self, features: Tensor) -> Tensor:
        return (features.to(self.mean) - self.mean) * self.inverse_std


@dataclass(frozen=True)
class FittedProbe:
    """A linear classifier, and the labels that its classes stand for."""

    classifier: LinearClassifier
    values: Tensor  # C, the labels as they were given
    l2: float
    candidates: dict[float, float]  # as in ProbeResult

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
) -> ProbeResult:
    """Fit on train (N D and N), measure on test. Labels may be any integers, the same in both.

    Without `l2` it is chosen on held-out training images, never on test ones: on a stratified fifth of them, or by
    5-fold cross-validation where there are fewer than 5000. Then all training images are fitted again.
    """
    check_split(train_features, train_labels, test_features, test_labels)
    fitted = fit_probe(train_features, train_labels, l2=l2, seed=seed)
    predictions = fitted.predict(test_features)
    return ProbeResult(
        accuracy=(predictions == test_labels.to(predictions.device)).double().mean().item(),
        predictions=predictions,
        l2=fitted.l2,
        candidates=fitted.candidates,
        n_train=len(train_labels),
        n_test=len(test_labels),
        classes=len(fitted.values),
    )


def fit_probe(features: Tensor, labels: Tensor, *, l2: float | None = None, seed: int = 0) -> FittedProbe:
    """What `linear_probe` fits. features: N D, labels: N, of at least two classes."""
    values, numbers = torch.unique(labels, return_inverse=True)
    candidates: dict[float, float] = {}
    if l2 is None:
        candidates = _validate_grid(features, numbers, len(values), seed)
        # Of equals the first, which is the most strongly regularised.
        l2 = max(candidates, key=lambda value: candidates[value], default=L2_WITHOUT_VALIDATION)
    return FittedProbe(fit_logistic(features, numbers, l2=l2, classes=len(values)), values, l2, candidates)


def fit_logistic(
    features: Tensor,
    labels: Tensor,
    *,
    l2: float,
    classes: int,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
) -> LinearClassifier:
    """The minimum of the objective above. features: N D, labels: N in range(classes), each present at least once.

    Works on the device of the features. In float32, or in float64 if they are float64 or fewer than 5000: a few
    images in many dimensions are separable, and what tells solutions apart then drowns in rounding.
    """
    check_features(features, labels, "training")
    if not l2 > 0:
        raise UserError(f"l2 is {l2}, but separable classes have no optimum without it: give a positive number.")
    if classes < 2:
        raise UserError(f"A linear probe needs at least 2 classes, not {classes}.")
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        row = int(outside.nonzero()[0])
        raise UserError(
            f"{int(outside.sum())} training labels are outside 0..{classes - 1}, the first is {int(labels[row])} in "
            f"row {row}: give `classes` as the largest label + 1, or correct the labels."
        )
    absent = (torch.bincount(labels, minlength=classes) == 0).nonzero().flatten().tolist()
    if absent:
        raise UserError(
            f"{len(absent)} of {classes} classes have no training image, the first is {absent[0]}: their bias has no "
            "optimum. Number the classes without gaps, or add images of them."
        )
    problem = _standardise(features, labels, classes)
    solution = _minimise(problem, l2, _prior(problem), tolerance, max_iterations)
    classifier = _classifier(problem, solution)
    if not solution.converged:
        warnings.warn(
            f"The probe stopped after {classifier.iterations} iterations, before its optimum at l2 = {l2:g}: the "
            f"largest entry of the gradient is {classifier.gradient:.1e}. Raise l2, tolerance or max_iterations.",
            RuntimeWarning,
            stacklevel=2,
        )
    return classifier


def stratified_folds(labels: Tensor, folds: int, seed: int) -> Tensor:
    """The fold of each image, -1 for the only image of a class: it always stays in training. labels: N -> N."""
    shuffled = permutation(stream_key(seed, "probe folds"), len(labels)).to(labels.device)
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]
    # Dealing out the classes one after the other gives every fold its share of each class, give or take one.
    fold = torch.empty_like(labels)
    fold[by_class] = torch.arange(len(labels), device=labels.device).to(fold) % folds
    counts = torch.bincount(labels)
    return torch.where(counts[labels] > 1, fold, -1)


def _validate_grid(features: Tensor, labels: Tensor, classes: int, seed: int) -> dict[float, float]:
    """Accuracy on held-out training images for each l2, from strong to weak until it clearly falls."""
    fold = stratified_folds(labels, _FOLDS, seed)
    held_out = [fold == i for i in range(1 if len(labels) >= _FEW else _FOLDS)]
    held_out = [rows for rows in held_out if rows.any()]
    if not held_out:
        return {}
    count = sum(int(rows.sum()) for rows in held_out)
    problems = [_standardise(features[~rows], labels[~rows], classes) for rows in held_out]
    parameters = [_prior(problem) for problem in problems]
    accuracies: dict[float, float] = {}
    for l2 in L2_GRID:
        correct = 0
        for i, (rows, problem) in enumerate(zip(held_out, problems, strict=True)):
            solution = _minimise(problem, l2, parameters[i], _SELECTION_TOLERANCE, max_iterations=100)
            parameters[i] = solution.point.parameters  # the next, slightly weaker l2 starts from here
            predictions = _classifier(problem, solution).predict(features[rows])
            correct += int((predictions == labels[rows].to(predictions.device)).sum())
        accuracies[l2] = correct / count
        best = max(accuracies.values())
        standard_error = (best * (1 - best) / count) ** 0.5
        if all(accuracy < best - standard_error for accuracy in list(accuracies.values())[-_PATIENCE:]):
            break
    return accuracies


@dataclass(frozen=True)
class _Problem:
    x: Tensor  # N D, standardised
    y: Tensor  # N 1
    classes: int
    mean: Tensor  # D
    inverse_std: Tensor  # D
    covariance: Tensor  # D D of x, float64 on the CPU


@dataclass(frozen=True)
class _Point:
    parameters: Tensor  # D+1 C, the last row is the bias
    value: float  # f
    gradient: Tensor  # D+1 C, ∇f
    curvature: float  # c


@dataclass(frozen=True)
class _Solution:
    point: _Point
    iterations: int
    converged: bool


def _standardise(features: Tensor, labels: Tensor, classes: int) -> _Problem:
    few = len(features) < _FEW and features.device.type != "mps"  # which has no float64
    x = features.to(torch.float64 if few or features.dtype == torch.float64 else torch.float32)
    mean = x.mean(dim=0)
    x = x - mean
    squares = torch.stack([chunk.square().sum(dim=0) for chunk in _chunks(x)])
    std = (squares.sum(dim=0) / len(x)).sqrt()
    # Rounding gives a constant feature a tiny deviation of its own; dividing by it would make noise of it.
    constant = std <= 10 * torch.finfo(x.dtype).eps * mean.abs()
    inverse_std = torch.where(constant, 0.0, 1 / std)
    x *= inverse_std
    sample = x[:: max(1, len(x) // (_COVARIANCE_ROWS * x.shape[1]))]
    covariance = (sample.T @ sample / len(sample)).cpu().double()
    return _Problem(x, labels.to(x.device, torch.int64)[:, None], classes, mean, inverse_std, covariance)


def _prior(problem: _Problem) -> Tensor:
    """Where to start: no weights, and the logarithm of the class frequencies as bias."""
    parameters = problem.x.new_zeros(problem.x.shape[1] + 1, problem.classes)
    log_counts = torch.bincount(problem.y[:, 0], minlength=problem.classes).to(parameters).clamp_min(1).log()
    parameters[-1] = log_counts - log_counts.mean()
    return parameters


def _classifier(problem: _Problem, solution: _Solution) -> LinearClassifier:
    return LinearClassifier(
        mean=problem.mean,
        inverse_std=problem.inverse_std,
        weight=solution.point.parameters[:-1],
        bias=solution.point.parameters[-1],
        objective=solution.point.value,
        gradient=solution.point.gradient.abs().max().item(),
        iterations=solution.iterations,
    )


def _evaluate(problem: _Problem, parameters: Tensor, l2: float) -> _Point:
    weight, bias = parameters[:-1], parameters[-1]
    gradient = torch.zeros_like(parameters)
    log_likelihoods, uncertainties = [], []
    for x, y in zip(_chunks(problem.x), _chunks(problem.y), strict=True):
        log_p = torch.addmm(bias, x, weight).log_softmax(dim=1)
        log_p_y = log_p.gather(1, y)
        # The residual r = p - onehot(y). expm1, because p_y - 1 would lose its digits where the classifier is sure.
        residual_y = torch.expm1(log_p_y)
        residual = log_p.exp_().scatter_(1, y, residual_y)
        gradient[:-1].addmm_(x.T, residual)
        gradient[-1] += residual.sum(dim=0)
        log_likelihoods.append(log_p_y.sum())
        uncertainties.append(-2 * residual_y.sum() - residual.square().sum())  # Σ_k p_k (1 - p_k) = -2 r_y - ‖r‖²
    gradient /= len(problem.x)
    gradient[:-1].add_(weight, alpha=l2)
    # Not summed in float32; and on the CPU, because not every device has float64.
    sums = torch.stack([torch.stack(log_likelihoods), torch.stack(uncertainties)]).cpu().double().sum(dim=1)
    log_likelihood, uncertainty = (sums / len(problem.x)).tolist()
    value = l2 / 2 * weight.square().sum().item() - log_likelihood
    return _Point(parameters, value, gradient, uncertainty / (problem.classes - 1))


def _preconditioner(problem: _Problem, l2: float, curvature: float) -> Tensor:
    """(cΣ + l2)^-1, and 1/c for the bias, which is a feature of variance 1 that correlates with no other: D+1 D+1."""
    curvature = max(curvature, 1e-12)
    hessian = curvature * problem.covariance
    # The floor keeps rounding in the covariance from making a very small l2 indefinite.
    hessian.diagonal().add_(max(l2, 1e-5 * curvature))
    inverse = F.pad(torch.cholesky_inverse(torch.linalg.cholesky(hessian)), (0, 1, 0, 1))
    inverse[-1, -1] = 1 / curvature
    return inverse.to(problem.x)


def _minimise(problem: _Problem, l2: float, start: Tensor, tolerance: float, max_iterations: int) -> _Solution:
    """Preconditioned L-BFGS from the parameters `start`, to the tolerance or to where rounding hides all descent."""
    point = _evaluate(problem, start, l2)
    curvature = point.curvature
    precondition = _preconditioner(problem, l2, curvature)
    pairs: list[_Pair] = []
    converged = False
    for iteration in range(max_iterations + 1):
        direction = _direction(point.gradient, pairs, precondition)
        converged = -_dot(direction, point.gradient).item() <= tolerance * point.value
        after = None if converged or iteration == max_iterations else _line_search(problem, l2, point, direction)
        if after is None:
            break
        pairs = [*pairs, _Pair.between(point, after)][-_MEMORY:]
        point = after
        if not 1 / _STALE < point.curvature / curvature < _STALE:
            curvature = point.curvature
            precondition = _preconditioner(problem, l2, curvature)
    return _Solution(point, iteration, converged)


@dataclass(frozen=True)
class _Pair:
    """What one step taught about the curvature."""

    step: Tensor  # D+1 C
    change: Tensor  # D+1 C, of the gradient
    product: Tensor  # <step, change>, positive because f is convex

    @classmethod
    def between(cls, before: _Point, after: _Point) -> "_Pair":
        step, change = after.parameters - before.parameters, after.gradient - before.gradient
        return cls(step, change, _dot(step, change))


def _direction(gradient: Tensor, pairs: list[_Pair], precondition: Tensor) -> Tensor:
    """- H ∇f, H being the L-BFGS estimate of the inverse Hessian (the two-loop recursion)."""
    direction = -gradient
    weights = []
    for pair in reversed(pairs):
        weights.append(_dot(pair.step, direction) / pair.product)
        direction = direction - weights[-1] * pair.change
    direction = precondition @ direction
    if pairs:  # the multiple of the preconditioner that fits the last pair best
        direction *= pairs[-1].product / _dot(pairs[-1].change, precondition @ pairs[-1].change)
    for pair, weight in zip(pairs, reversed(weights), strict=True):
        direction = direction + (weight - _dot(pair.change, direction) / pair.product) * pair.step
    return direction


def _line_search(problem: _Problem, l2: float, point: _Point, direction: Tensor) -> _Point | None:
    """A point along `direction` where f has descended enough; None if none can be told from rounding."""
    slope = _dot(direction, point.gradient).item()
    length = 1.0
    for _ in range(20):
        after = _evaluate(problem, point.parameters + length * direction, l2)
        slope_after = _dot(direction, after.gradient).item()
        descends = after.value <= point.value + 1e-4 * length * slope
        # Close to the optimum f no longer resolves the descent but its slope still does (Hager and Zhang, 2005).
        flattens = abs(slope_after) <= 0.9 * abs(slope) and after.value <= point.value + 1e-6 * abs(point.value)
        if (descends or flattens) and slope_after > slope:
            return after
        # f is convex, so a step that is too long ends on a slope that has risen: aim at where it crosses zero.
        length *= min(max(slope / (slope - slope_after), 0.1), 0.7) if slope_after > slope else 0.5
    return None


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.sum(a * b)


def _chunks(rows: Tensor) -> tuple[Tensor, ...]:
    """Few enough rows at once to stay in the cache of a CPU; elsewhere, to bound the memory for logits."""
    return torch.split(rows, 4096 if rows.device.type == "cpu" else 65536)
