"""The linear probe against scikit-learn and against its own optimality conditions; the label subsets it is fed."""

import itertools
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from flexpredict.data.label_subsets import label_subset
from flexpredict.errors import UserError
from flexpredict.evaluation import linear, logistic
from flexpredict.evaluation.linear import L2_GRID, L2_WITHOUT_VALIDATION, linear_probe, stratified_folds
from flexpredict.evaluation.logistic import LinearClassifier, fit_logistic
from flexpredict.randomness import normal, sample_keys, stream_key


def draw(what: str, rows: int, columns: int) -> Tensor:
    return normal(sample_keys(stream_key(0, what), torch.arange(rows)), columns)


def correlated_classes(
    rows: int, dims: int, classes: int, apart: float = 0.5, what: str = "images"
) -> tuple[Tensor, Tensor]:
    """Overlapping classes whose features are correlated, off-center and of different scales."""
    mixing = torch.linspace(1.0, 0.02, dims)[:, None] * draw("mixing", dims, dims)
    labels = torch.arange(rows) % classes
    features = (draw(what, rows, dims) + apart * draw("classes", classes, dims)[labels]) @ mixing
    return features * torch.logspace(-2, 2, dims) + 3.0, labels


def standardized(features: Tensor) -> Tensor:
    return (features - features.mean(dim=0)) / features.std(dim=0, correction=0)


def sklearn_fit(features: Tensor, labels: Tensor, c: float, tol: float = 1e-9) -> LogisticRegression:
    model = LogisticRegression(C=c, tol=tol, max_iter=5000)
    return model.fit(standardized(features.double()).numpy(), labels.numpy())


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


# The choice of l2


def test_test_data_cannot_influence_the_choice_of_l2() -> None:
    features, labels = correlated_classes(240, 16, 4, apart=0.3)
    first = linear_probe(features[:200], labels[:200], features[200:], labels[200:])
    second = linear_probe(features[:200], labels[:200], 100 * features[150:] + 7, labels[150:].flip(0))
    assert (first.l2, first.candidates) == (second.l2, second.candidates)
    assert first.accuracy != second.accuracy


