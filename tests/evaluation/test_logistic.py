"""Logistic regression against scikit-learn and against its own optimality conditions; features are standardized."""

import pytest
import torch
import torch.nn.functional as F
from correlated_features import correlated_classes, draw, sklearn_fit, standardized
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.evaluation import logistic
from flexpredict.evaluation.linear import L2_GRID, linear_probe
from flexpredict.evaluation.logistic import LinearClassifier, fit_logistic


def autograd_objective(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, l2: float) -> Tensor:
    return F.cross_entropy(x @ weight + bias, y) + l2 / 2 * weight.square().sum()


# The optimum


@pytest.mark.parametrize("l2", [1e-4, 1e-1])
def test_weights_and_probabilities_are_those_of_scikit_learn(l2: float) -> None:
    features, labels = correlated_classes(300, 8, 5)
    classifier = fit_logistic(features.double(), labels, l2=l2, classes=5, tolerance=1e-16)
    reference = sklearn_fit(features, labels, c=1 / (l2 * 300))
    torch.testing.assert_close(classifier.weight, torch.tensor(reference.coef_.T), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(classifier.bias, torch.tensor(reference.intercept_), atol=1e-5, rtol=1e-4)
    probabilities = reference.predict_proba(standardized(features.double()).numpy())
    ours = classifier.logits(features.double()).softmax(dim=1)
    torch.testing.assert_close(ours, torch.tensor(probabilities), atol=1e-6, rtol=1e-5)


def test_two_classes_correspond_to_scikit_learn_at_twice_the_c() -> None:
    features, labels = correlated_classes(300, 8, 2)
    classifier = fit_logistic(features, labels, l2=1e-2, classes=2, tolerance=1e-14)
    reference = sklearn_fit(features, labels, c=2 / (1e-2 * 300))
    difference = classifier.weight[:, 1] - classifier.weight[:, 0]
    torch.testing.assert_close(difference, torch.tensor(reference.coef_[0]), atol=1e-5, rtol=1e-4)


def test_float32_reaches_the_accuracy_of_scikit_learn_with_the_default_tolerance() -> None:
    features, labels = correlated_classes(9000, 32, 10, apart=0.3)
    train, test = features[:6000], features[6000:]
    classifier = fit_logistic(train, labels[:6000], l2=1e-4, classes=10)
    assert classifier.weight.dtype == torch.float32
    reference = sklearn_fit(train, labels[:6000], c=1 / (1e-4 * 6000), tol=1e-6)
    scaled = ((test - train.mean(dim=0)) / train.std(dim=0, correction=0)).numpy()
    ours = (classifier.predict(test) == labels[6000:]).double().mean().item()
    assert abs(ours - reference.score(scaled, labels[6000:].numpy())) < 0.002
    probabilities = torch.tensor(reference.predict_proba(scaled))
    assert (classifier.logits(test).softmax(dim=1) - probabilities).abs().max() < 0.01


def test_gradient_of_the_documented_objective_vanishes_at_the_solution() -> None:
    features, labels = correlated_classes(500, 10, 4)
    classifier = fit_logistic(features, labels, l2=1e-3, classes=4, tolerance=1e-16)
    weight, bias = classifier.weight.clone().requires_grad_(), classifier.bias.clone().requires_grad_()
    value = autograd_objective(standardized(features.double()), labels, weight, bias, 1e-3)
    by_weight, by_bias = torch.autograd.grad(value, (weight, bias))
    assert by_weight.abs().max() < 1e-8 and by_bias.abs().max() < 1e-8
    assert classifier.objective == pytest.approx(value.item(), rel=1e-9)


def test_preconditioner_is_the_inverse_hessian_where_the_weights_are_zero() -> None:
    features, labels = correlated_classes(60, 5, 3)
    problem = logistic.standardize(features.double(), labels, 3)
    precondition = logistic._preconditioner(
        problem, 0.1, logistic._evaluate(problem, logistic.prior(problem), 0.1).curvature
    )

    def objective(parameters: Tensor) -> Tensor:
        return autograd_objective(problem.x, labels, parameters[:-1], parameters[-1], 0.1)

    vector = draw("vector", 6, 3).double()
    vector -= vector.mean(dim=1, keepdim=True)  # gradients of a softmax sum to zero over the classes
    _, back = torch.autograd.functional.hvp(objective, torch.zeros(6, 3).double(), precondition @ vector)
    torch.testing.assert_close(back, vector)


def test_direction_satisfies_the_secant_equation_of_the_last_pair() -> None:
    root = draw("root", 6, 6).double()
    precondition = root @ root.T
    pairs = []
    for i in range(3):
        step = draw(f"step {i}", 6, 3).double()
        change = (root.T @ root + i * torch.eye(6).double()) @ step
        pairs.append(logistic._Pair(step, change, (step * change).sum()))
    torch.testing.assert_close(logistic._direction(-pairs[-1].change, pairs, precondition), pairs[-1].step)


def test_weaker_regularization_started_from_a_stronger_one_ends_where_a_cold_start_does() -> None:
    features, labels = correlated_classes(1000, 16, 4, apart=3.0)
    problem = logistic.standardize(features, labels, 4)
    parameters = logistic.prior(problem)
    for l2 in L2_GRID:
        warm = logistic.minimize(problem, l2, parameters, tolerance=1e-4, max_iterations=1000)
        parameters = warm.point.parameters
        cold = logistic.minimize(problem, l2, logistic.prior(problem), tolerance=1e-8, max_iterations=1000)
        assert warm.point.value == pytest.approx(cold.point.value, rel=0.001)


def test_imbalanced_classes_and_duplicated_features_have_the_same_optimum_as_in_scikit_learn() -> None:
    features, _ = correlated_classes(600, 6, 3)
    features = torch.cat([features, features[:, :3]], dim=1)
    labels = torch.zeros(600, dtype=torch.int64)
    labels[:60], labels[:6] = 1, 2
    features[labels == 1] += features.std(dim=0)
    classifier = fit_logistic(features, labels, l2=1e-3, classes=3, tolerance=1e-14)
    reference = sklearn_fit(features, labels, c=1 / (1e-3 * 600))
    torch.testing.assert_close(classifier.weight, torch.tensor(reference.coef_.T), atol=1e-5, rtol=1e-4)


def test_fewer_images_than_dimensions_with_weak_regularization_still_reach_the_optimum() -> None:
    features, labels = correlated_classes(30, 64, 3)
    classifier = fit_logistic(features, labels, l2=1e-4, classes=3)
    reference = sklearn_fit(features, labels, c=1 / (1e-4 * 30), tol=1e-7)
    weight, bias = torch.tensor(reference.coef_.T), torch.tensor(reference.intercept_)
    best = autograd_objective(standardized(features.double()), labels, weight, bias, 1e-4).item()
    assert classifier.objective == pytest.approx(best, rel=1e-3)


def test_fewer_images_than_dimensions_are_fitted_in_the_dimensions_they_span() -> None:
    """Otherwise few labels of four layers side by side would take longer than all of them."""
    features = torch.randn(30, 200, dtype=torch.float64)
    problem = logistic.standardize(features, torch.arange(30) % 3, 3)
    assert problem.x.shape == (30, 30) and problem.basis is not None
    expected = (features - problem.mean) * problem.inverse_std
    torch.testing.assert_close(problem.x @ problem.basis.T, expected)


def test_neither_correlation_nor_separable_classes_make_it_slow() -> None:
    features, labels = correlated_classes(1000, 16, 4, apart=0.3)
    overlapping = fit_logistic(features, labels, l2=1e-4, classes=4)
    reference = sklearn_fit(features, labels, c=1 / (1e-4 * 1000), tol=overlapping.gradient)
    assert overlapping.iterations * 5 < reference.n_iter_[0]
    features, labels = correlated_classes(1000, 16, 4, apart=3.0)
    separable = fit_logistic(features, labels, l2=1e-6, classes=4)
    assert separable.iterations < 100  # with the curvature of the start it would be a thousand


def test_stopping_before_the_optimum_is_said() -> None:
    features, labels = correlated_classes(200, 8, 4)
    with pytest.warns(RuntimeWarning, match="stopped after 2 iterations"):
        fit_logistic(features, labels, l2=1e-4, classes=4, max_iterations=2)


def fit(labels: list[int], classes: int) -> LinearClassifier:
    return fit_logistic(draw("few", len(labels), 3), torch.tensor(labels), l2=0.1, classes=classes)


def test_labels_that_do_not_fit_the_number_of_classes_are_refused() -> None:
    with pytest.raises(UserError, match=r"2 training labels are outside 0..1, the first is 2 in row 1"):
        fit([0, 2, 1, -1], classes=2)
    with pytest.raises(UserError, match="1 of 3 classes have no training image, the first is 1"):
        fit([0, 2, 0, 2], classes=3)
    with pytest.raises(UserError, match="at least 2 classes"):
        fit([0, 0], classes=1)


# Standardization


def test_test_images_are_judged_one_by_one_with_the_training_statistics() -> None:
    features, labels = correlated_classes(300, 8, 4)
    train, test = features[:200], features[200:]
    classifier = fit_logistic(train, labels[:200], l2=1e-2, classes=4)
    torch.testing.assert_close(classifier.mean, train.double().mean(dim=0))
    torch.testing.assert_close(1 / classifier.inverse_std, train.double().std(dim=0, correction=0))
    together = linear_probe(train, labels[:200], test, labels[200:], l2=1e-2).predictions
    alone = [
        linear_probe(train, labels[:200], test[i : i + 1], labels[200 + i : 201 + i], l2=1e-2).predictions
        for i in range(5)
    ]
    assert torch.equal(torch.cat(alone), together[:5])


def test_scale_and_offset_of_features_do_not_matter() -> None:
    features, labels = correlated_classes(300, 8, 4)
    scaled = features * torch.logspace(3, -3, 8) - 10.0
    plain = linear_probe(features[:200], labels[:200], features[200:], labels[200:], l2=1e-2)
    other = linear_probe(scaled[:200], labels[:200], scaled[200:], labels[200:], l2=1e-2)
    assert torch.equal(plain.predictions, other.predictions)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_feature_that_is_constant_in_training_is_ignored_even_if_it_varies_in_the_test(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logistic, "_FEW", 0)  # float32, where a constant is harder to tell
    features, labels = correlated_classes(300, 8, 4)
    constant = torch.full((300, 1), value)
    constant[200:] += 1e3 * draw("surprise", 100, 1)
    plain = fit_logistic(features[:200], labels[:200], l2=1e-2, classes=4)
    wider = fit_logistic(torch.cat([features, constant], dim=1)[:200], labels[:200], l2=1e-2, classes=4)
    expected = plain.logits(features[200:])
    torch.testing.assert_close(
        wider.logits(torch.cat([features, constant], dim=1)[200:]), expected, atol=1e-3, rtol=1e-3
    )


def test_half_precision_features_are_fitted_in_more() -> None:
    features, labels = correlated_classes(300, 8, 4)
    features = standardized(features).half()
    classifier = fit_logistic(features, labels, l2=1e-2, classes=4)
    assert torch.equal(
        classifier.predict(features), fit_logistic(features.float(), labels, l2=1e-2, classes=4).predict(features)
    )
