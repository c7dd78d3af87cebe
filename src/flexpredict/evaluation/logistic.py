"""Multinomial logistic regression on frozen features, solved to its optimum.

With x standardized by the mean and deviation of the training features, the objective is

    f(W, b) = mean_i -log softmax(Wᵀ x_i + b)[y_i] + l2/2 ‖W‖²            (b is not regularized).

scikit-learn's LogisticRegression sums over the N images instead of taking their mean, so its optimum at
C = 1 / (l2 N) is this one. For two classes it fits the single vector W_1 - W_0, and there C = 2 / (l2 N).

The features of a vision transformer are strongly correlated, which makes plain L-BFGS slow. With equal
class probabilities the Hessian is known in closed form: Σ / classes + l2 for every class, Σ being the covariance of
x. It stays roughly cΣ + l2 while the probabilities p sharpen and c, the mean of Σ_k p_k (1 - p_k) / (classes - 1),
falls. L-BFGS that starts each direction from the inverse of this takes its first step as Newton would, and then works
on a problem that is nearly white. It stops when the gradient, measured in the metric of the estimated inverse Hessian
H, is small compared with the objective: ∇fᵀ H ∇f <= tolerance * f. That is twice the decrease that a Newton step
would still bring, so it means the same at any scale of features, loss and l2. A bound on the entries of ∇f does not.
"""

import warnings
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.evaluation.checks import check_features

_FEW = 5000  # images; fewer are fitted in float64
_MEMORY = 10  # pairs kept by L-BFGS
_STALE = 4.0  # change of curvature after which the preconditioner is computed again
_COVARIANCE_ROWS = 16  # per dimension; more hardly save an iteration


