"""Objects of a video are followed as DINO does it; bad trees are refused before the work begins."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from flexpredict.data.scenes.scenes import draw_videos
from flexpredict.encoders.image_encoder import ImageEncoder, Tokens
from flexpredict.errors import UserError
from flexpredict.evaluation.davis import Propagation, evaluate_davis
from flexpredict.evaluation.davis.propagation import carry_over, followed_masks, propagate, to_grid, to_mask
from flexpredict.evaluation.davis.videos import Video
from flexpredict.evaluation.dense.patches import encoded_size
from flexpredict.evaluation.index_masks import PALETTE, VOID, read_mask, write_mask
from flexpredict.evaluation.results import Result
from flexpredict.randomness import normal, sample_keys, stream_key

SIZE, FRAMES, NAMES = 48, 5, ("first", "second")


class PatchColors(ImageEncoder):
    """Features of a patch are its pixels. Counts the frames it was shown, and breaks after so many."""

    def __init__(self, channels: int = 3, breaks_after: int | None = None) -> None:
        super().__init__("colors", "the colors of patches", 48, 1, (4, 4), (SIZE, SIZE), "mean")
        self.project = nn.Conv2d(channels, 48, 4, stride=4, bias=False)
        with torch.no_grad():
            self.project.weight.copy_(torch.eye(48).view(48, 3, 4, 4)[:, :channels])
        self.shown, self.breaks_after = 0, breaks_after

    def _tokens(self, images: Tensor, count: int) -> list[Tokens]:
        self.shown += len(images)
        if self.breaks_after is not None and self.shown > self.breaks_after:
            raise KeyboardInterrupt
        return [Tokens(self.project(images).flatten(2).mT, None)]


def unit_features(name: str, *shape: int) -> Tensor:
    rows = int(np.prod(shape[:-1]))
    return F.normalize(normal(sample_keys(stream_key(0, name), torch.arange(rows)), shape[-1]), dim=1).view(shape)


def random_labels(name: str, *shape: int) -> Tensor:
    rows = int(np.prod(shape[:-1]))
    return normal(sample_keys(stream_key(1, name), torch.arange(rows)), shape[-1]).softmax(dim=1).view(shape)


def plain_propagate(features: list[Tensor], first_labels: Tensor, how: Propagation) -> list[Tensor]:
    """Frame by frame, patch by patch."""
    height, width, _ = features[0].shape
    assert how.queue > 0
    known, results = [(features[0], first_labels)], []
    for target in features[1:]:
        result = torch.zeros_like(first_labels)
        for y in range(height):
            for x in range(width):
                candidates = [
                    (similarity, labels[v, u])
                    for source, labels in [known[0], *known[1:][-how.queue :]]
                    for v, row in enumerate((source @ target[y, x]).tolist())
                    for u, similarity in enumerate(row)
                    if how.radius == 0 or max(abs(v - y), abs(u - x)) <= how.radius
                ]
                kth = sorted((similarity for similarity, _ in candidates), reverse=True)[: how.top_k][-1]
                voters = [(np.exp(s / how.temperature), labels) for s, labels in candidates if s >= kth]
                result[y, x] = sum(weight * labels for weight, labels in voters) / sum(weight for weight, _ in voters)
        known.append((target, result))
        results.append(result)
    return results


@pytest.mark.parametrize(
    "how",
    [
        Propagation(queue=2, radius=2),
        Propagation(queue=1, radius=1, top_k=30),  # more than there are within reach
        Propagation(queue=1, radius=0, temperature=0.5),
    ],
)
def test_propagation_equals_a_loop_over_patches(how: Propagation) -> None:
    features = list(unit_features("frames", 4, 9, 17, 6))  # more than one tile in both directions
    labels = random_labels("first", 9, 17, 3)
    propagated = list(propagate(features, labels, how))
    for ours, plain in zip(propagated, plain_propagate(features, labels, how), strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=0)
        torch.testing.assert_close(ours.sum(dim=-1), torch.ones(9, 17))


def test_only_the_first_frame_is_looked_at_without_a_queue() -> None:
    features = unit_features("frames", 4, 5, 6, 8)
    labels = random_labels("first", 5, 6, 3)
    how = Propagation(queue=0, radius=2)
    *_, last = propagate(features, labels, how)
    torch.testing.assert_close(last, carry_over(features[3], features[:1], labels[None], how))


def test_all_that_are_as_similar_as_the_kth_vote_whatever_their_order() -> None:
    features = torch.eye(4)[:3].expand(6, 3, 4).reshape(6, 1, 3, 4)  # six frames alike, so six equals for each patch
    labels = random_labels("equals", 6, 1, 3, 2)
    carried = carry_over(features[0], features, labels, Propagation(radius=0, top_k=2))
    torch.testing.assert_close(carried, labels.mean(dim=0))
    torch.testing.assert_close(
        carried, carry_over(features[0], features, labels.flip(0), Propagation(queue=0, radius=0, top_k=2))
    )


def test_labels_move_with_the_features_and_not_further_than_the_radius() -> None:
    still = unit_features("moving", 10, 12, 16)
    labels = random_labels("moving", 10, 12, 3)
    how = Propagation(queue=1, radius=2, top_k=1)
    frames = [still.roll(2 * step, dims=1) for step in range(3)]
    *_, last = propagate(frames, labels, how)
    torch.testing.assert_close(last[:, 4:], labels[:, :-4])  # what came in from the left was not seen before
    fast, *_ = propagate([still, still.roll(3, dims=1)], labels, how)
    assert not torch.isclose(fast[:, 3:], labels[:, :-3]).all(dim=-1).any()


def test_a_grid_smaller_than_top_k_is_no_trouble() -> None:
    features, labels = unit_features("tiny", 2, 1, 2, 4), random_labels("tiny", 1, 2, 2)
    how = Propagation(top_k=50)
    (carried,) = propagate(features, labels, how)
    torch.testing.assert_close(carried, plain_propagate(list(features), labels, how)[0])


@pytest.mark.parametrize("wrong", [{"queue": -1}, {"radius": -1}, {"top_k": 0}, {"temperature": 0.0}])
def test_settings_without_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        Propagation(**wrong)


def test_a_mask_is_brought_to_the_grid_as_dino_does_and_void_is_background() -> None:
    mask = draw_videos(np.arange(1), size=(60, 107)).masks[0, 0]
    mask[:8] = VOID
    objects = tuple(np.unique(mask[8:])[1:].tolist())
    labels = to_grid(mask, objects, (15, 26))
    resized = np.array(Image.fromarray(mask).resize((26, 15), Image.Resampling.NEAREST))
    resized[resized == VOID] = 0
    np.testing.assert_array_equal(np.array([0, *objects])[labels.argmax(dim=-1)], resized)
    assert (labels.sum(dim=-1) == 1).all()


def test_a_mask_of_whole_patches_survives_the_way_there_and_back() -> None:
    coarse = np.kron(np.array([[0, 0, 3], [0, 7, 3], [0, 7, 7]], np.uint8), np.ones((4, 4), np.uint8))
    np.testing.assert_array_equal(to_mask(to_grid(coarse, (3, 7), (12, 12)), (3, 7), (12, 12)), coarse)


def test_masks_are_stretched_per_object_before_the_most_likely_wins() -> None:
    labels = random_labels("stretch", 6, 7, 4)
    labels[..., 2] *= 0.01  # a faint object, which only stretching lets win anywhere
    fine = F.interpolate(labels.permute(2, 0, 1)[None], size=(30, 40), mode="bilinear", align_corners=False)[0]
    for channel in range(len(fine)):
        fine[channel] -= fine[channel].min()
        fine[channel] /= fine[channel].max()
    expected = np.array([0, 5, 6, 9])[fine.argmax(dim=0)]
    np.testing.assert_array_equal(to_mask(labels, (5, 6, 9), (30, 40)), expected)
    assert (expected == 6).any()


def test_an_object_that_is_nowhere_leaves_the_others_alone() -> None:
    labels = torch.zeros(4, 4, 3)
    labels[..., 0] = 1
    assert not to_mask(labels, (1, 2), (16, 16)).any()


@pytest.mark.parametrize(
    ("size", "shorter", "patch", "expected"),
    [
        ((480, 854), 480, (8, 8), (480, 856)),
        ((480, 854), 240, (16, 16), (240, 432)),
        ((854, 480), 480, (14, 14), (854, 476)),
        ((20, 90), 3, (16, 16), (16, 16)),
    ],
)
def test_frames_keep_their_aspect_in_whole_patches(
    size: tuple[int, int], shorter: int, patch: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert encoded_size(size, shorter, patch) == expected


def test_the_palette_is_that_of_pascal_voc(tmp_path: Path) -> None:
    known = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0), 3: (128, 128, 0), 4: (0, 0, 128), 8: (64, 0, 0)}
    assert {number: tuple(PALETTE[number].tolist()) for number in known} == known
    assert tuple(PALETTE[255].tolist()) == (224, 224, 192)
    mask = np.arange(256, dtype=np.uint8).reshape(16, 16)
    write_mask(mask, tmp_path / "mask.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.png"), mask)
    with Image.open(tmp_path / "mask.png") as image:
        assert image.mode == "P"
        np.testing.assert_array_equal(np.array(image.convert("RGB")), PALETTE[mask])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two little videos as a DAVIS tree."""
    root = tmp_path / "DAVIS"
    videos = draw_videos(np.arange(len(NAMES)), frames=FRAMES, size=(SIZE, SIZE + 16))
    for name, images, masks in zip(NAMES, videos.images, videos.masks, strict=True):
        for folder in ("JPEGImages", "Annotations"):
            (root / folder / "480p" / name).mkdir(parents=True)
        for number, (image, mask) in enumerate(zip(images, masks, strict=True)):
            Image.fromarray(image).save(root / "JPEGImages" / "480p" / name / f"{number:05d}.jpg", quality=95)
            write_mask(mask, root / "Annotations" / "480p" / name / f"{number:05d}.png")
    (root / "ImageSets" / "2017").mkdir(parents=True)
    (root / "ImageSets" / "2017" / "val.txt").write_text("\n".join(NAMES) + "\n")
    return root