@pytest.mark.parametrize("one_fold", [False, True])
def test_candidate_accuracies_are_those_of_scikit_learn_on_the_held_out_folds(
    one_fold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if one_fold:
        monkeypatch.setattr(linear, "_FEW", 100)
    features, labels = correlated_classes(300, 8, 3, apart=0.3)
    result = linear_probe(features, labels, features, labels, seed=5)
    fold = stratified_folds(labels, 5, seed=5)
    for l2 in (L2_GRID[0], result.l2):
        correct = held_out = 0
        for i in range(1 if one_fold else 5):
            train, out = fold != i, fold == i
            model = sklearn_fit(features[train], labels[train], c=1 / (l2 * int(train.sum())))
            scaled = (features[out] - features[train].mean(dim=0)) / features[train].std(dim=0, correction=0)
            correct += int((model.predict(scaled.numpy()) == labels[out].numpy()).sum())
            held_out += int(out.sum())
        assert result.candidates[l2] == pytest.approx(correct / held_out, abs=1.01 / held_out)
    assert result.l2 == max(result.candidates, key=lambda value: (result.candidates[value], value))


def test_the_last_fit_uses_all_training_images() -> None:
    features, labels = correlated_classes(200, 8, 4)
    chosen = linear_probe(features, labels, features, labels)
    given = linear_probe(features, labels, features, labels, l2=chosen.l2)
    assert torch.equal(chosen.predictions, given.predictions) and given.candidates == {}


def test_chosen_l2_is_nearly_as_good_on_new_images_as_the_best_of_the_grid() -> None:
    features, labels = correlated_classes(2400, 24, 4, apart=0.15)
    train, test = (features[:400], labels[:400]), (features[400:], labels[400:])
    accuracies = [linear_probe(*train, *test, l2=l2).accuracy for l2 in L2_GRID[::2]]
    assert linear_probe(*train, *test).accuracy > max(accuracies) - 0.02
    assert max(accuracies) - min(accuracies) > 0.04  # else any would do


def test_one_image_a_class_leaves_nothing_to_choose_with() -> None:
    features, labels = correlated_classes(30, 8, 10)
    result = linear_probe(features[:10], labels[:10], features, labels)
    assert result.l2 == L2_WITHOUT_VALIDATION and result.candidates == {}


def test_folds_share_out_every_class_and_keep_single_images_in_training() -> None:
    labels = torch.tensor([0] * 23 + [1] * 10 + [2] * 3 + [3])
    fold = stratified_folds(labels, 5, seed=0)
    assert fold[-1] == -1
    for label, count in ((0, 23), (1, 10), (2, 3)):
        sizes = torch.bincount(fold[labels == label], minlength=5)
        assert sizes.sum() == count and sizes.max() - sizes.min() <= 1
    assert torch.equal(fold, stratified_folds(labels, 5, seed=0))
    assert not torch.equal(fold, stratified_folds(labels, 5, seed=1))


# What goes in and comes out


def test_labels_may_be_any_integers() -> None:
    features, labels = correlated_classes(300, 8, 3)
    names = torch.tensor([-5, 7, 1000])
    plain = linear_probe(features, labels, features, labels, l2=1e-2)
    named = linear_probe(features, names[labels], features, names[labels], l2=1e-2)
    assert torch.equal(names[plain.predictions], named.predictions) and plain.accuracy == named.accuracy


def test_result_is_what_was_counted_and_can_be_written_as_json() -> None:
    features, labels = correlated_classes(200, 8, 4)
    result = linear_probe(features[:150], labels[:150], features[150:], labels[150:])
    assert result.accuracy == (result.predictions == labels[150:]).double().mean()
    summary = json.loads(json.dumps(result.summary()))
    assert (summary["n_train"], summary["n_test"], summary["classes"]) == (150, 50, 4)
    assert {"l2": result.l2, "accuracy": result.candidates[result.l2]} in summary["candidates"]


def test_features_are_left_as_they_were() -> None:
    features, labels = correlated_classes(100, 8, 4)
    before = features.double()
    linear_probe(features.double(), labels, before, labels)
    assert torch.equal(before, features.double())


def split() -> dict[str, Tensor]:
    features, labels = correlated_classes(60, 4, 3)
    return {
        "train_features": features[:40].clone(),
        "train_labels": labels[:40].clone(),
        "test_features": features[40:].clone(),
        "test_labels": labels[40:].clone(),
    }


def test_features_that_are_not_finite_are_refused_with_their_number_and_place() -> None:
    for name, word in (("train_features", "training"), ("test_features", "test")):
        data = split()
        data[name][3, 1], data[name][7, 0], data[name][7, 2] = np.nan, np.inf, -np.inf
        with pytest.raises(UserError, match=rf"2 of \d+ rows of the {word} features .* row 3"):
            linear_probe(**data)


def test_meaningless_splits_are_refused() -> None:
    data = split()
    with pytest.raises(UserError, match="40 feature rows but 39 labels"):
        linear_probe(**{**data, "train_labels": data["train_labels"][:39]})
    with pytest.raises(UserError, match="4 dimensions, test features 3"):
        linear_probe(**{**data, "test_features": data["test_features"][:, :3]})
    with pytest.raises(UserError, match="never occur in training, the first is 3"):
        linear_probe(**{**data, "test_labels": data["test_labels"] + 1})
    with pytest.raises(UserError, match="At least 2 classes"):
        linear_probe(**{**data, "train_labels": torch.zeros(40, dtype=torch.int64)})
    with pytest.raises(UserError, match="integer labels"):
        linear_probe(**{**data, "train_labels": data["train_labels"].float()})
    with pytest.raises(UserError, match="not empty"):
        linear_probe(**{**data, "test_features": torch.zeros(0, 4), "test_labels": torch.zeros(0, dtype=torch.int64)})
    with pytest.raises(UserError, match="l2=0"):
        linear_probe(**data, l2=0.0)


def fit(labels: list[int], classes: int) -> LinearClassifier:
    return fit_logistic(draw("few", len(labels), 3), torch.tensor(labels), l2=0.1, classes=classes)


def test_labels_that_do_not_fit_the_number_of_classes_are_refused() -> None:
    with pytest.raises(UserError, match=r"2 training labels are outside 0..1, the first is 2 in row 1"):
        fit([0, 2, 1, -1], classes=2)
    with pytest.raises(UserError, match="1 of 3 classes have no training image, the first is 1"):
        fit([0, 2, 0, 2], classes=3)
    with pytest.raises(UserError, match="at least 2 classes"):
        fit([0, 0], classes=1)


# Label subsets


def class_sizes(labels: Tensor, subset: Tensor) -> list[int]:
    return torch.bincount(labels[subset]).tolist()


def test_subset_keeps_the_proportions_of_the_classes() -> None:
    labels = torch.arange(4).repeat_interleave(torch.tensor([5000, 3000, 1200, 800]))
    assert class_sizes(labels, label_subset(labels, 0.01, seed=0)) == [50, 30, 12, 8]
    assert class_sizes(labels, label_subset(labels, 0.1, seed=0)) == [500, 300, 120, 80]
    assert torch.equal(label_subset(labels, 1.0, seed=0), torch.arange(10000))


@pytest.mark.parametrize("sizes", [(53, 24, 23), (60, 8, 7, 6), (20, 20, 3, 1)])
@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.13, 0.3, 0.77])
def test_no_other_subset_of_that_size_has_nearer_proportions(sizes: tuple[int, ...], fraction: float) -> None:
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))

    def distance(counts: tuple[int, ...]) -> float:
        return sum((a - fraction * n) ** 2 / n for a, n in zip(counts, sizes, strict=True))

    subset = label_subset(labels, fraction, seed=0)
    possible = itertools.product(*(range(1, n + 1) for n in sizes[1:]))
    completed = ((len(subset) - sum(rest), *rest) for rest in possible)
    nearest = min(distance(counts) for counts in completed if 1 <= counts[0] <= sizes[0])
    assert distance(tuple(class_sizes(labels, subset))) == pytest.approx(nearest)


