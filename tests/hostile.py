"""Files that a folder of pictures from the web may hold and should not: broken, foreign, oversized, oddly named.

`python tests/hostile.py FOLDER` writes them all, for a look or for another program. Tests call

- `write_corpus(folder)`: single files and links, one folder a kind;
- `write_shards(folder)`: tar shards, of which `path` names members as `shard.tar/member`;
- `write_parquet(folder)`: tables, of which `path` names rows as `file.parquet, row 2` or `file.parquet, rows 4 to 7`;
- `write_damaged(folder)`: pictures with random bytes in them, of which nobody knows what they have become.

Each but the last returns what should become of every file, member or row. All are the same whenever they are
written; pictures that PIL compressed differ between versions of its libraries, but not in what becomes of them.
"""

import base64
import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from flexpredict.randomness import sample_keys, stream_key, uniform

READABLE = ""
FOREIGN = r"not an image"
TOO_LARGE = r"pixels|too (large|big|many|long)|exceeds"
BROKEN = r"broken|cut (off|short)|truncated|cannot be decoded"


@dataclass(frozen=True)
class Hostile:
    """One file (or member, or row), and what should become of it."""

    path: str  # below the folder; as `os.fsdecode` gives it, for not every name is UTF-8
    kind: str
    reason: str  # regular expression, whatever the case, that is found in why it cannot be read; READABLE if it can

    @property
    def readable(self) -> bool:
        return not self.reason


def write_corpus(folder: Path) -> list[Hostile]:
    """More than 400 files of more than 60 kinds, 5 MB, in `folder`, which is made."""
    written = []
    for kind, (files, reason) in _KINDS.items():
        for name, content in files().items():
            path = folder / kind / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            written.append(Hostile(f"{kind}/{name}", kind, reason))
    return [*written, *_write_special_files(folder), *_write_locked_files(folder)]


def write_damaged(folder: Path, count: int = 320) -> list[str]:
    """Pictures of which one to eight bytes are random: readable or not, they must do no harm. Returns their names."""
    folder.mkdir(parents=True)
    wholes = [(suffix, _saved(format)) for format, suffix in _WHOLE]
    names = []
    for index in range(count):
        suffix, content = wholes[index % len(wholes)]
        places = uniform(torch.tensor([stream_key(0, "damage", index)]), 8)[0]
        for place, byte in zip(places[: 1 + index % 8], _noise(f"damage {index}", 8), strict=False):
            content = _patched(content, int(place * len(content)), put=bytes([byte]))
        names.append(f"{index}{suffix}")
        (folder / names[-1]).write_bytes(content)
    return names


# What everything is built from.

Files = dict[str, bytes]  # name -> content


def _noise(what: str, count: int) -> bytes:
    return uniform(torch.tensor([stream_key(0, what)]), count).mul(256).byte().numpy().tobytes()


