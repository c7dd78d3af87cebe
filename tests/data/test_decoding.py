"""Decoding images of every kind, and saying what is wrong with those that cannot be."""

import io
import os
import pickle
import struct
import sys
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import encoded as encode
from pictures import smooth_picture as picture
from pictures import turned
from PIL import Image, ImageOps, features
from ranks import warm_processes

from flexpredict.data.decoding import Encoded, ImageFacts, UnreadableImage, decode, image_facts, read_size, upright
from flexpredict.randomness import uniform

BUILT_IN = [format for format, name in (("AVIF", "avif"), ("JPEG2000", "jpg_2000")) if features.check(name)]
FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", *BUILT_IN]
TURNABLE = [format for format in FORMATS if format in ("JPEG", "PNG", "WEBP", "TIFF", "AVIF")]


@pytest.fixture(autouse=True)
def any_warning_is_an_error() -> Iterator[None]:
    """Whatever PIL has to say about an image, a person must not see; nor may a file stay open."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def plainly(content: bytes) -> Image.Image:
    """What PIL makes of it by the book."""
    with Image.open(io.BytesIO(content)) as image:
        turned = ImageOps.exif_transpose(image)
        assert turned is not None
        return turned.convert("RGB")


def read(
    encoded: Encoded,
    image_size: tuple[int, int],
    box: tuple[int, int, int, int] | None = None,
    mirror: bool = False,
) -> np.ndarray:
    """H W 3, integers of which differences can be taken."""
    pixels = decode(encoded, "it", image_size, lambda height, width: box or (0, 0, width, height), mirror)
    return pixels.permute(1, 2, 0).int().numpy()


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


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"", "the file is empty"),
        (b"hello, this is no image", "not an image"),
        (encode(picture(), "EPS"), "not an image"),  # PIL would run ghostscript
        (encode(picture(), "TGA"), "not an image"),
        (encode(picture())[:12], "header of this PNG is broken or cut off"),
        (encode(picture())[:20], "Truncated File Read"),
        (encode(picture(), "JPEG")[:3], "header of this JPEG is broken or cut off"),
        (encode(picture(), "JPEG")[:99], "Truncated File Read"),
        (encode(picture(), "TIFF")[:30], "header of this TIFF is broken or cut off"),
        (encode(picture(200, 200))[:1500], "image file is truncated"),
        (encode(picture(200, 200), "JPEG")[:1500], "image file is truncated"),
        (encode(picture(200, 200), "JPEG", progressive=True)[:1500], "image file is truncated"),
        (encode(picture(200, 200), "GIF")[:1500], "image file is truncated"),
        (encode(picture(200, 200), "WEBP")[:500], "cannot be decoded"),
        (encode(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"), "8 or 16 bits"),
        (np.zeros((4, 4), np.uint8), r"\(4, 4\) of uint8"),
        (np.zeros((4, 0, 3), np.uint8), r"\(4, 0, 3\)"),
        (np.zeros((4, 4, 3)), "of float64"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_read_is_named_with_the_reason(tmp_path: Path, encoded: Encoded, reason: str) -> None:
    path = tmp_path / "x.jpg"
    if isinstance(encoded, bytes):
        path.write_bytes(encoded)
    for form in (encoded, str(path)) if isinstance(encoded, bytes) else (encoded,):
        for function in (lambda form: read(form, (8, 8)), lambda form: upright(form, "it")):
            with pytest.raises(UnreadableImage, match=reason) as caught:
                function(form)
            assert caught.value.name == "it" and str(caught.value) == f"it: {caught.value.reason}"


def test_a_missing_or_forbidden_file_is_unreadable_and_the_reason_does_not_repeat_its_path(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "missing.jpg", "No such file or directory"), (tmp_path, "not a regular file")):
        with pytest.raises(UnreadableImage) as caught:
            read_size(str(path), "it")
        assert caught.value.reason == reason


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_pipes_and_devices_are_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.jpg")
    for path in (str(tmp_path / "x.jpg"), "/dev/zero"):
        for function in (lambda path: read(path, (8, 8)), lambda path: image_facts(path, "it")):
            with pytest.raises(UnreadableImage, match="not a regular file"):
                function(path)


def test_a_decompression_bomb_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encode(picture(64, 64))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    for function in (lambda: read(content, (8, 8)), lambda: read_size(content, "it")):
        with pytest.raises(UnreadableImage, match=r"4096 pixels.*decompression bomb"):
            function()


def test_an_image_that_pil_would_only_warn_of_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3000)
    assert read_size(encode(picture(64, 64)), "it") == (64, 64)


@pytest.mark.parametrize(
    "error", [RecursionError("too deep"), MemoryError(), SyntaxError("odd"), struct.error("odd")]
)
def test_any_failure_of_a_decoder_is_the_fault_of_the_image(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    content = encode(picture())
    monkeypatch.setattr(Image.Image, "crop", fail)
    with pytest.raises(UnreadableImage, match=str(error) or type(error).__name__):
        read(content, (8, 8))


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_images_are_read_or_unreadable_and_never_anything_else(format: str) -> None:
    content = np.frombuffer(encode(picture(), format), np.uint8)
    fates = set()
    for seed in range(60):
        numbers = uniform(torch.tensor(seed), 12).double().numpy()
        damaged = content.copy()
        reach = len(content) if seed % 2 else min(len(content), 200)
        damaged[(numbers[:6] * reach).astype(int)] = numbers[6:] * 256
        for function in (lambda form: read(form, (8, 8)), lambda form: image_facts(form, "it")):
            try:
                function(damaged.tobytes())
                fates.add("read")
            except UnreadableImage as failure:
                assert failure.reason
                fates.add("unreadable")
    assert fates == {"read", "unreadable"}


@pytest.mark.skipif(sys.platform != "linux", reason="open files are counted in /proc")
def test_no_file_stays_open(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.tif", tmp_path / "bad.jpg"
    good.write_bytes(encode(picture(), "TIFF"))
    bad.write_bytes(encode(picture(200, 200), "JPEG")[:1500])
    before = len(list(Path("/proc/self/fd").iterdir()))
    kept = [read(str(good), (8, 8)), upright(str(good), "it"), read_size(str(bad), "it")]
    for function in (lambda: read(str(bad), (8, 8)), lambda: upright(str(bad), "it")):
        with pytest.raises(UnreadableImage) as caught:
            function()
        kept.append(caught.value)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_threads_that_decode_tiffs_leave_the_terminal_alone(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=warm_processes()) as process:
        outcomes = process.submit(_decode_tiffs_in_threads, tmp_path / "printed").result()
    assert outcomes == {(3, 8, 8), None}
    assert (tmp_path / "printed").read_bytes() == b"alive"


def _decode_tiffs_in_threads(printed: Path) -> set[tuple[int, ...] | None]:
    os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT), 2)
    sys.setswitchinterval(1e-6)
    file = io.BytesIO()
    Image.new("RGB", (256, 256)).save(file, "TIFF", compression="tiff_lzw")
    whole = file.getvalue()
    damaged = whole[:20] + b"\xff" * 100 + whole[120:]  # libtiff would print a line for each

    def read(content: bytes) -> tuple[int, ...] | None:
        try:
            return tuple(decode(content, "it", (8, 8), lambda height, width: (0, 0, width, height)).shape)
        except UnreadableImage:
            return None

    with ThreadPoolExecutor(8) as pool:
        outcomes = set(pool.map(read, [whole, damaged] * 1000))
    os.write(2, b"alive")
    return outcomes


def test_the_failure_can_be_sent_to_another_process() -> None:
    sent = pickle.loads(pickle.dumps(UnreadableImage("x.png", "broken")))
    assert (sent.name, sent.reason, str(sent)) == ("x.png", "broken", "x.png: broken")
