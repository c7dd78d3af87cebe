"""Probes while training: whatever the labels are like, they never end a run that has begun."""

import pytest
import torch
from small_encoders import small
from torch import Tensor

from flexpredict.data.sources.image_source import ArraySource
from flexpredict.errors import UserError
from flexpredict.evaluation.online_probe import online_probe

CPU = torch.device("cpu")


def images(labels: Tensor) -> ArraySource:
    """Plain images, whose color tells the class."""
    colors = torch.randint(256, (int(labels.max()) + 1, 3), generator=torch.Generator().manual_seed(0)).byte()
    pixels = colors[labels.clamp_min(0)].view(-1, 1, 1, 3).expand(-1, 32, 32, 3).contiguous()
    return ArraySource("colors", pixels, labels=labels)


def test_classes_are_told_apart_by_images_that_were_not_learned_from() -> None:
    found = online_probe(images(torch.arange(100) % 4), (32, 32), CPU, 0)(small().encoder)
    assert found == {"knn_accuracy": 1.0, "linear_accuracy": 1.0}


@pytest.mark.parametrize("seed", range(5))
def test_every_class_that_is_asked_for_was_learned(seed: int) -> None:
    labels = torch.cat((torch.arange(60).repeat(2), torch.full((300,), 60), torch.full((7,), -1), torch.tensor([61])))
    found = online_probe(images(labels), (32, 32), CPU, seed)(small().encoder)
    assert found["knn_accuracy"] > 0.8, "most are of the large class"
    assert 0 <= found["linear_accuracy"] <= 1


@pytest.mark.parametrize("readable", [0, 1])
def test_a_disk_that_is_gone_leaves_the_run_without_numbers(readable: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = images(torch.arange(100) % 4)
    probe = online_probe(source, (32, 32), CPU, 0)
    whole = source.read
    monkeypatch.setattr(source, "read", lambda at, *rest: (whole(at, *rest)[0], set(range(readable, len(at)))))
    assert probe(small().encoder) == {}


def test_of_many_classes_a_hundred_are_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = images(torch.arange(5000) % 1000)
    read: list[Tensor] = []
    whole = source.read
    monkeypatch.setattr(source, "read", lambda indices, *rest: read.append(indices) or whole(indices, *rest))
    online_probe(source, (32, 32), CPU, 0)(small().encoder)
    labels = source.labels[torch.cat(read)]  # type: ignore[index]
    assert len(labels) == 500 and labels.unique(return_counts=True)[1].tolist() == [5] * 100


def test_labels_that_nothing_can_be_learned_from_are_refused_before_the_run() -> None:
    said = r"needs at least two classes with two images each, but colors has 1\..*probe_data"
    with pytest.raises(UserError, match=said):
        online_probe(images(torch.tensor([0, 0, 0, 1, 2, -1, -1])), (32, 32), CPU, 0)
