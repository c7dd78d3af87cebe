"""Nearest neighbors against scikit-learn and against the weighted vote written out."""

import math

import pytest
import torch
from correlated_features import draw
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from flexpredict.errors import UserError
from flexpredict.evaluation import knn
from flexpredict.evaluation.knn import knn_accuracy, knn_predict


def split(classes: int = 7) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    labels = torch.arange(500) % classes
    features = draw("images", 500, 16) + 0.5 * draw("classes", classes, 16)[labels]
    return features[:400], labels[:400], features[400:], labels[400:]


@pytest.mark.parametrize("k", [1, 2, 20, 400])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_majority_vote_is_that_of_scikit_learn(k: int, dtype: torch.dtype) -> None:
    train, train_labels, test, test_labels = split()
    train, test = train.to(dtype), test.to(dtype)
    reference = KNeighborsClassifier(k, metric="cosine").fit(train.numpy(), train_labels.numpy())
    predictions = knn_predict(train, train_labels, test, k=k, temperature=None)
    assert predictions.tolist() == reference.predict(test.numpy()).tolist()
    accuracy = knn_accuracy(train, train_labels, test, test_labels, k=k, temperature=None)
    assert accuracy == pytest.approx(reference.score(test.numpy(), test_labels.numpy()))


def test_weighted_vote_is_the_sum_of_exponentiated_similarities() -> None:
    train, train_labels, test, _ = split()
    predictions = knn_predict(train, train_labels, test, k=20, temperature=0.07)
    changed = 0
    for image, prediction in zip(test, predictions.tolist(), strict=True):
        similarity = torch.cosine_similarity(image[None], train).tolist()
        nearest = sorted(range(len(train)), key=lambda i: -similarity[i])[:20]
        votes = [0.0] * 7
        for i in nearest:
            votes[int(train_labels[i])] += math.exp(similarity[i] / 0.07)
        assert votes.index(max(votes)) == prediction
        counts = torch.bincount(train_labels[nearest], minlength=7)
        changed += int(counts.argmax()) != prediction
    assert changed  # else weights would not have been tested


def test_very_low_temperature_asks_the_nearest_image_only() -> None:
    train, train_labels, test, _ = split()
    one = knn_predict(train, train_labels, test, k=1)
    assert torch.equal(knn_predict(train, train_labels, test, k=20, temperature=1e-7), one)


@pytest.mark.parametrize("temperature", [None, 0.07])
def test_chunks_and_lengths_of_features_change_nothing(
    temperature: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, train_labels, test, _ = split()
    whole = knn_predict(train, train_labels, test, temperature=temperature)
    lengths = torch.exp(draw("lengths", 400, 1))
    for chunk in (1, 33, 100, 1000):
        monkeypatch.setattr(knn, "_SIMILARITIES_AT_ONCE", chunk * len(train))
        other = knn_predict(train * lengths, train_labels, 5 * test, temperature=temperature)
        assert torch.equal(other, whole)


def test_of_equally_many_votes_the_smallest_label_wins() -> None:
    train = torch.tensor([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]])
    labels = torch.tensor([9, -4, 9])
    assert knn_predict(train, labels, torch.tensor([[1.0, 0.1]]), k=2, temperature=None).tolist() == [-4]


def test_bad_input_is_refused() -> None:
    train, train_labels, test, test_labels = split()
    for k in (0, 401):
        with pytest.raises(UserError, match=f"k={k} must be between 1 and .* 400"):
            knn_accuracy(train, train_labels, test, test_labels, k=k)
    with pytest.raises(UserError, match="temperature=0"):
        knn_accuracy(train, train_labels, test, test_labels, temperature=0.0)
    with pytest.raises(UserError, match="never occur in training"):
        knn_accuracy(train, train_labels, test, test_labels + 1)
    test[4, 4] = torch.nan
    with pytest.raises(UserError, match=r"1 of 100 rows of the test features .* row 4"):
        knn_predict(train, train_labels, test)
