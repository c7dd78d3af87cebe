"""GIF, BMP, netpbm, WebP, AVIF and JPEG 2000 that are damaged or foolish."""

import struct

from hostile.pieces import BROKEN, READABLE, TOO_LARGE, Files, Kinds, cuts, patched, saved


def gif_cut_short() -> Files:
    return cuts(saved("GIF"), ".gif", 0.003, 0.1, 0.4, 0.6, 0.8, 0.9)


def gif_with_bad_codes() -> Files:
    gif = saved("GIF")
    start = gif.find(b",\0\0\0\0") + 10  # the size of a code, then blocks of up to 255 bytes
    files = {f"codes of {n} bits.gif": patched(gif, start, put=bytes([n])) for n in (13, 200, 255)}
    # A code beyond the table, straight after it was cleared.
    return files | {"beyond the table.gif": patched(gif, start + 2, put=b"\x00\xff\xff\xff\xff\xff\xff")}


def gif_far_off_the_screen() -> Files:
    gif = saved("GIF")
    corner = gif.find(b",\0\0\0\0") + 1
    return {
        "far right.gif": patched(gif, corner, put=struct.pack("<HH", 65_000, 65_000)),
        "wide and low.gif": patched(gif, corner + 2, put=struct.pack("<HHH", 65_000, 65_000, 8)),
    }


def bmp_cut_short() -> Files:
    return cuts(saved("BMP"), ".bmp", 0.001, 0.003, 0.02, 0.3, 0.6, 0.99)


def bmp_with_foolish_header() -> Files:
    bmp = saved("BMP")
    places = {
        "3 bits.bmp": (28, b"\x03\x00"),
        "0 bits.bmp": (28, b"\x00\x00"),
        "compression 99.bmp": (30, struct.pack("<I", 99)),
        "header of 7 bytes.bmp": (14, struct.pack("<I", 7)),
        "header of two billion.bmp": (14, struct.pack("<I", 2**31)),
        "pixels beyond the file.bmp": (10, struct.pack("<I", 2**31)),
    }
    return {name: patched(bmp, offset, put=put) for name, (offset, put) in places.items()}


def bmp_upside_down() -> Files:
    """A negative height means that the top row comes first."""
    return {"top first.bmp": patched(saved("BMP"), 22, put=struct.pack("<i", -32))}


def netpbm_cut_short() -> Files:
    return cuts(saved("PPM"), ".ppm", 0.0005, 0.001, 0.3, 0.9)


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


def webp_of(kind: bytes, content: bytes, rest: bytes = b"") -> bytes:
    body = b"WEBP" + kind + struct.pack("<I", len(content)) + content + rest
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_cut_short() -> Files:
    files = cuts(saved("WEBP"), " lossy.webp", 0.05, 0.1, 0.4, 0.6, 0.8, 0.95)
    return files | cuts(saved("WEBP", lossless=True), " lossless.webp", 0.005, 0.1, 0.4, 0.6, 0.8, 0.95)


def webp_of_wrong_length() -> Files:
    webp = saved("WEBP")
    return {
        "file too long.webp": patched(webp, 4, put=struct.pack("<I", 10**6)),
        "file too short.webp": patched(webp, 4, put=struct.pack("<I", 20)),
        "file of nothing.webp": patched(webp, 4, put=bytes(4)),
        "chunk too long.webp": patched(webp, 16, put=struct.pack("<I", 10**6)),
        "chunk of four billion.webp": patched(webp, 16, put=struct.pack("<I", 2**32 - 1)),
        "chunk of nothing.webp": patched(webp, 16, put=bytes(4)),
    }


def avif_cut_short() -> Files:
    return cuts(saved("AVIF"), ".avif", 0.02, 0.05, 0.2, 0.4, 0.6, 0.9)


def jpeg2000_cut_short() -> Files:
    return cuts(saved("JPEG2000"), ".jp2", 0.003, 0.01, 0.02, 0.04, 0.06)


KINDS: Kinds = {
    gif_cut_short: BROKEN,
    gif_with_bad_codes: BROKEN,
    gif_far_off_the_screen: TOO_LARGE,
    bmp_cut_short: BROKEN,
    bmp_with_foolish_header: BROKEN,
    bmp_upside_down: READABLE,
    netpbm_cut_short: BROKEN,
    netpbm_with_foolish_header: BROKEN,
    webp_cut_short: BROKEN,
    webp_of_wrong_length: BROKEN,
    avif_cut_short: BROKEN,
    jpeg2000_cut_short: BROKEN,
}
