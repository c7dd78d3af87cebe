"""Segmentation: scores as scikit-learn computes them, heads that are the optimum, samples that are fair."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from masked_pictures import tiles, two_folders
from mean_color import MeanColor
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, jaccard_score
from sklearn.preprocessing import StandardScaler

from flexpredict.cli import main
from flexpredict.evaluation.dense import evaluate_segmentation, segmentation
from flexpredict.evaluation.dense.classes import Classes
from flexpredict.evaluation.dense.patches import PatchMaps
from flexpredict.evaluation.dense.segmentation import Confusion, majority, sample_patches, winners
from flexpredict.evaluation.index_masks import VOID
from flexpredict.evaluation.linear import fit_probe
from flexpredict.randomness import normal, sample_keys, stream_key, uniform

THREE = Classes(("a", "b", "c"), (0, 1, 2))


def random_mask(name: str, *shape: int, classes: int = 5) -> np.ndarray:
    drawn = uniform(torch.tensor([stream_key(0, name)]), int(np.prod(shape)))[0].numpy()
    return (drawn * classes).astype(np.uint8).reshape(shape)


def test_iou_and_accuracy_are_those_of_scikit_learn() -> None:
    confusion = Confusion(7)  # classes 5 and 6 are neither there nor predicted
    truths, predictions = [], []
    for number in range(4):
        truth, predicted = random_mask(f"truth {number}", 9, 11), random_mask(f"predicted {number}", 9, 11)
        truth[truth == 3] = VOID
        truth[:2] = predicted[:2] = number % 2
        confusion.add(truth, predicted)
        truths.append(truth[truth != VOID])
        predictions.append(predicted[truth != VOID])
    expected, given = np.concatenate(truths), np.concatenate(predictions)
    labels = np.unique((expected, given))
    assert 3 in labels and 5 not in labels, "class 3 is predicted although it is never there"
    np.testing.assert_allclose(confusion.iou()[labels], jaccard_score(expected, given, labels=labels, average=None))
    assert np.isnan(confusion.iou()[5:]).all()
    assert confusion.mean_iou() == pytest.approx(jaccard_score(expected, given, average="macro"))
    assert confusion.accuracy() == pytest.approx(accuracy_score(expected, given))


@pytest.mark.parametrize("size", [(5, 7), (33, 20), (3, 4)])
def test_winners_are_those_of_up_sampled_scores_however_few_fit_into_memory(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    patches = normal(torch.tensor([stream_key(0, "scores")]), 4 * 5 * 9)[0].view(4, 5, 9)
    fine = F.interpolate(patches.permute(2, 0, 1)[None], size=size, mode="bilinear", align_corners=False)[0]
    expected = fine.argmax(dim=0).numpy()
    for at_once in (1, 2 * size[0] * size[1], 1 << 24):
        monkeypatch.setattr(segmentation, "_AT_ONCE", at_once)
        assert np.array_equal(winners(patches, size), expected)


@pytest.mark.parametrize("grid", [(2, 3), (3, 4), (12, 14), (20, 30)])
def test_a_patch_has_the_class_of_most_of_its_labeled_pixels(grid: tuple[int, int]) -> None:
    mask = random_mask("patches", 12, 14, classes=4)
    mask[mask == 3] = VOID
    mask[:6, :7] = VOID
    expected = np.full(grid, VOID, np.uint8)
    for row in range(grid[0]):
        for column in range(grid[1]):
            pixels = [
                int(mask[y, x])
                for y in range(12)
                for x in range(14)
                if int((y + 0.5) * grid[0] / 12) == row and int((x + 0.5) * grid[1] / 14) == column
            ]
            counts = [pixels.count(number) for number in range(3)]
            if any(counts):
                expected[row, column] = counts.index(max(counts))
    assert np.array_equal(majority(mask, grid, 3), expected)
    assert VOID in expected


def patch_maps(images: list[int]) -> PatchMaps[np.uint8]:
    """A patch tells its image and its number."""
    features = torch.stack([torch.stack((torch.full((16,), image), torch.arange(16)), dim=1) for image in images])
    return PatchMaps(features.view(-1, 4, 4, 2).float(), [tiles(image)[1] for image in images], images)


def test_the_sample_depends_on_seed_and_image_alone_and_no_image_has_more_than_its_share() -> None:
    batches = [[patch_maps(list(range(10)))], [patch_maps([3, 1]), patch_maps([0, *range(4, 10)]), patch_maps([2])]]
    samples = [sample_patches(some, THREE, 10, 60, 0, torch.device("cpu")) for some in batches]
    assert torch.equal(samples[0].features, samples[1].features)
    assert torch.bincount(samples[0].images).tolist() == [6] * 10
    assert torch.equal(samples[0].images, samples[0].features[:, 0].long())
    assert len(torch.unique(samples[0].features, dim=0)) == 60, "no patch twice"
    other = sample_patches(batches[0], THREE, 10, 60, 1, torch.device("cpu"))
    assert not torch.equal(other.features, samples[0].features)
    for sample in (samples[0], other):
        labels = [tiles(int(image))[1][::8, ::8].ravel()[int(patch)] for image, patch in sample.features]
        assert sample.labels.tolist() == labels


def test_the_penalty_is_chosen_on_images_of_which_no_patch_was_fitted() -> None:
    """Patches of an image are alike, and their labels random: only a leak could tell the labels of one held out."""
    images = torch.arange(60).repeat_interleave(100)
    features = normal(sample_keys(stream_key(0, "images"), images), 90)
    labels = (uniform(sample_keys(stream_key(0, "labels"), images), 1)[:, 0] * 2).long()
    by_image = fit_probe(features, labels, groups=images).candidates
    by_patch = fit_probe(features, labels).candidates
    assert max(by_patch.values()) == 1.0 and max(by_image.values()) < 0.8


def test_the_whole_evaluation_is_scikit_learns_logistic_regression_up_sampled(tmp_path: Path) -> None:
    data = {"train": two_folders(tmp_path / "train", 12), "test": two_folders(tmp_path / "test", 5, first=50)}
    l2 = 0.01
    result = evaluate_segmentation(MeanColor(), data["train"], data["test"], l2=l2, neighbors=0, out=None)

    def patches(root: Path) -> list[tuple[np.ndarray, np.ndarray]]:
        pairs = []
        for path in sorted((root / "images").iterdir()):
            pixels, mask = (
                np.asarray(Image.open(path), np.float64),
                np.asarray(Image.open(root / "masks" / path.name)),
            )
            height, width = mask.shape
            pairs.append((pixels.reshape(height // 8, 8, width // 8, 8, 3).mean(axis=(1, 3)), mask))
        return pairs

    known, asked = patches(tmp_path / "train"), patches(tmp_path / "test")
    x = np.concatenate([features.reshape(-1, 3) for features, _ in known])
    y = np.concatenate([mask[::8, ::8].ravel() for _, mask in known])
    scaler = StandardScaler().fit(x)
    fitted = LogisticRegression(C=1 / (l2 * len(y)), tol=1e-10, max_iter=10_000).fit(scaler.transform(x), y)
    truth, predicted = [], []
    for features, mask in asked:
        logits = fitted.decision_function(scaler.transform(features.reshape(-1, 3))).reshape(*features.shape[:2], -1)
        fine = F.interpolate(torch.from_numpy(logits).permute(2, 0, 1)[None], size=mask.shape, mode="bilinear")
        truth.append(mask.ravel())
        predicted.append(fine[0].argmax(dim=0).numpy().ravel())
    expected, given = np.concatenate(truth), np.concatenate(predicted)
    mean_iou = 100 * jaccard_score(expected, given, average="macro")
    assert result.numbers["linear mIoU"] == pytest.approx(mean_iou, abs=0.02) and mean_iou > 60
    assert result.numbers["linear pixel accuracy"] == pytest.approx(100 * accuracy_score(expected, given), abs=0.02)


def test_images_of_any_shape_are_read_alike_in_any_batch_by_any_number_of_workers(tmp_path: Path) -> None:
    data = two_folders(tmp_path, 10)
    shapes = {Image.open(path).size for path in (tmp_path / "images").iterdir()}
    assert len(shapes) == 3
    options = [{"batch_size": 1}, {"batch_size": 4, "workers": 2}, {}]
    numbers = [evaluate_segmentation(MeanColor(), data, data, out=None, **some).numbers for some in options]  # type: ignore[arg-type]
    for other in numbers[1:]:
        assert other == pytest.approx(numbers[0], abs=1e-3)


def test_the_command_shows_every_class_and_draws_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = "timm:test_vit,pretrained=no", ["--train", "scenes:12,size=32", "--test", "scenes:6,size=32"]
    options = ["--image_size", "32", "--pictures", "2", "--out", str(tmp_path), "--table", str(tmp_path / "t.csv")]
    assert main(["evaluate", "segmentation", model, *data, *options, "--batch_size", "4"]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("background", "crescent", "mIoU", "20-NN", "linear"))
    (path,) = tmp_path.glob("*.json")
    saved = json.loads(path.read_text())
    assert saved["protocol"]["train"] == {"data": "scenes:12,size=32", "images": 12, "unreadable": 0}
    assert len(saved["details"]["classes"]) == 11
    pictures = sorted(path.with_suffix("").iterdir())
    assert [Image.open(picture).size for picture in pictures] == [(3 * 240 + 8, 240)] * 2
    column = "segmentation, scenes:6,size=32 (test), shorter side 32, trained on scenes:12,size=32: linear mIoU"
    assert column in (tmp_path / "t.csv").read_text()