def evaluate(data: Path | str, out: Path, encoder: ImageEncoder | None = None, **options: Any) -> Result:
    options = {"height": SIZE, "overlays": "none", **options}
    return evaluate_davis(encoder or PatchColors(), data=data, out=out, accelerator="cpu", **options)


def scored(masks: Path, data: Path | str, out: Path) -> Result:
    return evaluate_davis(data=data, score_only=masks, out=out, accelerator="cpu")


def test_a_tree_becomes_masks_scores_and_films(tree: Path, tmp_path: Path) -> None:
    result = evaluate(tree, tmp_path / "out", overlays="gif")
    assert result.protocol["fingerprint"] == PatchColors().fingerprint()
    for name in NAMES:
        masks = sorted((tmp_path / "out" / "masks" / name).iterdir())
        assert [mask.name for mask in masks] == [f"{number:05d}.png" for number in range(FRAMES)]
        first, last = (tree / "Annotations" / "480p" / name / f"{number:05d}.png" for number in (0, FRAMES - 1))
        np.testing.assert_array_equal(read_mask(masks[0]), read_mask(first))
        assert read_mask(masks[-1]).shape == read_mask(last).shape
        with Image.open(tmp_path / "out" / "overlays" / f"{name}.gif") as film:
            assert film.n_frames == FRAMES
            assert film.size == (SIZE + 16, SIZE)
    objects = (tmp_path / "out" / "scores.csv").read_text().splitlines()
    assert len(objects) == 1 + result.protocol["objects"]
    assert objects[0] == "object,J&F,J mean,J recall,J decay,F mean,F recall,F decay"
    again = scored(tmp_path / "out" / "masks", tree, tmp_path / "scored")
    assert again.numbers == result.numbers
    assert (tmp_path / "scored" / "result.json").is_file()