@dataclass(frozen=True)
class LinearClassifier:
    """Standardization, weights and bias; `objective`, `gradient` (max |∇f|) and `iterations` are those of the fit."""

    mean: Tensor  # D
    inverse_std: Tensor  # D, 0 for features that were constant in training
    weight: Tensor  # D C, acts on standardized features
    bias: Tensor  # C, sums to 0
    objective: float
    gradient: float
    iterations: int

    def logits(self, features: Tensor) -> Tensor:
        """features: N D -> N C."""
        return torch.cat([torch.addmm(self.bias, self._standardize(x), self.weight) for x in _chunks(features)])

    def predict(self, features: Tensor) -> Tensor:
        """features: N D -> N class indices."""
        return self.logits(features).argmax(dim=1)

    def _standardize(self, features: Tensor) -> Tensor:
        return (features.to(self.mean) - self.mean) * self.inverse_std


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

    Works on the device of the features. In float32, or in float64 if they are float64 or fewer than 5000: few images
    in many dimensions are separable, and then float32 is too coarse to tell solutions apart.
    """
    check_features(features, labels, "training")
    if not l2 > 0:
        raise UserError(
            f"l2={l2} is not positive, and without it separable classes have no optimum. Give a positive number."
        )
    if classes < 2:
        raise UserError(f"A linear probe needs at least 2 classes, not {classes}.")
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        row = int(outside.nonzero()[0])
        raise UserError(
            f"{int(outside.sum())} training labels are outside 0..{classes - 1}, the first is {int(labels[row])} in "
            f"row {row}. Give `classes` as the largest label + 1, or correct the labels."
        )
    absent = (torch.bincount(labels, minlength=classes) == 0).nonzero().flatten().tolist()
    if absent:
        raise UserError(
            f"{len(absent)} of {classes} classes have no training image, the first is {absent[0]}, so their bias has "
            "no optimum. Number the classes without gaps, or add images of them."
        )
    problem = standardize(features, labels, classes)
    solution = minimize(problem, l2, prior(problem), tolerance, max_iterations)
    classifier = classifier_of(problem, solution)
    if not solution.converged:
        warnings.warn(
            f"The fit stopped after {classifier.iterations} iterations, before its optimum at l2={l2:g}: the largest "
            f"entry of the gradient is {classifier.gradient:.1e}. Raise l2, tolerance or max_iterations.",
            RuntimeWarning,
            stacklevel=2,
        )
    return classifier


@dataclass(frozen=True)
class LogisticProblem:
    x: Tensor  # N D, standardized
    y: Tensor  # N 1
    classes: int
    mean: Tensor  # D
    inverse_std: Tensor  # D
    covariance: Tensor  # D D of x, float64 on the CPU
    # D N, orthonormal: fewer images than features span N dimensions, in which the optimum lies. x is then N N.
    basis: Tensor | None = None


@dataclass(frozen=True)
class _Point:
    parameters: Tensor  # D+1 C, the last row is the bias
    value: float  # f
    gradient: Tensor  # D+1 C, ∇f
    curvature: float  # c


@dataclass(frozen=True)
class Solution:
    point: _Point
    iterations: int
    converged: bool


def standardize(features: Tensor, labels: Tensor, classes: int) -> LogisticProblem:
    few = len(features) < _FEW and features.device.type != "mps"  # mps has no float64
    x = features.to(torch.float64 if few or features.dtype == torch.float64 else torch.float32)
    mean = x.mean(dim=0)
    x = x - mean
    squares = torch.stack([chunk.square().sum(dim=0) for chunk in _chunks(x)])
    std = (squares.sum(dim=0) / len(x)).sqrt()
    # Rounding gives a constant feature a tiny deviation; dividing by it would turn the feature into noise.
    constant = std <= 10 * torch.finfo(x.dtype).eps * mean.abs()
    inverse_std = torch.where(constant, 0.0, 1 / std)
    x *= inverse_std
    basis = None
    if len(x) < x.shape[1]:
        basis, coordinates = torch.linalg.qr(x.T)
        x = coordinates.T
    sample = x[:: max(1, len(x) // (_COVARIANCE_ROWS * x.shape[1]))]
    covariance = (sample.T @ sample / len(sample)).cpu().double()
    y = labels.to(x.device, torch.int64)[:, None]
    return LogisticProblem(x, y, classes, mean, inverse_std, covariance, basis)


def prior(problem: LogisticProblem) -> Tensor:
    """The start: no weights, and the logarithms of the class frequencies as bias."""
    parameters = problem.x.new_zeros(problem.x.shape[1] + 1, problem.classes)
    log_counts = torch.bincount(problem.y[:, 0], minlength=problem.classes).to(parameters).clamp_min(1).log()
    parameters[-1] = log_counts - log_counts.mean()
    return parameters


def classifier_of(problem: LogisticProblem, solution: Solution) -> LinearClassifier:
    weight = solution.point.parameters[:-1]
    return LinearClassifier(
        mean=problem.mean,
        inverse_std=problem.inverse_std,
        weight=weight if problem.basis is None else problem.basis @ weight,
        bias=solution.point.parameters[-1],
        objective=solution.point.value,
        gradient=solution.point.gradient.abs().max().item(),
        iterations=solution.iterations,
    )


def _evaluate(problem: LogisticProblem, parameters: Tensor, l2: float) -> _Point:
    weight, bias = parameters[:-1], parameters[-1]
    gradient = torch.zeros_like(parameters)
    log_likelihoods, uncertainties = [], []
    for x, y in zip(_chunks(problem.x), _chunks(problem.y), strict=True):
        log_p = torch.addmm(bias, x, weight).log_softmax(dim=1)
        log_p_y = log_p.gather(1, y)
        # The residual r = p - onehot(y). expm1, because p_y - 1 would lose its digits where p_y is close to 1.
        residual_y = torch.expm1(log_p_y)
        residual = log_p.exp_().scatter_(1, y, residual_y)
        gradient[:-1].addmm_(x.T, residual)
        gradient[-1] += residual.sum(dim=0)
        log_likelihoods.append(log_p_y.sum())
        uncertainties.append(-2 * residual_y.sum() - residual.square().sum())  # Σ_k p_k (1 - p_k) = -2 r_y - ‖r‖²
    gradient /= len(problem.x)
    gradient[:-1].add_(weight, alpha=l2)
    # Summed in float64 and on the CPU, because not every device has float64.
    sums = torch.stack([torch.stack(log_likelihoods), torch.stack(uncertainties)]).cpu().double().sum(dim=1)
    log_likelihood, uncertainty = (sums / len(problem.x)).tolist()
    value = l2 / 2 * weight.square().sum().item() - log_likelihood
    return _Point(parameters, value, gradient, uncertainty / (problem.classes - 1))


def _preconditioner(problem: LogisticProblem, l2: float, curvature: float) -> Tensor:
    """(cΣ + l2)^-1, and 1/c for the bias, a feature of variance 1 that correlates with no other: D+1 D+1."""
    curvature = max(curvature, 1e-12)
    hessian = curvature * problem.covariance
    # The floor keeps rounding in the covariance from making a very small l2 indefinite.
    hessian.diagonal().add_(max(l2, 1e-5 * curvature))
    inverse = F.pad(torch.cholesky_inverse(torch.linalg.cholesky(hessian)), (0, 1, 0, 1))
    inverse[-1, -1] = 1 / curvature
    return inverse.to(problem.x)


def minimize(problem: LogisticProblem, l2: float, start: Tensor, tolerance: float, max_iterations: int) -> Solution:
    """Preconditioned L-BFGS from the parameters `start`, to the tolerance or until rounding hides all descent."""
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
    return Solution(point, iteration, converged)


@dataclass(frozen=True)
class _Pair:
    """A step and the change of the gradient along it, from which L-BFGS estimates the curvature."""

    step: Tensor  # D+1 C
    change: Tensor  # D+1 C, of the gradient
    product: Tensor  # <step, change>, positive because f is convex

    @classmethod
    def between(cls, before: _Point, after: _Point) -> "_Pair":
        step, change = after.parameters - before.parameters, after.gradient - before.gradient
        return cls(step, change, _dot(step, change))


def _direction(gradient: Tensor, pairs: list[_Pair], precondition: Tensor) -> Tensor:
    """- H ∇f, where H is the L-BFGS estimate of the inverse Hessian (the two-loop recursion)."""
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


def _line_search(problem: LogisticProblem, l2: float, point: _Point, direction: Tensor) -> _Point | None:
    """A point along `direction` where f has descended enough; None if rounding hides all descent."""
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
        # f is convex, so the slope has risen where a step is too long: aim at where the slope crosses zero.
        length *= min(max(slope / (slope - slope_after), 0.1), 0.7) if slope_after > slope else 0.5
    return None


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.sum(a * b)


def _chunks(rows: Tensor) -> tuple[Tensor, ...]:
    """Chunks that stay in the cache of a CPU; on other devices, chunks that bound the memory for logits."""
    return torch.split(rows, 4096 if rows.device.type == "cpu" else 65536)
