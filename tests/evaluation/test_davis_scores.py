"""J and F are those of the DAVIS toolkit: against its published numbers, and against a plain loop over frames."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation

from flexpredict.evaluation.davis import evaluate_davis
from flexpredict.evaluation.davis import scores as contours
from flexpredict.evaluation.davis.scores import (
    ObjectScores,
    contour_accuracy,
    region_similarity,
    score_sequence,
    statistics,
    summary,
)
from flexpredict.evaluation.index_masks import VOID
from flexpredict.randomness import normal, sample_keys, stream_key

DAVIS = Path(__file__).parents[3] / "shared" / "data" / "davis"
needs_davis = pytest.mark.skipif(not DAVIS.is_dir(), reason="the DAVIS sequences are not on this machine")


def blobs(name: str, frames: int, size: tuple[int, int], kinds: int) -> NDArray[np.uint8]:
    """T H W: smooth random regions of 0 to kinds - 1 that reach the edges."""
    coarse = normal(sample_keys(stream_key(0, name), torch.arange(frames)), kinds * 30).view(frames, kinds, 5, 6)
    return F.interpolate(coarse, size=size, mode="bicubic").argmax(dim=1).byte().numpy()


def plain_region_similarity(truth: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> float:
    union = np.sum(truth | predicted)
    return float(np.sum(truth & predicted) / union) if union else 1.0


def plain_contour(region: NDArray[np.bool_]) -> NDArray[np.bool_]:
    east, south, south_east = np.zeros_like(region), np.zeros_like(region), np.zeros_like(region)
    east[:, :-1], south[:-1], south_east[:-1, :-1] = region[:, 1:], region[1:], region[1:, 1:]
    contour = (region ^ east) | (region ^ south) | (region ^ south_east)
    contour[-1] = region[-1] ^ east[-1]
    contour[:, -1] = region[:, -1] ^ south[:, -1]
    contour[-1, -1] = False
    return contour


def plain_contour_accuracy(truth: NDArray[np.bool_], predicted: NDArray[np.bool_], tolerance: float) -> float:
    radius = math.ceil(tolerance * np.linalg.norm(truth.shape))
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    disk = x**2 + y**2 <= radius**2
    true_contour, predicted_contour = plain_contour(truth), plain_contour(predicted)
    if not true_contour.any() or not predicted_contour.any():
        return float(true_contour.any() == predicted_contour.any())
    precision = predicted_contour[binary_dilation(true_contour, disk)].sum() / predicted_contour.sum()
    recall = true_contour[binary_dilation(predicted_contour, disk)].sum() / true_contour.sum()
    return float(2 * precision * recall / (precision + recall)) if precision + recall else 0.0


@needs_davis
def test_scores_of_osvos_are_those_of_the_toolkit(tmp_path: Path) -> None:
    result = evaluate_davis(data=DAVIS / "DAVIS", score_only=DAVIS / "results_osvos", out=tmp_path)
    assert_equal_to_reference(result.details["objects"], DAVIS / "osvos_reference_scores.csv")


@needs_davis
def test_scores_of_two_objects_are_those_of_the_toolkit(tmp_path: Path) -> None:
    fixture = DAVIS / "multiobject_metric_fixture"
    tree = tmp_path / "tree"
    (tree / "Annotations").mkdir(parents=True)
    (tree / "Annotations" / "480p").symlink_to(fixture / "Annotations")
    (tree / "ImageSets" / "2017").mkdir(parents=True)
    (tree / "ImageSets" / "2017" / "val.txt").write_text("judo\n")
    result = evaluate_davis(data=tree, score_only=fixture / "prediction", out=tmp_path / "out")
    assert_equal_to_reference(result.details["objects"], fixture / "expected_scores.csv")


def assert_equal_to_reference(objects: dict[str, dict[str, float]], reference: Path) -> None:
    with reference.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["Sequence"] for row in rows} == objects.keys()
    for row in rows:
        ours = objects[row["Sequence"]]
        assert ours["J mean"] / 100 == pytest.approx(float(row["J-Mean"]), abs=1e-6)
        assert ours["F mean"] / 100 == pytest.approx(float(row["F-Mean"]), abs=1e-6)


@pytest.mark.parametrize("tolerance", [0.008, 0.02, 0.1])
@pytest.mark.parametrize("size", [(60, 107), (97, 41), (130, 130)])
def test_all_frames_and_objects_at_once_score_like_one_after_the_other(
    size: tuple[int, int], tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contours, "_TOLERANCE", tolerance)
    truth, predicted = blobs("truth", 6, size, 4), blobs("predicted", 6, size, 4)
    predicted[:3] = np.where(blobs("agreement", 3, size, 2) > 0, truth[:3], predicted[:3])
    predicted[3] = np.roll(truth[3], 2, axis=1)
    truth[4][truth[4] == 3] = 0  # in one only
    truth[5][truth[5] == 2] = predicted[5][predicted[5] == 2] = 0  # in neither
    objects = (1, 2, 3)
    region, contour = region_similarity(truth, predicted, objects), contour_accuracy(truth, predicted, objects)
    pairs = [[(t == k, p == k) for t, p in zip(truth, predicted, strict=True)] for k in objects]
    np.testing.assert_allclose(region, [[plain_region_similarity(t, p) for t, p in row] for row in pairs], atol=1e-12)
    plain = [[plain_contour_accuracy(t, p, tolerance) for t, p in row] for row in pairs]
    np.testing.assert_allclose(contour, plain, atol=1e-12)
    assert len(np.unique(contour.round(3))) > 10  # the comparison says something


def test_numbers_of_objects_need_not_follow_each_other() -> None:
    truth, predicted = blobs("truth", 3, (50, 60), 3), blobs("predicted", 3, (50, 60), 3)
    renumbered = np.array([0, 4, 200], np.uint8)
    for measure in (region_similarity, contour_accuracy):
        np.testing.assert_array_equal(
            measure(truth, predicted, (1, 2)), measure(renumbered[truth], renumbered[predicted], (4, 200))
        )


@pytest.mark.parametrize(("shift", "expected"), [(8, 1.0), (9, 0.0)])
def test_contours_match_up_to_the_radius_of_the_disk_and_no_further(shift: int, expected: float) -> None:
    truth = np.zeros((1, 480, 854), np.uint8)  # of which 0.8 % of the diagonal are 7.8 pixels
    truth[:, :, 400:] = 1
    predicted = np.roll(truth, shift, axis=2)
    predicted[:, :, :400] = 0
    assert contour_accuracy(truth, predicted, (1,)) == expected


def test_contours_do_not_match_across_the_edges_of_an_image() -> None:
    truth, predicted = np.zeros((2, 2, 40, 50), np.uint8)
    truth[:, 10:20, -2:] = predicted[:, 11:21, :2] = 1  # the end of a row, and the beginning of the next one
    truth[0, -2:, 20:30] = predicted[1, :2, 20:30] = 1  # the end of a frame, and the beginning of the next one
    assert contour_accuracy(truth, predicted, (1,)).tolist() == [[0.0, 0.0]]


def test_what_is_void_counts_for_nothing() -> None:
    truth, predicted = blobs("truth", 4, (60, 80), 3), blobs("predicted", 4, (60, 80), 3)
    void = blobs("void", 4, (60, 80), 2) > 0
    other = np.where(void, blobs("other", 4, (60, 80), 3), predicted)
    assert (other != predicted).any()
    scores, others = (
        score_sequence("one", np.where(void, np.uint8(VOID), truth), some, (1, 2)) for some in (predicted, other)
    )
    kept = ~void
    for number, (score, same) in enumerate(zip(scores, others, strict=True), start=1):
        np.testing.assert_array_equal(score.region, same.region)
        np.testing.assert_array_equal(score.contour, same.contour)
        for frame in range(4):
            pair = ((truth[frame] == number) & kept[frame], (predicted[frame] == number) & kept[frame])
            assert score.region[frame] == pytest.approx(plain_region_similarity(*pair))
            assert score.contour[frame] == pytest.approx(plain_contour_accuracy(*pair, 0.008))


def test_decay_is_the_first_quarter_less_the_last_with_borders_in_both() -> None:
    values = np.array([1.0, 0.9, 0.8, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0])  # 9 frames: borders at 0, 2, 4, 6, 8
    mean, recall, decay = statistics(values)
    assert mean == pytest.approx(4.2 / 9)
    assert recall == pytest.approx(3 / 9)  # 0.5 is not above 0.5
    assert decay == pytest.approx((1.0 + 0.9 + 0.8) / 3 - (0.2 + 0.1 + 0.0) / 3)
    # 11 frames: a quarter ends at 2.5, which is rounded up to 3, and the last begins at 7.5, rounded up to 8.
    assert statistics(np.arange(11) / 10)[2] == pytest.approx((0 + 1 + 2 + 3) / 40 - (8 + 9 + 10) / 30)


def test_objects_weigh_the_same_however_long_their_sequences_are() -> None:
    long, short = np.full(90, 0.2), np.full(3, 0.8)
    numbers = summary([ObjectScores("long", 1, long, long / 2), ObjectScores("short", 1, short, short / 2)])
    assert numbers["J mean"] == pytest.approx(50)
    assert numbers["F mean"] == pytest.approx(25)
    assert numbers["J&F"] == pytest.approx(37.5)
    assert numbers["J recall"] == pytest.approx(50)