def test_masks_that_are_the_truth_score_100(tree: Path, tmp_path: Path) -> None:
    result = scored(tree / "Annotations" / "480p", tree, tmp_path / "out")
    assert result.numbers["J&F"] == 100
    assert result.numbers["J decay"] == 0


def test_an_object_that_moves_by_whole_patches_is_followed_without_a_fault() -> None:
    texture = normal(sample_keys(stream_key(0, "texture"), torch.arange(40)), 72 * 3).view(40, 72, 3)
    picture = (128 + 40 * texture).clamp(0, 255).byte().numpy()
    truth = np.zeros((40, 72), np.uint8)
    truth[12:24, 16:28], truth[24:32, 20:40] = 2, 5
    frames, masks = ([np.roll(start, 4 * step, axis=1) for step in range(5)] for start in (picture, truth))
    video = Video("moving", (40, 72), [f"{step:05d}" for step in range(5)], frames, masks, (2, 5))
    # What comes in from the left was not seen before; with this radius it is not taken for the objects.
    followed = list(followed_masks(PatchColors(), video, 40, Propagation(queue=2, radius=2, top_k=1)))
    np.testing.assert_array_equal(followed[0], truth)
    for mask, expected in zip(followed[1:], masks[1:], strict=True):
        np.testing.assert_array_equal(mask, to_mask(to_grid(expected, (2, 5), (10, 18)), (2, 5), (40, 72)))


