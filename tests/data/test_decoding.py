"""Images of every kind are decoded as PIL decodes them, upright, on white, at any scale."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from decoded_images import FORMATS, read
from pictures import encoded as encode
from pictures import smooth_picture as picture
from pictures import turned
from PIL import Image, ImageOps

from flexpredict.data.decoding import ImageFacts, image_facts, read_size, upright
from flexpredict.randomness import uniform

pytestmark = pytest.mark.usefixtures("any_warning_is_an_error")


TURNABLE = [format for format in FORMATS if format in ("JPEG", "PNG", "WEBP", "TIFF", "AVIF")]


def plainly(content: bytes) -> Image.Image:
    """What PIL makes of it by the book."""
    with Image.open(io.BytesIO(content)) as image:
        turned = ImageOps.exif_transpose(image)
        assert turned is not None
        return turned.convert("RGB")


def chunk(kind: bytes, content: bytes) -> bytes:
    """Of a PNG."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


@pytest.mark.parametrize("format", FORMATS)
def test_a_path_and_its_content_give_what_pil_gives(tmp_path: Path, format: str) -> None:
    content = encode(picture(), format)
    path = tmp_path / "misnamed.jpg"
    path.write_bytes(content)
    expected = np.asarray(plainly(content))
    for encoded in (content, str(path)):
        assert np.array_equal(read(encoded, (40, 60)), expected)
        assert np.array_equal(np.asarray(upright(encoded, "it")), expected)
        assert read_size(encoded, "it") == (40, 60)
        facts = image_facts(encoded, "it")
        assert (facts.format, facts.height, facts.width, facts.frames) == (format, 40, 60, 1)


def test_pixels_are_read_like_a_lossless_file_of_them() -> None:
    pixels = np.asarray(picture())  # not writable
    content = encode(picture())
    box = (3, 8, 33, 38)
    assert np.array_equal(read(pixels, (16, 20), box, True), read(content, (16, 20), box, True))
    assert np.array_equal(read(pixels[:, ::2], (40, 30)), pixels[:, ::2])
    assert read_size(pixels, "it") == (40, 60)
    assert image_facts(pixels, "it") == ImageFacts("array", "RGB", 40, 60, 1)
    assert np.array_equal(np.asarray(upright(pixels, "it", 20)), np.asarray(upright(content, "it", 20)))


@pytest.mark.parametrize("format", TURNABLE)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_is_turned_upright(orientation: int, format: str) -> None:
    content = encode(picture(), format, exif=turned(orientation))
    whole = plainly(content)
    assert read_size(content, "it") == (whole.height, whole.width)
    facts = image_facts(content, "it")
    assert (facts.height, facts.width) == (whole.height, whole.width)
    assert np.array_equal(np.asarray(upright(content, "it")), np.asarray(whole))
    box = (3, 8, 33, 38)
    expected = np.asarray(whole.crop(box).resize((20, 16), Image.Resampling.BILINEAR))
    assert np.abs(read(content, (16, 20), box) - expected).max() <= 1
    assert np.abs(read(content, (16, 20), box, mirror=True) - expected[:, ::-1]).max() <= 1


def test_an_orientation_behind_the_pixels_of_a_png_counts() -> None:
    plain = encode(picture())
    end = plain.index(b"IEND") - 4
    content = plain[:end] + chunk(b"eXIf", turned(6).tobytes().removeprefix(b"Exif\0\0")) + plain[end:]
    whole = plainly(content)
    assert whole.size == (40, 60)
    assert read_size(content, "it") == (60, 40)
    assert np.array_equal(read(content, (60, 40)), np.asarray(whole))


@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\0\0MM\0*nonsense",
        b"Exif\0\0",
        turned(6).tobytes()[:-7],  # cut off
        turned(9).tobytes(),  # no such orientation
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x05\0\x01\0\0\0\xff\xff\xff\xff\0\0\0\0",  # beyond the end
    ],
)
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_broken_exif_does_not_make_an_image_unreadable(format: str, exif: bytes) -> None:
    content = encode(picture(), format, exif=exif)
    assert np.array_equal(read(content, (40, 60)), np.asarray(plainly(encode(picture(), format))))
    assert read_size(content, "it") == (40, 60)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_broken_color_profile_does_not_make_an_image_unreadable(format: str) -> None:
    content = encode(picture(), format, icc_profile=b"no profile at all")
    assert np.array_equal(read(content, (40, 60)), np.asarray(plainly(encode(picture(), format))))


