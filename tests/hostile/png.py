"""PNGs that are damaged or foolish: a signature, then chunks of a length, a kind, a content and a checksum."""

import struct
import zlib

from hostile.pieces import BROKEN, READABLE, TOO_LARGE, Files, Kinds, cuts, patched, picture, random_bytes, saved


def chunk(kind: bytes, content: bytes, wrong: int = 0) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + content) ^ wrong)
    return struct.pack(">I", len(content)) + kind + content + checksum


def png_header(width: int, height: int, depth: int = 8, color: int = 2, interlace: int = 0, wrong: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace), wrong)


def png(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


_ROWS = b"".join(b"\0" + picture().tobytes()[row * 144 : row * 144 + 144] for row in range(32))
END = chunk(b"IEND", b"")
PIXELS = (chunk(b"IDAT", zlib.compress(_ROWS)), END)


def zlib_of_zeros(megabytes: int) -> bytes:
    """A zlib stream that is quickly made, as one megabyte of it can be repeated after a full flush."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    megabyte = compressor.compress(bytes(2**20)) + compressor.flush(zlib.Z_FULL_FLUSH)
    # Adler-32 of n zeros: the first sum stays 1, and the second is n.
    checksum = struct.pack(">HH", megabytes * 2**20 % 65521, 1)
    return b"\x78\xda" + megabyte * megabytes + b"\x03\x00" + checksum


def png_cut_short() -> Files:
    return cuts(saved("PNG"), ".png", 0.01, 0.02, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9)


def interlaced_png_cut_short() -> Files:
    # PIL writes none. Ones and zeros are valid as pixels and as filters of rows, wherever those are in the stream.
    stream = zlib.compress(bytes(byte & 1 for byte in random_bytes("interlaced", 5000)))
    whole = png(png_header(48, 32, interlace=1), chunk(b"IDAT", stream), END)
    return cuts(whole, ".png", 0.1, 0.3, 0.5, 0.7, 0.9)


def png_with_bad_header_checksum() -> Files:
    return {f"off by {wrong}.png": png(png_header(48, 32, wrong=wrong), *PIXELS) for wrong in (1, 255, 2**31)}


def png_with_bad_data_checksum() -> Files:
    """The zlib stream inside is whole."""
    files = {
        f"off by {wrong}.png": png(png_header(48, 32), chunk(b"IDAT", zlib.compress(_ROWS), wrong), END)
        for wrong in (1, 2**31)
    }
    return files | {"of the end.png": png(png_header(48, 32), PIXELS[0], chunk(b"IEND", b"", wrong=7))}


def png_without_end() -> Files:
    pixels = png(png_header(48, 32), PIXELS[0])
    return {
        "no IEND.png": pixels,
        "half an IEND.png": pixels + END[:6],
        "other.png": pixels + chunk(b"tEXt", b"a\0b"),
    }


def png_with_broken_stream() -> Files:
    stream = zlib.compress(_ROWS)
    files = {
        f"noise from {at}.png": patched(stream, at, put=random_bytes(f"zlib {at}", 64)) for at in (0, 2, 200, 500)
    }
    files |= {"empty.png": b"", "too few rows.png": zlib.compress(_ROWS[:1000])}
    return {name: png(png_header(48, 32), chunk(b"IDAT", data), END) for name, data in files.items()}


def png_with_foolish_chunks() -> Files:
    header, (data, end) = png_header(48, 32), PIXELS
    return {
        "no header.png": png(data, end),
        "no data.png": png(header, end),
        "length beyond the file.png": png(header, struct.pack(">I", 2**31 - 1) + b"IDAT", _ROWS),
        "EXIF of four billion bytes.png": png(header, data, struct.pack(">I", 2**32 - 1) + b"eXIf", end),
        "chunk named in noise.png": png(header, chunk(b"\x01\x02\x03\x04", b"?"), data, end),
        "header of 3 bytes.png": png(chunk(b"IHDR", b"abc"), data, end),
        "3 bits.png": png(png_header(48, 32, depth=3), data, end),
        "color type 5.png": png(png_header(48, 32, color=5), data, end),
        "unknown filter.png": png(header, chunk(b"IDAT", zlib.compress(b"\x09" + _ROWS[1:])), end),
    }


def png_with_harmless_oddities() -> Files:
    header, (data, end) = png_header(48, 32), PIXELS
    split = [chunk(b"IDAT", bytes([byte])) for byte in zlib.compress(_ROWS)]
    gray = zlib.compress(bytes(49 * 32))
    return {
        "a byte a chunk.png": png(header, *split, end),
        "ten thousand texts.png": png(header, chunk(b"tEXt", b"key\0text") * 10_000, data, end),
        "text that is not Latin.png": png(header, chunk(b"iTXt", b"\xff\xfe\0\0\0\0\0\xff\xff"), data, end),
        "palette missing.png": png(png_header(48, 32, color=3), chunk(b"IDAT", gray), end),
        "too many rows.png": png(header, chunk(b"IDAT", zlib.compress(_ROWS * 9)), end),
        "transparency too long.png": png(header, chunk(b"tRNS", bytes(600)), data, end),
        "gamma of zero.png": png(header, chunk(b"gAMA", bytes(4)), chunk(b"pHYs", bytes(9)), data, end),
    }


def png_text_bomb() -> Files:
    """Captions that inflate to a hundred megabytes."""
    header, bomb = png_header(48, 32), zlib_of_zeros(100)
    return {
        "zTXt.png": png(header, chunk(b"zTXt", b"Comment\0\0" + bomb), *PIXELS),
        "iTXt.png": png(header, chunk(b"iTXt", b"Comment\0\1\0\0\0" + bomb), *PIXELS),
        "color profile.png": png(header, chunk(b"iCCP", b"name\0\0" + bomb), *PIXELS),
    }


KINDS: Kinds = {
    png_cut_short: BROKEN,
    interlaced_png_cut_short: BROKEN,
    png_with_bad_header_checksum: BROKEN,
    png_with_bad_data_checksum: READABLE,
    png_without_end: READABLE,
    png_with_broken_stream: BROKEN,
    png_with_foolish_chunks: BROKEN,
    png_with_harmless_oddities: READABLE,
    png_text_bomb: TOO_LARGE,
}