def test_the_title_names_settings_other_than_the_defaults_and_the_encoder_once(tmp_path: Path) -> None:
    result = evaluate("scenes:1,size=48,frames=3", tmp_path / "out", radius=3)
    assert result.protocol["settings"] == f"radius 3, height {SIZE}"


def test_the_scenes_need_no_files(tmp_path: Path) -> None:
    result = evaluate("scenes:2,size=48,frames=4", tmp_path / "out")
    assert result.protocol["sequences"] == 2
    assert result.protocol["frames"] == 8
    again = scored(tmp_path / "out" / "masks", "scenes:2,size=48,frames=4", tmp_path / "scored")
    assert again.numbers == result.numbers
    with_parts = evaluate("scenes:2,size=48,frames=4,where=1", tmp_path / "parts")
    assert with_parts.data == "scenes:2,size=48,frames=4,where=1" and with_parts.numbers != result.numbers


def test_in_2016_all_objects_are_one(tree: Path, tmp_path: Path) -> None:
    (tree / "ImageSets" / "2016").symlink_to(tree / "ImageSets" / "2017")
    result = evaluate(tree, tmp_path / "out", year="2016")
    assert list(result.details["objects"]) == ["first_1", "second_1"]
    for path in (tree / "Annotations").rglob("*.png"):  # as in the tree of 2016 itself
        write_mask(np.where(read_mask(path) > 0, 255, 0).astype(np.uint8), path)
    assert evaluate(tree, tmp_path / "other", year="2016").numbers == result.numbers


