"""Opening folders and scenes, and reading files of every kind."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from flexpredict.data.augmentation import PRESETS, Augmentation, crop_arrays, draw_crops
from flexpredict.data.decoding import UnreadableImage, decode, read_size
from flexpredict.data.sources import ArraySource, FolderSource, open_images
from flexpredict.errors import UserError
from flexpredict.randomness import uniform


def picture(height: int = 40, width: int = 60, seed: int = 0) -> Image.Image:
    """Smooth, so that JPEG keeps it, and without any symmetry."""
    coarse = uniform(torch.tensor(seed), 5 * 7 * 3).mul(256).to(torch.uint8).view(5, 7, 3)
    return Image.fromarray(coarse.numpy()).resize((width, height), Image.Resampling.BICUBIC)


def save(path: Path, image: Image.Image | None = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (image or picture()).save(path, **options)
    return path


def read(
    path: Path, image_size: tuple[int, int], box: tuple[int, int, int, int] | None = None, mirror: bool = False
) -> np.ndarray:
    """H W 3, integers of which differences can be taken."""
    pixels = decode(str(path), image_size, lambda height, width: box or (0, 0, width, height), mirror)
    return pixels.permute(1, 2, 0).int().numpy()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def names(source: object) -> list[str]:
    assert isinstance(source, FolderSource)
    return [os.path.relpath(source.describe(index), source.name) for index in range(len(source))]


def test_a_nested_folder_is_listed_in_sorted_order_without_hidden_and_foreign_files(tmp_path: Path) -> None:
    for name in ("b/two.png", "b/one.JPG", "a/x/deep.png", "top.jpeg", ".hidden.png", ".git/no.png", "b/.no.png"):
        save(tmp_path / name)
    (tmp_path / "readme.txt").write_text("not an image")
    source = open_images(str(tmp_path))
    assert names(source) == ["top.jpeg", "a/x/deep.png", "b/one.JPG", "b/two.png"]
    assert source.labels is None and source.classes is None


def test_folders_directly_below_are_classes(tmp_path: Path) -> None:
    for name in ("zebra/1.png", "ant/1.png", "ant/2.png"):
        save(tmp_path / name)
    source = open_images(str(tmp_path))
    assert source.classes == ("ant", "zebra")
    assert source.labels is not None and source.labels.tolist() == [0, 0, 1]
    assert source.labels.dtype == torch.int64


@pytest.mark.parametrize("extra", ["top.png", "ant/deeper/1.png"])
def test_a_tree_of_any_other_shape_has_no_classes(tmp_path: Path, extra: str) -> None:
    for name in ("zebra/1.png", "ant/1.png", extra):
        save(tmp_path / name)
    assert open_images(str(tmp_path)).labels is None


def test_one_folder_alone_is_no_class(tmp_path: Path) -> None:
    save(tmp_path / "images/1.png")
    assert open_images(str(tmp_path)).labels is None


def test_linked_folders_are_followed_but_never_in_a_circle(tmp_path: Path) -> None:
    save(tmp_path / "elsewhere/far.png")
    save(tmp_path / "data/near.png")
    (tmp_path / "data/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data/up").symlink_to(tmp_path / "data")
    (tmp_path / "elsewhere/back").symlink_to(tmp_path / "data")
    (tmp_path / "data/broken.png").symlink_to(tmp_path / "nowhere.png")
    assert names(open_images(str(tmp_path / "data"))) == ["near.png", "linked/far.png"]


def test_names_that_are_not_utf8_can_be_read(tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff\xe4.png")
    try:
        picture().save(odd)
    except OSError:
        pytest.skip("this file system only takes UTF-8 names")
    source = open_images(str(tmp_path))
    assert source.describe(0) == odd
    assert not source.read(torch.tensor([0]), draw_crops(PRESETS["none"], torch.tensor([0])), (8, 8))[1]


def test_sizes_are_those_of_evenly_spaced_upright_images(tmp_path: Path) -> None:
    for index in range(10):
        save(tmp_path / f"{index}.png", picture(20 + index, 50))
    assert open_images(str(tmp_path)).sizes(4) == [(20, 50), (23, 50), (26, 50), (29, 50)]
    assert len(open_images(str(tmp_path)).sizes()) == 10


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: str(folder / "misssing"), r"no folder.*Did you mean 'missing_letter'"),
        (lambda folder: "", "no folder ''"),
        (lambda folder: str(folder / "missing_letter"), "no images in .*or below"),
        (lambda folder: str(folder / "texts"), r"no images in .*1 \.txt"),
        (lambda folder: str(folder / "texts/a.txt"), "is a file.*Give the folder"),
        (lambda folder: str(folder / "broken"), r"3 were tried and none could be read; for example .*0\.png: "),
        (lambda folder: "hf:cifar10", "'hf:' .*not a kind of data set"),
        (lambda folder: "scene:100", "Did you mean 'scenes'"),
        (lambda folder: "scenes:10,sise=64", "'sise=64'.*Did you mean 'size'"),
        (lambda folder: "scenes:many", "count in scenes:many is 'many'"),
        (lambda folder: "scenes:0", "whole number"),
    ],
)
def test_what_cannot_be_opened_says_why(tmp_path: Path, make: Callable[[Path], str], said: str) -> None:
    (tmp_path / "missing_letter").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("text")
    (tmp_path / "broken").mkdir()
    for index in range(3):
        (tmp_path / f"broken/{index}.png").write_bytes(b"not a picture")
    with pytest.raises(UserError, match=said):
        open_images(make(tmp_path))


def test_a_few_broken_files_do_not_keep_a_folder_from_being_opened(tmp_path: Path) -> None:
    for index in range(20):
        (tmp_path / f"{index:02}.png").write_bytes(b"not a picture")
    save(tmp_path / "99.png")
    source = open_images(str(tmp_path))
    assert len(source) == 21
    assert source.sizes() == [(40, 60)]


def test_scenes_are_the_same_images_each_time_with_labels_that_name_classes() -> None:
    source = open_images("scenes:12,size=32,seed=3,split=test")
    assert isinstance(source, ArraySource)
    assert source.images.shape == (12, 32, 32, 3) and source.sizes() == [(32, 32)] * 12
    assert source.labels is not None and source.labels.shape == (12,) and source.classes is not None
    assert int(source.labels.min()) >= 0 and int(source.labels.max()) < len(source.classes)
    again, other = (open_images(f"scenes:12,size=32,seed={seed},split=test") for seed in (3, 4))
    assert isinstance(again, ArraySource) and isinstance(other, ArraySource)
    assert torch.equal(source.images, again.images) and not torch.equal(source.images, other.images)


def test_files_and_arrays_give_the_same_crops(tmp_path: Path) -> None:
    images = [picture(50, 70, seed) for seed in range(6)]
    for index, image in enumerate(images):
        save(tmp_path / f"{index}.png", image)
    crops = draw_crops(Augmentation(flip=0.5), torch.arange(6) * 7919)
    files, unreadable = open_images(str(tmp_path)).read(torch.arange(6), crops, (24, 32))
    arrays = crop_arrays(torch.from_numpy(np.stack([np.asarray(image) for image in images])), crops, (24, 32))
    assert not unreadable
    assert (files.int() - arrays.int()).abs().max() <= 1


def test_a_source_can_be_sent_to_another_process(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/2.png"):
        save(tmp_path / name)
    folder = open_images(str(tmp_path))
    crops = draw_crops(PRESETS["ijepa"], torch.arange(2))
    for source in (folder, ArraySource("noise", torch.arange(96, dtype=torch.uint8).view(2, 4, 4, 3))):
        sent = pickle.loads(pickle.dumps(source))
        assert torch.equal(
            sent.read(torch.arange(2), crops, (8, 8))[0], source.read(torch.arange(2), crops, (8, 8))[0]
        )
        assert sent.classes == source.classes
    assert str(pickle.loads(pickle.dumps(UnreadableImage("x.png", "broken")))) == "x.png: broken"


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_is_turned_upright(tmp_path: Path, orientation: int, suffix: str) -> None:
    path = save(tmp_path / f"turned.{suffix}", picture(40, 60), exif=turned(orientation))
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    assert read_size(str(path)) == (upright.height, upright.width)
    box = (3, 8, 33, 38)
    expected = np.asarray(upright.crop(box).resize((20, 16), Image.Resampling.BILINEAR))
    assert np.abs(read(path, (16, 20), box) - expected).max() <= 1
    assert np.abs(read(path, (16, 20), box, mirror=True) - expected[:, ::-1]).max() <= 1


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_exif_does_not_make_an_image_unreadable(tmp_path: Path) -> None:
    path = save(tmp_path / "x.jpg", picture(16, 16), exif=b"Exif\0\0MM\0*nonsense")
    assert read(path, (16, 16)).shape == (16, 16, 3)


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "YCbCr"])
def test_colour_modes_come_out_as_pil_converts_them(tmp_path: Path, mode: str) -> None:
    image = picture(16, 16).convert(mode)
    path = save(tmp_path / ("x.png" if mode in "1LP" else "x.tif"), image)
    assert np.array_equal(read(path, (16, 16)), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB"])
def test_transparency_is_laid_on_white(tmp_path: Path, mode: str) -> None:
    image = Image.new("RGBA", (16, 16), (0, 0, 0, 255))
    image.paste((90, 90, 90, 0), (0, 0, 8, 16))
    options = {"transparency": (90, 90, 90)} if mode == "RGB" else {}
    result = read(save(tmp_path / "x.png", image.convert(mode), **options), (16, 16))
    assert (result[:, :8] == 255).all() and (result[:, 8:] == 0).all()


def test_transparent_edges_do_not_take_on_the_hidden_colour(tmp_path: Path) -> None:
    image = Image.new("RGBA", (64, 64), (0, 0, 0, 0))
    image.paste((255, 255, 255, 255), (0, 0, 31, 64))
    assert (read(save(tmp_path / "x.png", image), (16, 16)) == 255).all()


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bit_greyscale_is_scaled_from_its_full_range(tmp_path: Path, suffix: str) -> None:
    ramp = np.linspace(0, 65535, 256).reshape(16, 16).astype(np.uint16)
    result = read(save(tmp_path / f"x.{suffix}", Image.fromarray(ramp)), (16, 16))
    assert np.array_equal(result, np.repeat(np.round(ramp / 257)[..., None], 3, axis=2))


def test_the_first_frame_of_an_animation_is_taken(tmp_path: Path) -> None:
    first, second = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))
    path = save(tmp_path / "x.gif", first, save_all=True, append_images=[second])
    assert (read(path, (8, 8)) == (255, 0, 0)).all()


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_large_jpegs_decoded_at_reduced_scale_look_the_same(tmp_path: Path, mode: str, orientation: int) -> None:
    path = save(tmp_path / "x.jpg", picture(603, 802).convert(mode), quality=95, exif=turned(orientation))
    with Image.open(path) as image:
        full = ImageOps.exif_transpose(image).convert("RGB")
    box = (100, 52, 524, 592)
    theirs = np.asarray(full.crop(box).resize((40, 52), Image.Resampling.BILINEAR))
    difference = read(path, (52, 40), box) - theirs
    assert np.abs(difference).max() <= 6 and np.abs(difference).mean() < 1


def test_small_images_are_enlarged(tmp_path: Path) -> None:
    save(tmp_path / "x.png", Image.new("RGB", (1, 2), (10, 20, 30)))
    crops = draw_crops(PRESETS["ijepa"], torch.arange(1))
    images, unreadable = open_images(str(tmp_path)).read(torch.tensor([0]), crops, (32, 32))
    assert not unreadable and (images[0].permute(1, 2, 0) == torch.tensor([10, 20, 30])).all()


def _truncated(path: Path) -> None:
    save(path, picture(200, 200))
    path.write_bytes(path.read_bytes()[:1500])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_truncated, "image file is truncated"),
        (lambda path: path.write_bytes(b""), "not an image"),
        (lambda path: path.write_text("hello"), "not an image"),
        (lambda path: None, "No such file"),
        (lambda path: Image.fromarray(np.ones((4, 4), np.float32)).save(path, format="TIFF"), "8 or 16 bits"),
    ],
)
def test_an_unreadable_file_is_named_with_the_reason(
    tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "x.jpg"
    make(path)
    with pytest.raises(UnreadableImage, match=reason) as caught:
        read(path, (8, 8))
    assert caught.value.path == str(path)
    assert str(caught.value) == f"{path}: {caught.value.reason}" and str(path) not in caught.value.reason


def test_a_decompression_bomb_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "x.png", picture(64, 64))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(UnreadableImage, match="decompression bomb"):
        read(path, (8, 8))
