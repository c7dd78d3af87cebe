"""Headers, of one format or another, that promise too much or hold what nobody needs."""

import struct
import zlib

from PIL import Image

from hostile.formats import webp_of
from hostile.jpeg import jpeg_frame, jpeg_with, segment
from hostile.pieces import BROKEN, READABLE, TOO_LARGE, Files, Kinds, patched, random_bytes, saved
from hostile.png import END, PIXELS, chunk, png, png_header, zlib_of_zeros
from hostile.tiff import tiff_of


def bad_exif() -> Files:
    files = {}
    for name, exif in _bad_exifs().items():
        files[f"{name}.jpg"] = jpeg_with(segment(0xE1, b"Exif\0\0" + exif))
        files[f"{name}.png"] = png(png_header(48, 32), chunk(b"eXIf", exif), *PIXELS)
    return files | {"garbage.webp": saved("WEBP", exif=b"Exif\0\0" + random_bytes("exif in webp", 99))}


def _bad_exifs() -> dict[str, bytes]:
    def orientation(value: int) -> bytes:
        return _exif((0x0112, 3, 1, struct.pack("<I", value)))

    far = struct.pack("<I", 2**32 - 8)
    return {
        **{f"orientation {value}": orientation(value) for value in (0, 9, 255, 65535)},
        "orientation a string": _exif((0x0112, 2, 4, b"six\0")),
        "orientation a fraction": _exif((0x0112, 5, 1, far)),
        "orientation many": _exif((0x0112, 3, 2**31, struct.pack("<I", 8))),
        "garbage": b"II*\0" + random_bytes("exif", 200),
        "no header": random_bytes("exif header", 200),
        "empty": b"",
        "first table far away": b"II*\0" + far,
        "table of tables is itself": _exif((0x8769, 4, 1, struct.pack("<I", 8)), next_ifd=8),
        "65535 entries": b"II*\0" + struct.pack("<IH", 8, 65535) + bytes(40),
    }


def _exif(*entries: tuple[int, int, int, bytes], next_ifd: int = 0) -> bytes:
    """Tag, type, count and four bytes of value (or of its offset) each."""
    packed = b"".join(struct.pack("<HHI", *entry[:3]) + entry[3] for entry in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + packed + struct.pack("<I", next_ifd)


def bad_color_profile() -> Files:
    noise = random_bytes("icc", 3000)
    return {
        "noise.jpg": saved("JPEG", icc_profile=noise),
        "second part only.jpg": jpeg_with(segment(0xE2, b"ICC_PROFILE\0\x02\x02" + noise)),
        "part 9 of 3.jpg": jpeg_with(segment(0xE2, b"ICC_PROFILE\0\x09\x03" + noise)),
        "noise.png": saved("PNG", icc_profile=noise),
        "not compressed.png": png(png_header(48, 32), chunk(b"iCCP", b"name\0\0" + noise), *PIXELS),
        "cut short.png": png(png_header(48, 32), chunk(b"iCCP", b"name\0\0" + zlib.compress(noise)[:50]), *PIXELS),
        "noise.webp": saved("WEBP", icc_profile=noise),
        "noise.tif": saved("TIFF", icc_profile=noise),
    }


def decompression_bomb() -> Files:
    """Whole, valid pictures of a few hundred kilobytes, and of 400 million pixels and more."""
    frame = saved("GIF", Image.new("L", (64, 64)))
    huge = patched(patched(frame, 6, put=b"\xff\xff\xff\xff"), frame.find(b",") + 5, put=b"\xff\xff\xff\xff")
    return {
        "gray.png": png(png_header(20_000, 20_000, color=0), chunk(b"IDAT", zlib_of_zeros(382)), END),
        "one bit.png": png(png_header(40_000, 40_000, 1, 0), chunk(b"IDAT", zlib_of_zeros(191)), END),
        "looks like a photo.jpg": png(png_header(20_000, 20_000, 1, 0), chunk(b"IDAT", zlib_of_zeros(48)), END),
        "huge.gif": huge,
    }


def bomb_within_limits() -> Files:
    """64 million pixels in 9 kB: readable, and few bytes a pixel, so that no more than those need be in memory."""
    return {"one bit.png": png(png_header(8_000, 8_000, 1, 0), chunk(b"IDAT", zlib_of_zeros(8)), END)}


def giant_in_header() -> Files:
    """The header promises what the file does not hold."""
    jpeg = saved("JPEG")
    progressive = saved("JPEG", progressive=True)
    size = struct.pack(">HH", 65_500, 65_500)
    bmp = saved("BMP")
    lossless = saved("WEBP", lossless=True)
    return {
        "65500.jpg": patched(jpeg, jpeg_frame(jpeg) + 5, put=size),
        "65500 progressive.jpg": patched(progressive, jpeg_frame(progressive) + 5, put=size),
        "65500.png": png(png_header(65_500, 65_500), *PIXELS),
        "two billion.png": png(png_header(2**31 - 1, 2**31 - 1), *PIXELS),
        "65500.bmp": patched(bmp, 18, put=struct.pack("<II", 65_500, 65_500)),
        "two billion.bmp": patched(bmp, 18, put=struct.pack("<ii", 2**31 - 1, 2**31 - 1)),
        "65500.tif": tiff_of({256: 65_500, 257: 65_500, 278: 65_500}),
        "four billion.tif": tiff_of({256: 2**32 - 1, 257: 2**32 - 1}),
        "65500.ppm": b"P6 65500 65500 255\n" + bytes(100),
        "twenty digits.ppm": b"P6 99999999999999999999 99999999999999999999 255\n" + bytes(100),
        "extended.webp": webp_of(b"VP8X", bytes(4) + (16_383).to_bytes(3, "little") * 2, lossless[12:]),
    }


def zero_in_header() -> Files:
    jpeg, bmp, gif = saved("JPEG"), saved("BMP"), saved("GIF")
    frame = jpeg_frame(jpeg)
    empty = patched(patched(gif, 6, put=bytes(4)), gif.find(b",\0\0\0\0") + 5, put=bytes(4))
    return {
        "width.jpg": patched(jpeg, frame + 7, put=bytes(2)),
        "height.jpg": patched(jpeg, frame + 5, put=bytes(2)),
        "width.png": png(png_header(0, 32), *PIXELS),
        "height.png": png(png_header(48, 0), *PIXELS),
        "width.bmp": patched(bmp, 18, put=bytes(4)),
        "height.bmp": patched(bmp, 22, put=bytes(4)),
        "both.gif": empty,
        "width.tif": tiff_of({256: 0}),
        "height.tif": tiff_of({257: 0}),
        "both.ppm": b"P6 0 0 255\n",
    }


KINDS: Kinds = {
    bad_exif: READABLE,
    bad_color_profile: READABLE,
    decompression_bomb: TOO_LARGE,
    bomb_within_limits: READABLE,
    giant_in_header: TOO_LARGE,
    zero_in_header: BROKEN,
}
