"""What cannot be decoded is named with its reason, and leaves no file open and no word on the terminal."""

import io
import os
import pickle
import struct
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from decoded_images import FORMATS, read
from pictures import encoded as encode
from pictures import smooth_picture as picture
from PIL import Image
from ranks import warm_processes

from flexpredict.data.decoding import Encoded, UnreadableImage, decode, image_facts, read_size, upright
from flexpredict.randomness import uniform

pytestmark = pytest.mark.usefixtures("any_warning_is_an_error")


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