def _picture(width: int = 48, height: int = 32, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """A new one each time, for PIL leaves the options of saving on an image."""
    coarse = uniform(sample_keys(stream_key(seed, "hostile picture"), torch.arange(4)), 12).view(4, 4, 3)
    image = Image.fromarray(coarse.mul(256).byte().numpy()).resize((width, height), Image.Resampling.BICUBIC)
    return image.convert(mode)


def _saved(format: str, image: Image.Image | None = None, **options: Any) -> bytes:
    stream = io.BytesIO()
    (image or _picture()).save(stream, format, **options)
    return stream.getvalue()


def _cuts(content: bytes, suffix: str, *fractions: float) -> Files:
    """What is left always begins with the whole signature of its format."""
    lengths = [max(16, int(len(content) * fraction)) for fraction in fractions]
    return {f"first {length} bytes{suffix}": content[:length] for length in lengths}


def _patched(content: bytes, offset: int, *, put: bytes) -> bytes:
    return content[:offset] + put + content[offset + len(put) :]


# JPEG: segments of a marker, a length (which counts itself) and a payload.


def _segment(marker: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


def _jpeg_with(*segments: bytes, **options: Any) -> bytes:
    jpeg = _saved("JPEG", **options)
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def _jpeg_frame(jpeg: bytes) -> int:
    """Where the frame header is: FF C0 or C2, length, precision, height, width."""
    return max(jpeg.find(b"\xff\xc0\x00"), jpeg.find(b"\xff\xc2\x00"))


def _jpeg_without(marker: int) -> bytes:
    """Segments of one kind taken out. They end with the start of the first scan, DA."""
    jpeg = _saved("JPEG")
    kept, at = jpeg[:2], 2
    while jpeg[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
        kept += jpeg[at:end] if jpeg[at + 1] != marker else b""
        at = end
    return kept + jpeg[at:]


def jpeg_cut_short() -> Files:
    return _cuts(_saved("JPEG"), ".jpg", 0.01, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)


def progressive_jpeg_cut_short() -> Files:
    return _cuts(_saved("JPEG", progressive=True), ".jpg", 0.1, 0.3, 0.5, 0.7, 0.9, 0.97)


def jpeg_entropy_damaged() -> Files:
    """Random bits where the coefficients are, but no marker: a decoder shows what it gets, like every browser."""
    jpeg = _saved("JPEG", quality=95)
    start = jpeg.find(b"\xff\xda") + 14
    files = {}
    for index in range(16):
        noise = bytes(byte % 255 for byte in _noise(f"entropy {index}", 8 + 4 * index))
        files[f"{len(noise)} bytes.jpg"] = _patched(jpeg, start + 9 * index, put=noise)
    return files


def jpeg_of_unsupported_coding() -> Files:
    jpeg = _saved("JPEG")
    frame = _jpeg_frame(jpeg)
    files = {f"SOF {marker:02X}.jpg": _patched(jpeg, frame + 1, put=bytes([marker])) for marker in (0xC5, 0xC6, 0xC7)}
    files |= {f"SOF {marker:02X}.jpg": _patched(jpeg, frame + 1, put=bytes([marker])) for marker in (0xCD, 0xCF)}
    return files | {f"{bits} bits.jpg": _patched(jpeg, frame + 4, put=bytes([bits])) for bits in (0, 1, 7, 200)}


def jpeg_without_tables() -> Files:
    return {"no quantisation.jpg": _jpeg_without(0xDB), "no frame.jpg": _jpeg_without(0xC0)}


def jpeg_with_foolish_segments() -> Files:
    jpeg = _saved("JPEG")
    files = {f"table of length {n}.jpg": jpeg[:2] + b"\xff\xdb" + bytes([0, n]) + jpeg[2:] for n in (0, 1)}
    files["length beyond the file.jpg"] = jpeg[:2] + b"\xff\xe2\xff\xff" + jpeg[2:]
    files["profile of no part.jpg"] = _jpeg_with(_segment(0xE2, b"ICC_PROFILE\0"))
    return files


def jpeg_with_segments_of_no_length() -> Files:
    """Even a length counts itself, so none can be below two; but here nothing needed is lost."""
    jpeg = _saved("JPEG")
    return {f"length {n}.jpg": jpeg[:2] + b"\xff\xe2" + bytes([0, n]) + jpeg[2:] for n in (0, 1)}


def jpeg_of_many_scans() -> Files:
    """Twenty thousand progressive scans that say, in 40 bytes each, that nothing changes in 16 million pixels."""
    side, scans = 4096, 20_000
    code = bytes([1] + [0] * 15)  # one Huffman code, of one bit
    blocks = (side // 8) ** 2
    runs = bytes(blocks // 16384 * 15 // 8 + 1)  # 0 is the code of "no more in the next 16384 blocks"
    head = [b"\xff\xd8", _segment(0xDB, bytes([0] + [1] * 64))]
    head += [_segment(0xC2, struct.pack(">BHHB3B", 8, side, side, 1, 1, 0x11, 0))]
    head += [_segment(0xC4, b"\x00" + code + b"\x00"), _segment(0xC4, b"\x10" + code + b"\xe0")]
    head += [_segment(0xDA, bytes([1, 1, 0, 0, 0, 0])), bytes(blocks // 8)]
    scan = _segment(0xDA, bytes([1, 1, 0, 1, 63, 0])) + runs
    return {"20000.jpg": b"".join(head) + scan * scans + b"\xff\xd9"}


def cmyk_of_every_marking() -> Files:
    cmyk = _saved("JPEG", _picture(mode="CMYK"))
    at = cmyk.find(b"\xff\xee")
    files = {"Adobe.jpg": cmyk, "unmarked.jpg": cmyk[:at] + cmyk[at + 16 :]}
    files |= {f"transform {n}.jpg": _patched(cmyk, at + 15, put=bytes([n])) for n in (1, 2, 3)}
    return files | {"CMYK.tif": _saved("TIFF", _picture(mode="CMYK"))}


# EXIF and colour profiles, which are not needed, and must not cost the picture.


def _exif(*entries: tuple[int, int, int, bytes], next_ifd: int = 0) -> bytes:
    """Tag, type, count and four bytes of value (or of its offset) each."""
    packed = b"".join(struct.pack("<HHI", *entry[:3]) + entry[3] for entry in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + packed + struct.pack("<I", next_ifd)


def _bad_exifs() -> dict[str, bytes]:
    def orientation(value: int) -> bytes:
        return _exif((0x0112, 3, 1, struct.pack("<I", value)))

    far = struct.pack("<I", 2**32 - 8)
    return {
        **{f"orientation {value}": orientation(value) for value in (0, 9, 255, 65535)},
        "orientation a string": _exif((0x0112, 2, 4, b"six\0")),
        "orientation a fraction": _exif((0x0112, 5, 1, far)),
        "orientation many": _exif((0x0112, 3, 2**31, struct.pack("<I", 8))),
        "garbage": b"II*\0" + _noise("exif", 200),
        "no header": _noise("exif header", 200),
        "empty": b"",
        "first table far away": b"II*\0" + far,
        "table of tables is itself": _exif((0x8769, 4, 1, struct.pack("<I", 8)), next_ifd=8),
        "65535 entries": b"II*\0" + struct.pack("<IH", 8, 65535) + bytes(40),
    }


def bad_exif() -> Files:
    files = {}
    for name, exif in _bad_exifs().items():
        files[f"{name}.jpg"] = _jpeg_with(_segment(0xE1, b"Exif\0\0" + exif))
        files[f"{name}.png"] = _png(_header(48, 32), _chunk(b"eXIf", exif), *_PIXELS)
    return files | {"garbage.webp": _saved("WEBP", exif=b"Exif\0\0" + _noise("exif in webp", 99))}


def bad_colour_profile() -> Files:
    noise = _noise("icc", 3000)
    return {
        "noise.jpg": _saved("JPEG", icc_profile=noise),
        "second part only.jpg": _jpeg_with(_segment(0xE2, b"ICC_PROFILE\0\x02\x02" + noise)),
        "part 9 of 3.jpg": _jpeg_with(_segment(0xE2, b"ICC_PROFILE\0\x09\x03" + noise)),
        "noise.png": _saved("PNG", icc_profile=noise),
        "not compressed.png": _png(_header(48, 32), _chunk(b"iCCP", b"name\0\0" + noise), *_PIXELS),
        "cut short.png": _png(_header(48, 32), _chunk(b"iCCP", b"name\0\0" + zlib.compress(noise)[:50]), *_PIXELS),
        "noise.webp": _saved("WEBP", icc_profile=noise),
        "noise.tif": _saved("TIFF", icc_profile=noise),
    }


# PNG: a signature, then chunks of a length, a kind, a content and a checksum.


def _chunk(kind: bytes, content: bytes, wrong: int = 0) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + content) ^ wrong)
    return struct.pack(">I", len(content)) + kind + content + checksum


def _header(width: int, height: int, depth: int = 8, colour: int = 2, interlace: int = 0, wrong: int = 0) -> bytes:
    return _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace), wrong)


def _png(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


_ROWS = b"".join(b"\0" + _picture().tobytes()[row * 144 : row * 144 + 144] for row in range(32))
_END = _chunk(b"IEND", b"")
_PIXELS = (_chunk(b"IDAT", zlib.compress(_ROWS)), _END)


def png_cut_short() -> Files:
    return _cuts(_saved("PNG"), ".png", 0.01, 0.02, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9)


def interlaced_png_cut_short() -> Files:
    # PIL writes none. Ones and zeros are valid as pixels and as filters of rows, wherever those are in the stream.
    stream = zlib.compress(bytes(byte & 1 for byte in _noise("interlaced", 5000)))
    whole = _png(_header(48, 32, interlace=1), _chunk(b"IDAT", stream), _END)
    return _cuts(whole, ".png", 0.1, 0.3, 0.5, 0.7, 0.9)


def png_with_bad_header_checksum() -> Files:
    return {f"off by {wrong}.png": _png(_header(48, 32, wrong=wrong), *_PIXELS) for wrong in (1, 255, 2**31)}


def png_with_bad_data_checksum() -> Files:
    """The zlib stream inside is whole."""
    files = {
        f"off by {wrong}.png": _png(_header(48, 32), _chunk(b"IDAT", zlib.compress(_ROWS), wrong), _END)
        for wrong in (1, 2**31)
    }
    return files | {"of the end.png": _png(_header(48, 32), _PIXELS[0], _chunk(b"IEND", b"", wrong=7))}


def png_without_end() -> Files:
    pixels = _png(_header(48, 32), _PIXELS[0])
    return {
        "no IEND.png": pixels,
        "half an IEND.png": pixels + _END[:6],
        "other.png": pixels + _chunk(b"tEXt", b"a\0b"),
    }


def png_with_broken_stream() -> Files:
    stream = zlib.compress(_ROWS)
    files = {f"noise from {at}.png": _patched(stream, at, put=_noise(f"zlib {at}", 64)) for at in (0, 2, 200, 500)}
    files |= {"empty.png": b"", "too few rows.png": zlib.compress(_ROWS[:1000])}
    return {name: _png(_header(48, 32), _chunk(b"IDAT", data), _END) for name, data in files.items()}


def png_with_foolish_chunks() -> Files:
    header, (data, end) = _header(48, 32), _PIXELS
    return {
        "no header.png": _png(data, end),
        "no data.png": _png(header, end),
        "length beyond the file.png": _png(header, struct.pack(">I", 2**31 - 1) + b"IDAT", _ROWS),
        "EXIF of four billion bytes.png": _png(header, data, struct.pack(">I", 2**32 - 1) + b"eXIf", end),
        "chunk named in noise.png": _png(header, _chunk(b"\x01\x02\x03\x04", b"?"), data, end),
        "header of 3 bytes.png": _png(_chunk(b"IHDR", b"abc"), data, end),
        "3 bits.png": _png(_header(48, 32, depth=3), data, end),
        "colour type 5.png": _png(_header(48, 32, colour=5), data, end),
        "unknown filter.png": _png(header, _chunk(b"IDAT", zlib.compress(b"\x09" + _ROWS[1:])), end),
    }


def png_with_harmless_oddities() -> Files:
    header, (data, end) = _header(48, 32), _PIXELS
    split = [_chunk(b"IDAT", bytes([byte])) for byte in zlib.compress(_ROWS)]
    grey = zlib.compress(bytes(49 * 32))
    return {
        "a byte a chunk.png": _png(header, *split, end),
        "ten thousand texts.png": _png(header, _chunk(b"tEXt", b"key\0text") * 10_000, data, end),
        "text that is not Latin.png": _png(header, _chunk(b"iTXt", b"\xff\xfe\0\0\0\0\0\xff\xff"), data, end),
        "palette missing.png": _png(_header(48, 32, colour=3), _chunk(b"IDAT", grey), end),
        "too many rows.png": _png(header, _chunk(b"IDAT", zlib.compress(_ROWS * 9)), end),
        "transparency too long.png": _png(header, _chunk(b"tRNS", bytes(600)), data, end),
        "gamma of zero.png": _png(header, _chunk(b"gAMA", bytes(4)), _chunk(b"pHYs", bytes(9)), data, end),
    }


def png_text_bomb() -> Files:
    """Captions that inflate to a hundred megabytes."""
    header, bomb = _header(48, 32), _zlib_of_zeros(100)
    return {
        "zTXt.png": _png(header, _chunk(b"zTXt", b"Comment\0\0" + bomb), *_PIXELS),
        "iTXt.png": _png(header, _chunk(b"iTXt", b"Comment\0\1\0\0\0" + bomb), *_PIXELS),
        "colour profile.png": _png(header, _chunk(b"iCCP", b"name\0\0" + bomb), *_PIXELS),
    }


def _zlib_of_zeros(megabytes: int) -> bytes:
    """A zlib stream that is quickly made, as one megabyte of it can be repeated after a full flush."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    megabyte = compressor.compress(bytes(2**20)) + compressor.flush(zlib.Z_FULL_FLUSH)
    # Adler-32 of n zeros: the first sum stays 1, and the second is n.
    checksum = struct.pack(">HH", megabytes * 2**20 % 65521, 1)
    return b"\x78\xda" + megabyte * megabytes + b"\x03\x00" + checksum


def decompression_bomb() -> Files:
    """Whole, valid pictures of a few hundred kilobytes, and of 400 million pixels and more."""
    frame = _saved("GIF", Image.new("L", (64, 64)))
    huge = _patched(_patched(frame, 6, put=b"\xff\xff\xff\xff"), frame.find(b",") + 5, put=b"\xff\xff\xff\xff")
    return {
        "grey.png": _png(_header(20_000, 20_000, colour=0), _chunk(b"IDAT", _zlib_of_zeros(382)), _END),
        "one bit.png": _png(_header(40_000, 40_000, 1, 0), _chunk(b"IDAT", _zlib_of_zeros(191)), _END),
        "looks like a photo.jpg": _png(_header(20_000, 20_000, 1, 0), _chunk(b"IDAT", _zlib_of_zeros(48)), _END),
        "huge.gif": huge,
    }


def bomb_within_limits() -> Files:
    """64 million pixels in 9 kB: readable, and few bytes a pixel, so that no more than those need be in memory."""
    return {"one bit.png": _png(_header(8_000, 8_000, 1, 0), _chunk(b"IDAT", _zlib_of_zeros(8)), _END)}


def giant_in_header() -> Files:
    """The header promises what the file does not hold."""
    jpeg = _saved("JPEG")
    progressive = _saved("JPEG", progressive=True)
    size = struct.pack(">HH", 65_500, 65_500)
    bmp = _saved("BMP")
    lossless = _saved("WEBP", lossless=True)
    return {
        "65500.jpg": _patched(jpeg, _jpeg_frame(jpeg) + 5, put=size),
        "65500 progressive.jpg": _patched(progressive, _jpeg_frame(progressive) + 5, put=size),
        "65500.png": _png(_header(65_500, 65_500), *_PIXELS),
        "two billion.png": _png(_header(2**31 - 1, 2**31 - 1), *_PIXELS),
        "65500.bmp": _patched(bmp, 18, put=struct.pack("<II", 65_500, 65_500)),
        "two billion.bmp": _patched(bmp, 18, put=struct.pack("<ii", 2**31 - 1, 2**31 - 1)),
        "65500.tif": _tiff({256: 65_500, 257: 65_500, 278: 65_500}),
        "four billion.tif": _tiff({256: 2**32 - 1, 257: 2**32 - 1}),
        "65500.ppm": b"P6 65500 65500 255\n" + bytes(100),
        "twenty digits.ppm": b"P6 99999999999999999999 99999999999999999999 255\n" + bytes(100),
        "extended.webp": _webp_of(b"VP8X", bytes(4) + (16_383).to_bytes(3, "little") * 2, lossless[12:]),
    }


def zero_in_header() -> Files:
    jpeg, bmp, gif = _saved("JPEG"), _saved("BMP"), _saved("GIF")
    frame = _jpeg_frame(jpeg)
    empty = _patched(_patched(gif, 6, put=bytes(4)), gif.find(b",\0\0\0\0") + 5, put=bytes(4))
    return {
        "width.jpg": _patched(jpeg, frame + 7, put=bytes(2)),
        "height.jpg": _patched(jpeg, frame + 5, put=bytes(2)),
        "width.png": _png(_header(0, 32), *_PIXELS),
        "height.png": _png(_header(48, 0), *_PIXELS),
        "width.bmp": _patched(bmp, 18, put=bytes(4)),
        "height.bmp": _patched(bmp, 22, put=bytes(4)),
        "both.gif": empty,
        "width.tif": _tiff({256: 0}),
        "height.tif": _tiff({257: 0}),
        "both.ppm": b"P6 0 0 255\n",
    }


# GIF, BMP, netpbm.


def gif_cut_short() -> Files:
    return _cuts(_saved("GIF"), ".gif", 0.003, 0.1, 0.4, 0.6, 0.8, 0.9)


def gif_with_bad_codes() -> Files:
    gif = _saved("GIF")
    start = gif.find(b",\0\0\0\0") + 10  # the size of a code, then blocks of up to 255 bytes
    files = {f"codes of {n} bits.gif": _patched(gif, start, put=bytes([n])) for n in (13, 200, 255)}
    # A code beyond the table, straight after it was cleared.
    return files | {"beyond the table.gif": _patched(gif, start + 2, put=b"\x00\xff\xff\xff\xff\xff\xff")}


def gif_far_off_the_screen() -> Files:
    gif = _saved("GIF")
    corner = gif.find(b",\0\0\0\0") + 1
    return {
        "far right.gif": _patched(gif, corner, put=struct.pack("<HH", 65_000, 65_000)),
        "wide and low.gif": _patched(gif, corner + 2, put=struct.pack("<HHH", 65_000, 65_000, 8)),
    }


def bmp_cut_short() -> Files:
    return _cuts(_saved("BMP"), ".bmp", 0.001, 0.003, 0.02, 0.3, 0.6, 0.99)


def bmp_with_foolish_header() -> Files:
    bmp = _saved("BMP")
    places = {
        "3 bits.bmp": (28, b"\x03\x00"),
        "0 bits.bmp": (28, b"\x00\x00"),
        "compression 99.bmp": (30, struct.pack("<I", 99)),
        "header of 7 bytes.bmp": (14, struct.pack("<I", 7)),
        "header of two billion.bmp": (14, struct.pack("<I", 2**31)),
        "pixels beyond the file.bmp": (10, struct.pack("<I", 2**31)),
    }
    return {name: _patched(bmp, offset, put=put) for name, (offset, put) in places.items()}


def bmp_upside_down() -> Files:
    """A negative height means that the top row comes first."""
    return {"top first.bmp": _patched(_saved("BMP"), 22, put=struct.pack("<i", -32))}


def netpbm_cut_short() -> Files:
    return _cuts(_saved("PPM"), ".ppm", 0.0005, 0.001, 0.3, 0.9)


def netpbm_with_foolish_header() -> Files:
    return {
        "no size.ppm": b"P6\n",
        "negative.ppm": b"P6 -4 -4 255\n" + bytes(48),
        "words.ppm": b"P6 four four 255\n" + bytes(48),
        "brightest is 0.ppm": b"P6 4 4 0\n" + bytes(48),
        "brightest is 70000.ppm": b"P6 4 4 70000\n" + bytes(96),
        "endless comment.ppm": b"P6 #" + b"a" * 100_000,
        "endless number.ppm": b"P6 " + b"1" * 100_000,
        "letters for pixels.ppm": b"P3 4 4 255\n" + b"red " * 48,
    }


# TIFF: a header, pixels, and a directory of tags. Grey and 8-bit, so that every value fits into its entry.


Tags = dict[int, int | tuple[int, int, int]]  # tag -> value, or type, count and value
_STRIP: Tags = {273: 8, 278: 32, 279: 32 * 32}


def _tiff(changes: Tags | None = None, next_ifd: int = 0, place: Tags = _STRIP) -> bytes:
    pixels = _picture(32, 32, "L").tobytes()
    tags: Tags = {256: 32, 257: 32, 258: 8, 259: 1, 262: 1, 277: 1, **place, **(changes or {})}
    directory = struct.pack("<H", len(tags))
    for tag, value in sorted(tags.items()):
        directory += struct.pack("<HHII", tag, *(value if isinstance(value, tuple) else (4, 1, value)))
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + directory + struct.pack("<I", next_ifd)


def tiff_cut_short() -> Files:
    files: Files = {}
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
        tiff = _saved("TIFF", compression=compression)
        files |= _cuts(tiff, f" {compression}.tif", 0.002, 0.4, 0.9)
    return files


def tiff_of_32_bits() -> Files:
    """Floats and large integers have no agreed range, so nothing says which is white."""
    return {
        "float.tif": _saved("TIFF", _picture(mode="F")),
        "float compressed.tif": _saved("TIFF", _picture(mode="F"), compression="tiff_adobe_deflate"),
        "integer.tif": _saved("TIFF", _picture(mode="L").convert("I").point(lambda value: value * 9_000)),
    }


def tiff_offsets_beyond_the_file() -> Files:
    tile: Tags = {322: 32, 323: 32, 324: 10**9, 325: 1024}
    return {
        "strip.tif": _tiff({273: 10**9}),
        "strip at the very end.tif": _tiff({273: 2**32 - 1}),
        "strips.tif": _tiff({273: (4, 4, 10**9), 278: 8}),
        "tile.tif": _tiff(place=tile),
        "compressed tile.tif": _tiff({259: 5}, place=tile),
        "compressed strip.tif": _tiff({273: 10**9, 259: 8}),
    }


def tiff_without_end() -> Files:
    """Chains of pages that come back to themselves. Only the first page is wanted."""
    first = 8 + 32 * 32
    return {
        "page follows itself.tif": _tiff(next_ifd=first),
        "next page beyond the file.tif": _tiff(next_ifd=2**32 - 1),
        "next page is the header.tif": _tiff(next_ifd=2),
        "details are the page.tif": _tiff({34665: first}),
        "subpages are the page.tif": _tiff({330: first}),
    }


def tiff_without_directory() -> Files:
    return {f"at {at}.tif": _patched(_tiff(), 4, put=struct.pack("<I", at)) for at in (0, 10**6, 2**32 - 1)}


def tiff_with_foolish_tags() -> Files:
    changes: dict[str, Tags] = {
        "0 bits": {258: 0},
        "255 bits": {258: 255},
        "65535 samples": {277: 65_535},
        "compression 9999": {259: 9999},
        "compressed by words": {259: (2, 4, 0x00415A4C)},
        "a billion strips": {273: (4, 10**9, 8)},
        "width of no type": {256: (99, 1, 32)},
        "noise as LZW": {259: 5},
        "noise as deflate": {259: 8},
        "noise as JPEG": {259: 7},
    }
    return {f"{name}.tif": _tiff(change) for name, change in changes.items()}


def tiff_fax_damaged() -> Files:
    """As with JPEG, a line that cannot be decoded is left as it is."""
    return {"noise.tif": _tiff({259: 4, 258: 1})}


# WebP, AVIF, JPEG 2000.


def _webp_of(kind: bytes, content: bytes, rest: bytes = b"") -> bytes:
    body = b"WEBP" + kind + struct.pack("<I", len(content)) + content + rest
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_cut_short() -> Files:
    files = _cuts(_saved("WEBP"), " lossy.webp", 0.05, 0.1, 0.4, 0.6, 0.8, 0.95)
    return files | _cuts(_saved("WEBP", lossless=True), " lossless.webp", 0.005, 0.1, 0.4, 0.6, 0.8, 0.95)


def webp_of_wrong_length() -> Files:
    webp = _saved("WEBP")
    return {
        "file too long.webp": _patched(webp, 4, put=struct.pack("<I", 10**6)),
        "file too short.webp": _patched(webp, 4, put=struct.pack("<I", 20)),
        "file of nothing.webp": _patched(webp, 4, put=bytes(4)),
        "chunk too long.webp": _patched(webp, 16, put=struct.pack("<I", 10**6)),
        "chunk of four billion.webp": _patched(webp, 16, put=struct.pack("<I", 2**32 - 1)),
        "chunk of nothing.webp": _patched(webp, 16, put=bytes(4)),
    }


def avif_cut_short() -> Files:
    return _cuts(_saved("AVIF"), ".avif", 0.02, 0.05, 0.2, 0.4, 0.6, 0.9)


def jpeg2000_cut_short() -> Files:
    return _cuts(_saved("JPEG2000"), ".jp2", 0.003, 0.01, 0.02, 0.04, 0.06)


# Not pictures at all.


def empty_file() -> Files:
    return {f"nothing{suffix}": b"" for suffix in _SUFFIXES}


def one_byte() -> Files:
    return {f"byte {byte:02X}.jpg": bytes([byte]) for byte in (0x00, 0x0A, 0x42, 0x47, 0x49, 0x50, 0x89, 0xFF)}


def text() -> Files:
    words = "You have reached your download limit. Please try again later.\n"
    return {
        "words.jpg": words.encode(),
        "words.png": ("\ufeff" + words).encode(),
        "words.webp": words.encode("utf-16"),
        "table.jpg": b"id,url,caption\n1,http://example.org/1.jpg,a cat\n" * 99,
        "pointer.png": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n",
        "json.jpg": b'{"error": {"code": 403, "message": "Forbidden"}}',
        "base64.png": base64.b64encode(_saved("PNG")),
        "zeros.jpg": bytes(10_000),
    }


def web_page() -> Files:
    page = b"<!DOCTYPE html><html><head><title>404 Not Found</title></head><body>nginx</body></html>"
    xml = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'
    return {"404.png": page, "404.jpg": b"\n\n" + page, "404.gif": gzip.compress(page, mtime=0), "s3.webp": xml}


def svg() -> Files:
    drawing = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><image href="file:///etc/passwd"/></svg>'
    laughs = b'<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>' + drawing
    return {"drawing.png": drawing, "entities.png": laughs, "xml.jpg": b'<?xml version="1.0"?>' + drawing}


def postscript() -> Files:
    """Programs, which must not be run: PIL hands them to Ghostscript, if it is let."""
    box = b"%%BoundingBox: 0 0 9 9\n%%EndComments\n"
    program = b"(/tmp/hostile-was-here) (w) file closefile showpage\n"
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n" + box + program
    binary = b"\xc5\xd0\xd3\xc6" + struct.pack("<IIIIIIH", 30, len(eps), 0, 0, 0, 0, 0xFFFF) + eps
    return {"program.jpg": eps, "plain.png": b"%!PS\n" + box + program, "binary.jpg": binary, "page.tif": eps}


def archive_or_program() -> Files:
    archive, tar = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr(zipfile.ZipInfo("inside.jpg"), _saved("JPEG"))
    with tarfile.open(fileobj=tar, mode="w") as packed:
        member, content, _ = _member("inside.jpg", _saved("JPEG"))
        packed.addfile(member, io.BytesIO(content))
    return {
        "zip.jpg": archive.getvalue(),
        "tar.jpg": tar.getvalue(),
        "gzip.jpg": gzip.compress(_saved("JPEG"), mtime=0),
        "bzip2.jpg": bz2.compress(_saved("JPEG")),
        "xz.jpg": lzma.compress(_saved("JPEG")),
        "program.jpg": b"\x7fELF\x02\x01\x01" + bytes(9) + _noise("program", 4000),
        "program.png": b"MZ\x90\0" + _noise("other program", 4000),
        "script.png": b"#!/bin/sh\ntouch /tmp/hostile-was-here\n",
        "pickle.jpg": pickle.dumps({"a": 1}),
        "document.jpg": b"%PDF-1.4\n1 0 obj <<>> endobj\ntrailer <<>>\n%%EOF",
        "film.jpg": b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + _noise("film", 2000),
        "sound.webp": b"RIFF\x24\x08\0\0WAVEfmt " + _noise("sound", 2000),
        "database.jpg": b"SQLite format 3\0" + bytes(84),
        "array.jpg": b"\x93NUMPY\x01\x00v\0{'descr': '|u1', 'fortran_order': False, 'shape': (4,)}\n1234",
    }


def picture_of_a_rare_kind() -> Files:
    """Formats that PIL knows, but that no folder of photographs is likely to mean."""
    psd = b"8BPS" + struct.pack(">H6xHIIHH", 1, 3, 4, 4, 8, 3) + bytes(14) + bytes(48)
    files = {"Photoshop.jpg": psd, "icon.png": _saved("ICO"), "cursor.jpg": b"\0\0\2\0" + _saved("ICO")[4:]}
    return files | {f"{rare}.jpg": _saved(rare) for rare in ("TGA", "PCX", "SGI", "DDS")}


def noise() -> Files:
    return {f"{count} bytes.jpg": _noise(f"noise {count}", count) for count in (2, 3, 10, 100, 1000, 10_000, 100_000)}


def signature_then_noise() -> Files:
    signatures = {
        ".jpg": b"\xff\xd8\xff",
        ".png": b"\x89PNG\r\n\x1a\n",
        ".gif": b"GIF89a",
        ".bmp": b"BM",
        ".tif": b"II*\0",
        " big.tif": b"MM\0*",
        ".webp": b"RIFF\xff\0\0\0WEBPVP8 ",
        ".avif": b"\0\0\0\x20ftypavif",
        ".jp2": b"\0\0\0\x0cjP  \r\n\x87\n",
        ".ppm": b"P6",
        " BigTIFF.tif": b"II+\0\x08\0\0\0",
    }
    return {f"noise{suffix}": start + _noise(f"behind {suffix}", 3000) for suffix, start in signatures.items()}


def junk_before_the_picture() -> Files:
    return {
        "newline.jpg": b"\n" + _saved("JPEG"),
        "mail.png": b"Content-Type: image/png\r\n\r\n" + _saved("PNG"),
        "byte order mark.gif": b"\xef\xbb\xbf" + _saved("GIF"),
        "text mode.png": _saved("PNG").replace(b"\r\n", b"\n"),
        "as unicode.jpg": _saved("JPEG").decode("latin-1").encode(),
    }


# Pictures, however they look.


def junk_after_the_picture() -> Files:
    formats = (
        ("JPEG", ".jpg"),
        ("PNG", ".png"),
        ("GIF", ".gif"),
        ("WEBP", ".webp"),
        ("BMP", ".bmp"),
        ("PPM", ".ppm"),
    )
    return {f"junk{suffix}": _saved(format) + _noise("junk", 10_000) for format, suffix in formats}


def wrong_extension() -> Files:
    return {
        "PNG.jpg": _saved("PNG"),
        "JPEG.png": _saved("JPEG"),
        "GIF.jpeg": _saved("GIF"),
        "WebP.jpg": _saved("WEBP"),
        "AVIF.jpg": _saved("AVIF"),
        "BMP.jpg": _saved("BMP"),
        "TIFF.png": _saved("TIFF"),
        "JPEG.webp": _saved("JPEG"),
        "JPEG 2000.jpg": _saved("JPEG2000"),
        "PPM.tif": _saved("PPM"),
        "JPEG.JPG": _saved("JPEG"),
    }


def many_frames() -> Files:
    frames = [_picture(16, 16, seed=index % 7) for index in range(150)]
    first, rest = frames[0], frames[1:]
    return {
        "150.gif": _saved("GIF", first, save_all=True, append_images=rest),
        "150.webp": _saved("WEBP", first, save_all=True, append_images=rest),
        "150.png": _saved("PNG", first, save_all=True, append_images=rest),
        "150.tif": _saved("TIFF", first, save_all=True, append_images=rest),
        "3.jpg": _saved("MPO", first, save_all=True, append_images=rest[:2]),
    }


def single_pixel() -> Files:
    return {f"pixel{suffix}": _saved(format, _picture(1, 1)) for format, suffix in _WHOLE}


def thin_as_a_line() -> Files:
    files = {f"wide{suffix}": _saved(format, _picture(4000, 1)) for format, suffix in _WHOLE}
    return files | {f"tall{suffix}": _saved(format, _picture(1, 4000)) for format, suffix in _WHOLE}


def unusual_pixels() -> Files:
    sixteen = Image.frombytes("I;16", (16, 16), _noise("sixteen bits", 512))
    return {
        "one bit.png": _saved("PNG", _picture(mode="1")),
        "16 bits.png": _saved("PNG", sixteen),
        "16 bits.tif": _saved("TIFF", sixteen),
        "grey with alpha.png": _saved("PNG", _picture(mode="LA")),
        "palette.png": _saved("PNG", _picture(mode="P"), transparency=3),
        "Lab.tif": _saved("TIFF", _picture().convert("YCbCr"), compression="raw"),
        "alpha.webp": _saved("WEBP", _picture(mode="RGBA")),
        "one bit.tif": _saved("TIFF", _picture(mode="1"), compression="group4"),
    }


_WHOLE = (
    ("JPEG", ".jpg"),
    ("PNG", ".png"),
    ("WEBP", ".webp"),
    ("GIF", ".gif"),
    ("BMP", ".bmp"),
    ("TIFF", ".tif"),
    ("PPM", ".ppm"),
    ("AVIF", ".avif"),
)
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".jp2", ".ppm")


def odd_name() -> Files:
    """All the same, whole picture. Among the names are two that look alike, and some that are not UTF-8."""
    names = [
        "new\nline.png", "tab\tstop.png", "carriage\rreturn.png", "bell\x07.png", "colour\x1b[31mred\x1b[0m.png",
        "'single'.png", '"double".png', "`date`.png", "$(date).png", "$HOME.png", "~.png", "a;b&c|d.png",
        "back\\slash.png", "-rf.png", "--help.png", " leading space.png", "trailing space .png", "two..dots.png",
        "*.png", "?.png", "[a-z].png", "{a,b}.png", "%s%n%d.png", "100%.png", "%2e%2e%2f.png", "[red]rich[/red].png",
        "{0.__class__}.png", "#fragment?query=1.png", "http:%2F%2Fx.png", "=1+1.png", "<b>&amp;.png", "NUL.png",
        "\U0001f98a.png", "\U0001f468\u200d\U0001f469.png", "\u202egpj.png", "שלום.png", "日本語.png",
        "e\u0301.png", "\u00e9.png", "zero\u200bwidth.png", "line\u2028separator.png", "next\u0085line.png",
        "UPPER.PNG", "n" * 246 + ".png", "/".join(["deep"] * 40) + "/down.png",
        os.fsdecode(b"latin-\xe9.png"), os.fsdecode(b"\xff\xfe\xfd.png"), os.fsdecode(b"half \xe2\x82.png"),
    ]  # fmt: skip
    return dict.fromkeys(names, _saved("PNG"))


_KINDS: dict[str, tuple[Callable[[], Files], str]] = {
    files.__name__: (files, reason)
    for files, reason in (
        (jpeg_cut_short, BROKEN),
        (progressive_jpeg_cut_short, BROKEN),
        (jpeg_entropy_damaged, READABLE),
        (jpeg_of_unsupported_coding, BROKEN),
        (jpeg_without_tables, BROKEN),
        (jpeg_with_foolish_segments, BROKEN),
        (jpeg_with_segments_of_no_length, READABLE),
        (cmyk_of_every_marking, READABLE),
        (bad_exif, READABLE),
        (bad_colour_profile, READABLE),
        (png_cut_short, BROKEN),
        (interlaced_png_cut_short, BROKEN),
        (png_with_bad_header_checksum, BROKEN),
        (png_with_bad_data_checksum, READABLE),
        (png_without_end, READABLE),
        (png_with_broken_stream, BROKEN),
        (png_with_foolish_chunks, BROKEN),
        (png_with_harmless_oddities, READABLE),
        (png_text_bomb, TOO_LARGE),
        (decompression_bomb, TOO_LARGE),
        (bomb_within_limits, READABLE),
        (giant_in_header, TOO_LARGE),
        (zero_in_header, BROKEN),
        (gif_cut_short, BROKEN),
        (gif_with_bad_codes, BROKEN),
        (gif_far_off_the_screen, TOO_LARGE),
        (bmp_cut_short, BROKEN),
        (bmp_with_foolish_header, BROKEN),
        (bmp_upside_down, READABLE),
        (netpbm_cut_short, BROKEN),
        (netpbm_with_foolish_header, BROKEN),
        (tiff_cut_short, BROKEN),
        (tiff_of_32_bits, r"16 bits"),
        (tiff_offsets_beyond_the_file, BROKEN),
        (tiff_without_end, READABLE),
        (tiff_without_directory, BROKEN),
        (tiff_with_foolish_tags, BROKEN),
        (tiff_fax_damaged, READABLE),
        (webp_cut_short, BROKEN),
        (webp_of_wrong_length, BROKEN),
        (avif_cut_short, BROKEN),
        (jpeg2000_cut_short, BROKEN),
        (empty_file, "empty"),
        (one_byte, FOREIGN),
        (text, FOREIGN),
        (web_page, FOREIGN),
        (svg, FOREIGN),
        (postscript, FOREIGN),
        (archive_or_program, FOREIGN),
        (picture_of_a_rare_kind, FOREIGN),
        (noise, FOREIGN),
        (signature_then_noise, rf"{BROKEN}|{TOO_LARGE}"),
        (junk_before_the_picture, FOREIGN),
        (junk_after_the_picture, READABLE),
        (wrong_extension, READABLE),
        (many_frames, READABLE),
        (single_pixel, READABLE),
        (thin_as_a_line, READABLE),
        (unusual_pixels, READABLE),
        (odd_name, READABLE),
        # Last, for it is the one that may take minutes, and what comes before is then known already.
        (jpeg_of_many_scans, r"scans"),
    )
}


def _write_special_files(folder: Path) -> list[Hostile]:
    """Links, pipes, sockets, devices and a folder that are named like pictures.

    All but that folder are to be listed, each once, so that a person is told of them.
    """
    place = folder / "special_file"
    (place / "folder.jpg").mkdir(parents=True)
    (place / "folder.jpg" / "inside.png").write_bytes(_saved("PNG"))
    links = {
        "dangling.jpg": "nowhere.jpg",
        "itself.jpg": "itself.jpg",
        "to there.jpg": "and back.jpg",
        "and back.jpg": "to there.jpg",
        "zeros without end.jpg": "/dev/zero",
        "nothing.jpg": "/dev/null",
        # Folders that lead back up: whoever lists them finds nothing new there.
        "up": "..",
        "here": ".",
    }
    for name, target in links.items():
        (place / name).symlink_to(target)
    os.mkfifo(place / "pipe.jpg")
    os.mknod(place / "socket.jpg", stat.S_IFSOCK | 0o600)
    loop, irregular = r"symbolic link", r"not a regular file|directory"
    reasons = {
        "dangling.jpg": r"no such file",
        **dict.fromkeys(("itself.jpg", "to there.jpg", "and back.jpg"), loop),
        **dict.fromkeys(("zeros without end.jpg", "nothing.jpg", "pipe.jpg", "socket.jpg"), irregular),
        "folder.jpg": irregular,
        "folder.jpg/inside.png": READABLE,
    }
    return [Hostile(f"special_file/{name}", "special_file", reason) for name, reason in reasons.items()]


def _write_locked_files(folder: Path) -> list[Hostile]:
    """A file and a folder without permission to read; root may all the same."""
    place = folder / "locked_file"
    (place / "folder").mkdir(parents=True)
    for name in ("locked.png", "folder/inside.png"):
        (place / name).write_bytes(_saved("PNG"))
    (place / "locked.png").chmod(0)
    (place / "folder").chmod(0)
    reason = READABLE if os.geteuid() == 0 else r"permission denied"
    return [Hostile(f"locked_file/{name}", "locked_file", reason) for name in ("locked.png", "folder/inside.png")]


# Shards.


def write_shards(folder: Path) -> list[Hostile]:
    """Tar files, good members between bad ones. Where a shard itself is at fault, `path` is the shard's.

    Nothing is said of `behind.jpg`, the member behind a broken header: a reader may find it again, or give up.
    """
    folder.mkdir(parents=True)
    written: list[Hostile] = []

    def write(shard: str, members: list[tuple[tarfile.TarInfo, bytes, str]], at_fault: str = READABLE) -> Path:
        with tarfile.open(folder / shard, "w", format=tarfile.GNU_FORMAT) as tar:
            for member, content, _ in members:
                tar.addfile(member, io.BytesIO(content))
        kind = shard.removesuffix(".tar").replace(" ", "_")
        written.extend(Hostile(f"{shard}/{m.name}", kind, reason) for m, _, reason in members if _is_picture(m))
        if at_fault:
            written.append(Hostile(shard, kind, at_fault))
        return folder / shard

    def good(*names: str) -> list[tuple[tarfile.TarInfo, bytes, str]]:
        return [_member(name, _saved("JPEG", _picture(seed=seed))) for seed, name in enumerate(names)]

    write("bad members.tar", [
        *good("first.jpg"), _member("first.cls", b"3"),
        _member("noise.jpg", _noise("member", 2000), FOREIGN), *good("second.jpg"),
        _member("nothing.jpg", b"", "empty"), *good("third.jpg"),
        _link("link.jpg", tarfile.SYMTYPE), _link("same.jpg", tarfile.LNKTYPE), _link("pipe.jpg", tarfile.FIFOTYPE),
        _member("page.png", b"<html>404</html>", FOREIGN), *good("last.jpg"),
    ])  # fmt: skip
    write("odd names.tar", good(*_ODD_MEMBERS))
    write("paths that lead outside.tar", good("/tmp/hostile-was-here.jpg", "../../outside.jpg", "a/../../b.jpg"))
    write("same key twice.tar", good("0001.jpg", "0001.jpg", "0002.jpg", "0002.png", "0001.jpg"))
    write("labels that are none.tar", [
        part
        for number, label in enumerate((b"cat", b"", b"-5", b"1.5", b"\xff", b"9" * 30, b"1000000000000", b"4"))
        for part in (*good(f"{number}.jpg"), _member(f"{number}.cls", label))
    ])  # fmt: skip

    size = 512 + 512 * -(-len(_saved("JPEG", _picture(seed=0))) // 512)  # of a header and the first member
    damage = r"header|checksum|damaged|broken|invalid|not a tar|cut short|size|too many"
    _cut(write("no end.tar", good("first.jpg")), size)
    path = write("last member cut short.tar", [*good("first.jpg"), _member("last.jpg", _saved("BMP"), BROKEN)])
    _cut(path, size + 512 + 700)
    _cut(write("last header cut short.tar", good("first.jpg"), damage), size, b"second.jpg" + bytes(90))
    _cut(write("noise at the end.tar", good("first.jpg"), damage), size, _noise("end of shard", 3000))
    # Where the checksum and the size of a member stand in its header.
    checksum, length = slice(148, 156), slice(124, 136)
    for shard, field, value in (
        ("wrong checksum.tar", checksum, b"000000\0 "),
        ("size in words.tar", length, b"very large!!"),
        ("size below zero.tar", length, b"\xff" * 12),
        ("size of four exabytes.tar", length, b"\x80" + bytes(3) + (2**62).to_bytes(8, "big")),
    ):
        whole = write(shard, good("first.jpg", "behind.jpg"), damage).read_bytes()
        written.remove(Hostile(f"{shard}/behind.jpg", written[-1].kind, READABLE))
        header = bytearray(_member("second.jpg", bytes(100))[0].tobuf(tarfile.GNU_FORMAT))
        header[field] = value
        if field is not checksum:
            header[checksum] = b" " * 8
            header[checksum] = b"%06o\0 " % sum(header)
        (folder / shard).write_bytes(whole[:size] + header + bytes(512) + whole[size:])
    for shard, content in {
        "text.tar": b"Not found.\n" * 99,
        "nothing.tar": b"",
        "gzip.tar": gzip.compress(bytes(10240), mtime=0),
        "noise.tar": _noise("shard", 5000),
    }.items():
        (folder / shard).write_bytes(content)
        written.append(Hostile(shard, shard.removesuffix(".tar"), rf"{damage}|empty|text|gzip|no members"))
    return written


_ODD_MEMBERS = (
    "new\nline.jpg", "\U0001f98a.jpg", "e\u0301.jpg", "\u202egpj.jpg", os.fsdecode(b"\xff\xfe.jpg"), "-rf.jpg",
    "n" * 240 + ".jpg", "/".join(["deep"] * 60) + "/down.jpg", "[red].jpg", "%s%n.jpg", "two.dots.jpg", "a b.JPG",
)  # fmt: skip


def _member(name: str, content: bytes, reason: str = READABLE) -> tuple[tarfile.TarInfo, bytes, str]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, content, reason


def _link(name: str, kind: bytes) -> tuple[tarfile.TarInfo, bytes, str]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "first.jpg"
    return member, b"", r"link|not a (regular )?file|empty"


def _is_picture(member: tarfile.TarInfo) -> bool:
    return not member.name.endswith(".cls")


def _cut(path: Path, length: int, then: bytes = b"") -> None:
    path.write_bytes(path.read_bytes()[:length] + then)


# Tables.


def write_parquet(folder: Path) -> list[Hostile]:
    """Tables as the Hugging Face hub keeps them: a column `image` of `bytes` and `path`, and a column `label`."""
    folder.mkdir(parents=True)
    good = {"bytes": _saved("JPEG"), "path": "good.jpg"}
    rows: list[tuple[dict[str, Any] | None, str]] = [
        (good, READABLE),
        (None, r"no image|null|empty|missing"),
        ({"bytes": _noise("row", 2000), "path": "noise.jpg"}, FOREIGN),
        ({"bytes": b"", "path": "empty.jpg"}, r"empty|no image|no such file"),
        ({"bytes": None, "path": "missing/nowhere.jpg"}, r"no such file|no image|missing"),
        ({"bytes": None, "path": None}, r"no image|null|empty|missing"),
        ({"bytes": _saved("JPEG")[:300], "path": None}, BROKEN),
        ({"bytes": _saved("PNG"), "path": None}, READABLE),
    ]
    _write_table(folder / "bad rows.parquet", [row for row, _ in rows])
    written = [Hostile(f"bad rows.parquet, row {n}", "bad_rows", reason) for n, (_, reason) in enumerate(rows)]

    # The pixels of the second of three row groups overwritten, the table of contents at the end left whole.
    path = folder / "overwritten.parquet"
    _write_table(path, [{"bytes": _saved("JPEG", _picture(seed=n)), "path": None} for n in range(12)])
    chunk = next(
        column
        for column in map(pq.ParquetFile(path).metadata.row_group(1).column, range(3))
        if column.path_in_schema == "image.bytes"
    )
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    path.write_bytes(_patched(path.read_bytes(), start, put=_noise("page", chunk.total_compressed_size)))
    unreadable = r"broken|damaged|corrupt|cannot|could ?n.t|invalid|unexpected|deserializ|row group"
    whole_rows = {f"row {number}": READABLE for number in (*range(4), *range(8, 12))}
    for place, reason in (whole_rows | {"rows 4 to 7": unreadable}).items():
        written.append(Hostile(f"overwritten.parquet, {place}", "overwritten", reason))

    whole = path.read_bytes()
    not_parquet = r"parquet|magic|footer|cannot|broken|damaged|empty"
    for name, content in {
        "cut short.parquet": whole[: len(whole) // 2],
        "footer only.parquet": b"PAR1" + whole[-8:],
        "text.parquet": b"Access denied.\n" * 9,
        "nothing.parquet": b"",
        "noise.parquet": b"PAR1" + _noise("parquet", 3000) + b"PAR1",
    }.items():
        (folder / name).write_bytes(content)
        written.append(Hostile(name, name.removesuffix(".parquet").replace(" ", "_"), not_parquet))
    return written


def _write_table(path: Path, images: list[dict[str, Any] | None]) -> None:
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    schema = pa.schema([("image", image), ("label", pa.int64())], metadata=about)
    labels = [number % 2 for number in range(len(images))]
    pq.write_table(pa.table([pa.array(images, image), pa.array(labels)], schema=schema), path, row_group_size=4)


def main() -> None:
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        sys.exit("usage: python tests/hostile.py FOLDER, a folder that is not there yet")
    folder = Path(sys.argv[1])
    for name, write in (("files", write_corpus), ("shards", write_shards), ("parquet", write_parquet)):
        written = write(folder / name)
        kinds = len({hostile.kind for hostile in written})
        expected = [vars(hostile) | {"readable": hostile.readable} for hostile in written]
        (folder / f"{name}.json").write_text(json.dumps(expected, indent=1))
        print(f"{folder / name}: {len(written)} of {kinds} kinds; what should become of them is in {name}.json")


if __name__ == "__main__":
    main()