def test_an_interrupted_evaluation_goes_on_where_it_was(tree: Path, tmp_path: Path) -> None:
    whole = evaluate(tree, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        evaluate(tree, tmp_path / "out", PatchColors(breaks_after=1 + FRAMES))  # one frame is shown to try it out
    assert [folder.name for folder in (tmp_path / "out" / "masks").iterdir()] == ["first"]
    encoder = PatchColors()
    assert evaluate(tree, tmp_path / "out", encoder).numbers == whole.numbers
    assert encoder.shown == 1 + FRAMES


def test_masks_of_other_settings_are_not_mixed_in(tree: Path, tmp_path: Path) -> None:
    evaluate(tree, tmp_path / "out")
    with pytest.raises(UserError, match=r"radius=12 \(now 3\)"):
        evaluate(tree, tmp_path / "out", radius=3)
    other = PatchColors()
    nn.init.ones_(other.project.weight)
    with pytest.raises(UserError, match="begun with fingerprint="):
        evaluate(tree, tmp_path / "out", other)
    with pytest.raises(UserError, match=r"settings\.json"):
        (tmp_path / "out" / "settings.json").unlink()
        evaluate(tree, tmp_path / "out")


def test_mp4_without_ffmpeg_is_refused_before_anything_is_done(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="overlays=gif"):
        evaluate(tree, tmp_path / "out", overlays="mp4")
    assert not (tmp_path / "out").exists()


def test_ffmpeg_is_given_every_frame(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "ffmpeg"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor last; do :; done\nexec /bin/cat > "$last"\n')  # copies what it is given
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    evaluate(tree, tmp_path / "out", overlays="mp4")
    film = (tmp_path / "out" / "overlays" / "first.mp4").read_bytes()
    assert len(film) == FRAMES * SIZE * (SIZE + 16) * 3
    program.write_text("#!/bin/sh\necho no such codec >&2\nexit 1\n")
    with pytest.raises(UserError, match="no such codec"):
        evaluate(tree, tmp_path / "other", overlays="mp4")
    assert not list((tmp_path / "other" / "overlays").iterdir())


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def _as_rgb(path: Path) -> None:
    with Image.open(path) as image:
        image.convert("RGB").save(path)


def _resized(path: Path) -> None:
    with Image.open(path) as image:
        image.resize((20, 10), Image.Resampling.NEAREST).save(path)


def _only(number: int) -> Callable[[Path], None]:
    return lambda path: write_mask(np.full((SIZE, SIZE + 16), number, np.uint8), path)


MASK, FRAME = "Annotations/480p/second/{}.png", "JPEGImages/480p/second/{}.jpg"


@pytest.mark.parametrize(
    ("what", "damage", "message"),
    [
        ("Annotations", shutil.rmtree, "lacks Annotations/480p"),
        ("JPEGImages", shutil.rmtree, "lacks JPEGImages/480p"),
        ("ImageSets/2017/val.txt", Path.unlink, r"val\.txt is missing"),
        ("ImageSets/2017/val.txt", lambda path: path.write_text("\n"), "lists no sequence"),
        ("JPEGImages/480p/second", shutil.rmtree, "1 of the 2 sequences.*second"),
        (MASK.format("00003"), Path.unlink, r"1 frames have no mask \(00003\)"),
        (FRAME.format("00003"), Path.unlink, r"1 masks have no frame \(00003\)"),
        (MASK.format("00003"), _resized, r"00003\.png has 10x20 pixels.*has 48x64"),
        (MASK.format("00003"), _as_rgb, r"00003\.png is an image of mode RGB, not an index mask"),
        (MASK.format("00003"), lambda path: path.write_text("no image"), r"00003\.png cannot be read"),
        (FRAME.format("00003"), lambda path: path.write_text("no image"), r"00003\.jpg"),
        (MASK.format("00000"), _truncate, r"00000\.png cannot be read"),
        (MASK.format("00000"), _only(0), "no object in the first mask of sequence second"),
        (MASK.format("00000"), _only(255), "year=2016"),
    ],
)
def test_a_faulty_tree_is_refused_before_any_frame_is_encoded(
    tree: Path, tmp_path: Path, what: str, damage: Callable[[Path], Any], message: str
) -> None:
    damage(tree / what)
    encoder = PatchColors()
    with pytest.raises(UserError, match=message):
        evaluate(tree, tmp_path / "out", encoder)
    assert encoder.shown == 0
    assert not (tmp_path / "out").exists()


def test_a_grayscale_picture_is_not_taken_for_a_hundred_objects(tree: Path, tmp_path: Path) -> None:
    picture = np.arange(SIZE * (SIZE + 16), dtype=np.uint32).reshape(SIZE, SIZE + 16) % 250
    Image.fromarray(picture.astype(np.uint8)).save(tree / MASK.format("00000"))
    with pytest.raises(UserError, match="249 different numbers"):
        evaluate(tree, tmp_path / "out")


def test_a_folder_above_the_tree_is_told_where_the_tree_is(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"There is one in {tree}"):
        evaluate(tree.parent, tmp_path / "out")
    with pytest.raises(UserError, match="There is no folder"):
        evaluate(tree / "nowhere", tmp_path / "out")
    with pytest.raises(UserError, match="Did you mean 'val'"):
        evaluate(tree, tmp_path / "out", split="vall")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("size=none", "whole number"),
        ("frames=2", "at least 3"),
        ("0", "at least 1"),
        ("frame=8", "'frames'"),
        ("where=2", "where is 2"),
    ],
)
def test_wrong_options_of_the_scenes_are_refused(options: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        evaluate(f"scenes:{options}", tmp_path / "out")


def test_an_encoder_that_cannot_take_color_frames_is_refused(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="3 channels"):
        evaluate(tree, tmp_path / "out", PatchColors(channels=1))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("what", "damage", "message"),
    [
        ("second", shutil.rmtree, "lacks 1 of 2 sequences: second"),
        ("second/00002.png", Path.unlink, r"lacks 1 of the 3 masks that are scored: 00002\.png"),
        ("second/00002.png", _resized, r"00002\.png has 10x20 pixels"),
        ("second/00002.png", _as_rgb, "mode RGB"),
        ("second/00002.png", _only(77), "names the object 77"),
    ],
)
def test_faulty_predictions_are_refused(
    tree: Path, tmp_path: Path, what: str, damage: Callable[[Path], Any], message: str
) -> None:
    masks = tmp_path / "masks"
    shutil.copytree(tree / "Annotations" / "480p", masks)
    damage(masks / what)
    with pytest.raises(UserError, match=message):
        scored(masks, tree, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_predictions_need_neither_the_first_nor_the_last_mask_nor_frames(tree: Path, tmp_path: Path) -> None:
    masks = tmp_path / "masks"
    shutil.copytree(tree / "Annotations" / "480p", masks)
    shutil.rmtree(tree / "JPEGImages")
    for name in NAMES:
        (masks / name / "00000.png").unlink()
        (masks / name / f"{FRAMES - 1:05d}.png").unlink()
    assert scored(masks, tree, tmp_path / "out").numbers["J&F"] == 100
