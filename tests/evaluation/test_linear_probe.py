"""The linear probe: how it chooses its penalty, what it counts, and which features and labels it refuses."""

import json

import numpy as np
import pytest
import torch
from correlated_features import correlated_classes, sklearn_fit
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.evaluation import linear
from flexpredict.evaluation.linear import L2_GRID, L2_WITHOUT_VALIDATION, linear_probe, stratified_folds

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