@pytest.mark.parametrize(
    ("mode", "format"),
    [
        ("1", "PNG"),
        ("1", "TIFF"),
        ("L", "PNG"),
        ("L", "JPEG"),
        ("P", "PNG"),
        ("P", "BMP"),
        ("CMYK", "JPEG"),
        ("CMYK", "TIFF"),
        ("YCbCr", "TIFF"),
    ],
)
def test_color_modes_come_out_as_pil_converts_them(mode: str, format: str) -> None:
    content = encode(picture().convert(mode), format)
    assert np.array_equal(read(content, (40, 60)), np.asarray(plainly(content)))
    assert np.array_equal(np.asarray(upright(content, "it")), np.asarray(plainly(content)))
    assert image_facts(content, "it").mode == mode


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L"])
def test_transparency_is_laid_on_white(mode: str) -> None:
    image = Image.new("RGBA", (16, 16), (0, 0, 0, 255))
    image.paste((90, 90, 90, 0), (0, 0, 8, 16))
    options = {"RGB": {"transparency": (90, 90, 90)}, "L": {"transparency": 90}}.get(mode, {})
    content = encode(image.convert(mode), **options)
    for result in (read(content, (16, 16)), np.asarray(upright(content, "it"))):
        assert (result[:, :8] == 255).all() and (result[:, 8:] == 0).all()


def test_a_palette_with_degrees_of_transparency_is_laid_on_white() -> None:
    image = Image.new("P", (16, 16))
    image.putpalette([0, 0, 0, 200, 0, 0])
    image.paste(1, (0, 0, 8, 16))
    result = read(encode(image, transparency=bytes([255, 128])), (16, 16))
    assert (result[:, 8:] == 0).all()
    assert np.abs(result[:, :8] - np.array([227, 127, 127])).max() <= 1


def test_transparent_edges_do_not_take_on_the_hidden_color() -> None:
    image = Image.new("RGBA", (64, 64), (0, 0, 0, 0))
    image.paste((255, 255, 255, 255), (0, 0, 31, 64))
    assert (read(encode(image), (16, 16)) == 255).all()


@pytest.mark.parametrize("format", ["PNG", "TIFF", "PPM"])
def test_sixteen_bit_grayscale_is_scaled_from_its_full_range(format: str) -> None:
    ramp = np.linspace(0, 65535, 256).reshape(16, 16).astype(np.uint16)
    result = read(encode(Image.fromarray(ramp), format), (16, 16))
    assert np.array_equal(result, np.repeat(np.round(ramp / 257)[..., None], 3, axis=2))


def test_sixteen_bit_color_keeps_its_upper_bits() -> None:
    pixels = uniform(torch.tensor(5), 8 * 8 * 3).mul(65536).int().numpy().reshape(8, 8, 3)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0))
    content = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    assert np.array_equal(read(content, (8, 8)), pixels >> 8)


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "TIFF", "MPO"])
def test_the_first_frame_of_an_animation_is_taken(format: str) -> None:
    first, *others = (Image.new("RGB", (8, 8), color) for color in ("red", "blue", "lime"))
    content = encode(first, format, save_all=True, append_images=others)
    assert np.abs(read(content, (8, 8)) - (255, 0, 0)).max() <= 2
    assert image_facts(content, "it").frames == 3


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_large_jpegs_decoded_at_reduced_scale_look_the_same(mode: str, orientation: int) -> None:
    content = encode(picture(603, 802).convert(mode), "JPEG", quality=95, exif=turned(orientation))
    full = plainly(content)
    for box in ((100, 52, 524, 592), (101, 53, 525, 591), (0, 0, *full.size)):
        theirs = np.asarray(full.crop(box).resize((40, 52), Image.Resampling.BILINEAR))
        difference = np.abs(read(content, (52, 40), box) - theirs)
        assert difference.max() <= 4 and difference.mean() < 0.7


def test_a_reduced_jpeg_is_not_shifted_even_by_a_fraction_of_a_pixel() -> None:
    """On a ramp of one level a pixel, a box that is moved by one pixel must come out one level brighter."""
    ramp = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8), (256, 1)))
    content = encode(ramp, "JPEG", quality=100)
    means = [read(content, (16, 16), (left, 0, left + 128, 128)).mean() for left in range(17)]
    assert np.abs(np.diff(means) - 1).max() < 0.2


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_shrunk_image_is_the_whole_image_resized(format: str, orientation: int) -> None:
    content = encode(picture(603, 802), format, quality=95, exif=turned(orientation))
    result = upright(content, "it", 60)
    assert result.size == ((80, 60) if orientation == 1 else (60, 80))
    expected = plainly(content).resize(result.size, Image.Resampling.BICUBIC)
    difference = np.abs(np.asarray(result).astype(int) - np.asarray(expected))
    assert difference.mean() < 0.7 and difference.max() <= 4


def test_an_upright_image_is_never_enlarged_and_carries_nothing_but_pixels() -> None:
    content = encode(picture(), "JPEG", exif=turned(3), icc_profile=b"profile", comment=b"private")
    result = upright(content, "it", 500)
    assert result.size == (60, 40) and result.mode == "RGB" and not result.info
    assert np.array_equal(np.asarray(result), np.asarray(plainly(content)))
    assert len(result.getexif()) == 0