def test_every_class_is_in_the_smallest_subset() -> None:
    labels = torch.cat([torch.zeros(1000, dtype=torch.int64), torch.arange(1, 11)])
    assert class_sizes(labels, label_subset(labels, 1e-6, seed=0)) == [1] * 11
    assert class_sizes(labels, label_subset(labels, 0.02, seed=0)) == [10] + [1] * 10


def test_subset_that_grows_takes_no_image_away_where_largest_remainders_would() -> None:
    labels = torch.arange(3).repeat_interleave(torch.tensor([6, 6, 2]))
    # The shares of 10 and 11 seats by largest remainder are 4 4 2 and 5 5 1: the Alabama paradox.
    ten, eleven = label_subset(labels, 10 / 14, seed=0), label_subset(labels, 11 / 14, seed=0)
    assert len(ten) == 10 and len(eleven) == 11 and torch.isin(ten, eleven).all()


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    fractions=st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=100, deadline=None)
def test_subsets_are_nested_distinct_and_of_the_right_size(
    sizes: list[int], fractions: tuple[float, float], seed: int
) -> None:
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    small, large = (label_subset(labels, fraction, seed) for fraction in sorted(fractions))
    assert torch.isin(small, large).all()
    for subset, fraction in ((small, min(fractions)), (large, max(fractions))):
        assert len(subset.unique()) == len(subset) == max(len(sizes), round(fraction * len(labels)))
        assert torch.equal(labels[subset].unique(), torch.arange(len(sizes)))


def test_subset_depends_on_the_seed_only() -> None:
    labels = torch.arange(1000) % 10
    assert torch.equal(label_subset(labels, 0.1, seed=3), label_subset(labels, 0.1, seed=3))
    assert not torch.equal(label_subset(labels, 0.1, seed=3), label_subset(labels, 0.1, seed=4))


def test_images_of_a_class_are_equally_likely_to_be_in_a_subset() -> None:
    labels = torch.arange(40) % 2
    times = torch.zeros(40)
    for seed in range(400):
        times[label_subset(labels, 0.25, seed)] += 1
    # 400 draws at 1/4: mean 100, deviation 8.7.
    assert times.sum() == 4000 and (times - 100).abs().max() < 40


def test_impossible_subsets_are_refused() -> None:
    labels = torch.tensor([0, 0, 2, 2])
    with pytest.raises(UserError, match="1 of 3 classes have no image, the first is 1"):
        label_subset(labels, 0.5, seed=0)
    for fraction in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(UserError, match="must be more than 0 and at most 1"):
            label_subset(torch.arange(4), fraction, seed=0)
    with pytest.raises(UserError, match="from 0 up"):
        label_subset(torch.tensor([-1, 0]), 0.5, seed=0)
