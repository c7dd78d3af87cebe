"""Whole pictures, however odd they look or are named."""

import os

from PIL import Image

from hostile.pieces import FORMATS, READABLE, Files, Kinds, picture, random_bytes, saved


def junk_after_the_picture() -> Files:
    junk = random_bytes("junk", 10_000)
    suffixes = (".jpg", ".png", ".gif", ".webp", ".bmp", ".ppm")
    return {f"junk{suffix}": saved(FORMATS[suffix]) + junk for suffix in suffixes}


def wrong_extension() -> Files:
    names = {
        "PNG": "jpg",
        "GIF": "jpeg",
        "WEBP": "jpg",
        "AVIF": "jpg",
        "BMP": "jpg",
        "TIFF": "png",
        "JPEG2000": "jpg",
    }
    files = {f"{format}.{suffix}": saved(format) for format, suffix in (names | {"PPM": "tif"}).items()}
    return files | {f"JPEG.{suffix}": saved("JPEG") for suffix in ("png", "webp", "JPG")}


def many_frames() -> Files:
    frames = [picture(16, 16, seed=seed) for seed in range(7)] * 20
    formats = {".gif": "GIF", ".webp": "WEBP", ".png": "PNG", ".tif": "TIFF"}
    many = {
        f"140{suffix}": saved(format, frames[0], save_all=True, append_images=frames[1:])
        for suffix, format in formats.items()
    }
    return many | {"3.jpg": saved("MPO", frames[0], save_all=True, append_images=frames[1:3])}


def single_pixel() -> Files:
    return {f"pixel{suffix}": saved(format, picture(1, 1)) for suffix, format in FORMATS.items()}


def thin_as_a_line() -> Files:
    files = {f"wide{suffix}": saved(format, picture(4000, 1)) for suffix, format in FORMATS.items()}
    return files | {f"tall{suffix}": saved(format, picture(1, 4000)) for suffix, format in FORMATS.items()}


def unusual_pixels() -> Files:
    sixteen = Image.frombytes("I;16", (16, 16), random_bytes("sixteen bits", 512))
    return {
        "one bit.png": saved("PNG", picture(mode="1")),
        "16 bits.png": saved("PNG", sixteen),
        "16 bits.tif": saved("TIFF", sixteen),
        "gray with alpha.png": saved("PNG", picture(mode="LA")),
        "palette.png": saved("PNG", picture(mode="P"), transparency=3),
        "Lab.tif": saved("TIFF", picture().convert("YCbCr"), compression="raw"),
        "alpha.webp": saved("WEBP", picture(mode="RGBA")),
        "one bit.tif": saved("TIFF", picture(mode="1"), compression="group4"),
    }


def odd_name() -> Files:
    """All the same, whole picture. Among the names are two that look alike, and some that are not UTF-8."""
    names = [
        "new\nline.png", "tab\tstop.png", "carriage\rreturn.png", "bell\x07.png", "color\x1b[31mred\x1b[0m.png",
        "'single'.png", '"double".png', "`date`.png", "$(date).png", "$HOME.png", "~.png", "a;b&c|d.png",
        "back\\slash.png", "-rf.png", "--help.png", " leading space.png", "trailing space .png", "two..dots.png",
        "*.png", "?.png", "[a-z].png", "{a,b}.png", "%s%n%d.png", "100%.png", "%2e%2e%2f.png", "[red]rich[/red].png",
        "{0.__class__}.png", "#fragment?query=1.png", "http:%2F%2Fx.png", "=1+1.png", "<b>&amp;.png", "NUL.png",
        "\U0001f98a.png", "\U0001f468\u200d\U0001f469.png", "\u202egpj.png", "שלום.png", "日本語.png",
        "e\u0301.png", "\u00e9.png", "zero\u200bwidth.png", "line\u2028separator.png", "next\u0085line.png",
        "UPPER.PNG", "n" * 246 + ".png", "/".join(["deep"] * 40) + "/down.png",
        os.fsdecode(b"latin-\xe9.png"), os.fsdecode(b"\xff\xfe\xfd.png"), os.fsdecode(b"half \xe2\x82.png"),
    ]  # fmt: skip
    return dict.fromkeys(names, saved("PNG"))


KINDS: Kinds = {
    junk_after_the_picture: READABLE,
    wrong_extension: READABLE,
    many_frames: READABLE,
    single_pixel: READABLE,
    thin_as_a_line: READABLE,
    unusual_pixels: READABLE,
    odd_name: READABLE,
}
