"""Depth: errors as scikit-learn computes them, a head that is ridge regression on pixels, maps that can be used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from masked_pictures import tiles
from mean_color import MeanColor
from PIL import Image
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_absolute_percentage_error, root_mean_squared_error
from sklearn.preprocessing import StandardScaler

from flexpredict.cli import main
from flexpredict.errors import UserError
from flexpredict.evaluation.dense import evaluate_depth
from flexpredict.evaluation.dense.depth import DepthErrors, depths_of_patches, read_depths
from flexpredict.randomness import stream_key, uniform


def random_depths(name: str, *shape: int) -> np.ndarray:
    """A quarter of the pixels is not known."""
    drawn = uniform(torch.tensor([stream_key(0, name)]), 2 * int(np.prod(shape)))[0].numpy().reshape(2, *shape)
    return np.where(drawn[1] < 0.25, 0, 1 + 4 * drawn[0]).astype(np.float32)


def write_depths(root: Path, count: int = 10, first: int = 0, kind: str = "png", hole: int = 5) -> str:
    """Pictures whose red tells the depth, from 1 to 5 m. The first `hole` columns of the depth maps are not known."""
    for folder in ("images", "depth"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        pixels, _ = tiles(number, columns=4 + number % 2)
        Image.fromarray(pixels).save(root / "images" / f"{number:03d}.png")
        depth = 1 + 4 * pixels[..., 0].astype(np.float64) / 255 + 0.3 * (pixels[..., 1] > 150)
        depth[:, :hole] = 0
        if kind == "png":
            Image.fromarray((1000 * depth).round().astype(np.uint16)).save(root / "depth" / f"{number:03d}.png")
        else:
            np.save(root / "depth" / f"{number:03d}.npy", depth)
    return f"{root / 'images'},depth={root / 'depth'}"


def evaluated(train: str, test: str | None = None, **options: Any) -> Any:
    return evaluate_depth(MeanColor(), train, test or train, **({"out": None} | options))


def test_errors_are_those_of_scikit_learn_averaged_over_images() -> None:
    errors, expected = DepthErrors(), []
    for number in range(5):
        truth, predicted = random_depths(f"truth {number}", 7, 9), 1 + random_depths(f"predicted {number}", 7, 9)
        errors.add(truth, predicted)
        true, given = truth[truth > 0], predicted[truth > 0]
        within = np.mean([max(a / b, b / a) < 1.25 for a, b in zip(true, given, strict=True)])
        expected.append(
            (root_mean_squared_error(true, given), 100 * mean_absolute_percentage_error(true, given), 100 * within)
        )
    errors.add(np.zeros((3, 4), np.float32), np.ones((3, 4), np.float32))  # nothing is known of this one
    assert list(errors.means().values()) == pytest.approx(np.mean(expected, axis=0).tolist(), rel=1e-6)


@pytest.mark.parametrize("grid", [(2, 3), (3, 4), (12, 14), (20, 20)])
def test_a_patch_has_the_mean_of_its_known_pixels(grid: tuple[int, int]) -> None:
    depths = random_depths("patches", 12, 14)
    depths[:6, :5] = 0
    means, shares = depths_of_patches(depths, grid)
    for row in range(grid[0]):
        for column in range(grid[1]):
            pixels = [
                float(depths[y, x])
                for y in range(12)
                for x in range(14)
                if int((y + 0.5) * grid[0] / 12) == row and int((x + 0.5) * grid[1] / 14) == column
            ]
            known = [depth for depth in pixels if depth > 0]
            patch = row * grid[1] + column
            assert float(shares[patch]) == pytest.approx(len(known) / max(1, len(pixels)))
            if known:
                assert float(means[patch]) == pytest.approx(np.mean(known))


def test_the_whole_evaluation_is_scikit_learns_ridge_up_sampled(tmp_path: Path) -> None:
    train = write_depths(tmp_path / "train", 10)
    test = write_depths(tmp_path / "test", 4, first=30)
    result = evaluated(train, test)

    def pairs(root: Path) -> list[tuple[np.ndarray, np.ndarray]]:
        read = []
        for path in sorted((root / "images").iterdir()):
            pixels = np.asarray(Image.open(path), np.float64)
            depths = np.asarray(Image.open(root / "depth" / path.name), np.float64) / 1000
            read.append((pixels.reshape(4, 8, -1, 8, 3).mean(axis=(1, 3)), depths))
        return read

    x, y, weights = [], [], []
    known = pairs(tmp_path / "train")
    for features, depths in known:
        blocks = depths.reshape(4, 8, -1, 8)
        counts = (blocks > 0).sum(axis=(1, 3))
        x.append(features[counts > 0])
        y.append((blocks.sum(axis=(1, 3)) / np.maximum(counts, 1))[counts > 0])
        weights.append(counts[counts > 0] / 64)
    features, targets, weight = np.concatenate(x), np.concatenate(y), np.concatenate(weights)
    scaler = StandardScaler().fit(features, sample_weight=weight)
    ridge = Ridge(alpha=result.protocol["penalty"] * weight.sum())
    ridge.fit(scaler.transform(features), targets, sample_weight=weight)
    seen = np.concatenate([depths[depths > 0] for _, depths in known])
    errors = []
    for patches, depths in pairs(tmp_path / "test"):
        coarse = ridge.predict(scaler.transform(patches.reshape(-1, 3))).reshape(patches.shape[:2])
        coarse = coarse.clip(seen.min(), seen.max())
        fine = F.interpolate(torch.from_numpy(coarse)[None, None], size=depths.shape, mode="bilinear")[0, 0].numpy()
        errors.append(root_mean_squared_error(depths[depths > 0], fine[depths > 0]))
    assert result.numbers["RMSE"] == pytest.approx(np.mean(errors), rel=1e-4)
    assert result.numbers["RMSE"] < 0.6 * result.details["mean depth"]["RMSE"]


def test_png_and_npy_give_the_same_and_depths_beyond_the_limit_are_not_known(tmp_path: Path) -> None:
    kinds = [write_depths(tmp_path / kind, kind=kind) for kind in ("png", "npy")]
    numbers = [evaluated(data).numbers for data in kinds]
    assert numbers[1] == pytest.approx(numbers[0], rel=1e-3)
    limited = evaluated(kinds[0], max_depth=3.0)
    assert limited.protocol["limits"][1] <= 3 and limited.protocol["settings"] == "up to 3.0 m"
    values = np.array([[np.nan, np.inf, -1.0], [0.0, 2.5, 4.0]])
    np.save(tmp_path / "odd.npy", values)
    assert read_depths(tmp_path / "odd.npy", 1000, 3.0).tolist() == [[0, 0, 0], [0, 2.5, 0]]


def test_the_command_measures_scenes_and_draws_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = "timm:test_vit,pretrained=no", ["--train", "scenes:12,size=32", "--test", "scenes:6,size=32"]
    options = ["--image_size", "32", "--pictures", "2", "--out", str(tmp_path), "--table", str(tmp_path / "t.csv")]
    assert main(["evaluate", "depth", model, *data, *options]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("RMSE (m)", "AbsRel (%)", "δ1 (%)", "mean depth"))
    (path,) = tmp_path.glob("*.json")
    assert [Image.open(picture).size for picture in path.with_suffix("").iterdir()] == [(3 * 240 + 8, 240)] * 2


def shrink(root: Path) -> None:
    Image.fromarray(np.ones((8, 8), np.uint16)).save(root / "depth" / "003.png")


def make_eight_bits(root: Path) -> None:
    Image.fromarray(np.ones((32, 40), np.uint8)).save(root / "depth" / "003.png")


def take_away(root: Path) -> None:
    (root / "depth" / "003.png").unlink()


def forget_all(root: Path) -> None:
    for path in (root / "depth").iterdir():
        Image.fromarray(np.zeros(Image.open(path).size[::-1], np.uint16)).save(path)


@pytest.mark.parametrize(
    ("spoil", "options", "said"),
    [
        (shrink, {}, r"depth/003.png has 8x8 pixels .* but its image .*images/003.png has 32x40"),
        (make_eight_bits, {}, r"003.png is an image of mode L, not a depth map"),
        (
            take_away,
            {},
            r"1 of the 10 images .* have no depth map: 003.png. The first needs .*003.png or .*003.npy",
        ),
        (forget_all, {}, r"None of the 10 depth maps"),
        (None, {"max_depth": 0.01}, r"None of the 10 depth maps"),
        (None, {"scale": 0}, r"scale=0.0 is out of range"),
        (None, {"pictures": -1}, r"pictures=-1 is out of range"),
    ],
)
def test_what_cannot_be_used_is_refused_before_any_image_is_encoded(
    spoil: Callable[[Path], None] | None, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    data = write_depths(tmp_path)
    if spoil is not None:
        spoil(tmp_path)
    encoder = MeanColor()
    with pytest.raises(UserError, match=said):
        evaluate_depth(encoder, data, data, out=tmp_path / "results", **options)
    assert encoder.seen == 0 and not (tmp_path / "results").exists()


def test_maps_of_which_nothing_is_known_are_told_before_hours_of_encoding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, encoder = write_depths(tmp_path), MeanColor()
    Image.fromarray(np.zeros((32, 40), np.uint16)).save(tmp_path / "depth" / "003.png")
    encoder.fails_after = 0
    with pytest.raises(KeyboardInterrupt):
        evaluate_depth(encoder, data, data, out=None)
    assert "WARNING: 1 of 10 depth maps" in capsys.readouterr().out


def test_a_name_without_depth_maps_and_damaged_maps_are_refused(tmp_path: Path) -> None:
    data = write_depths(tmp_path)
    with pytest.raises(UserError, match="names no depth maps"):
        evaluated(str(tmp_path / "images"))
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY nonsense")
    with pytest.raises(UserError, match="cannot be read"):
        read_depths(tmp_path / "bad.npy", 1000, None)
    np.save(tmp_path / "color.npy", np.ones((4, 4, 3)))
    with pytest.raises(UserError, match="a number for each pixel"):
        read_depths(tmp_path / "color.npy", 1000, None)
    (tmp_path / "depth" / "004.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"004.png cannot be read"):
        evaluated(data)
