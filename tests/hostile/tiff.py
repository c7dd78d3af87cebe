"""TIFFs that are damaged or foolish: a header, pixels, and a directory of tags."""

import struct

from hostile.pieces import BROKEN, READABLE, Files, Kinds, cuts, patched, picture, saved

Tags = dict[int, int | tuple[int, int, int]]  # tag -> value, or type, count and value
_STRIP: Tags = {273: 8, 278: 32, 279: 32 * 32}


def tiff_of(changes: Tags | None = None, next_ifd: int = 0, place: Tags = _STRIP) -> bytes:
    pixels = picture(32, 32, "L").tobytes()
    tags: Tags = {256: 32, 257: 32, 258: 8, 259: 1, 262: 1, 277: 1, **place, **(changes or {})}
    directory = struct.pack("<H", len(tags))
    for tag, value in sorted(tags.items()):
        directory += struct.pack("<HHII", tag, *(value if isinstance(value, tuple) else (4, 1, value)))
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + directory + struct.pack("<I", next_ifd)


def tiff_cut_short() -> Files:
    files: Files = {}
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
        tiff = saved("TIFF", compression=compression)
        files |= cuts(tiff, f" {compression}.tif", 0.002, 0.4, 0.9)
    return files


def tiff_of_32_bits() -> Files:
    """Floats and large integers have no agreed range, so nothing says which is white."""
    return {
        "float.tif": saved("TIFF", picture(mode="F")),
        "float compressed.tif": saved("TIFF", picture(mode="F"), compression="tiff_adobe_deflate"),
        "integer.tif": saved("TIFF", picture(mode="L").convert("I").point(lambda value: value * 9_000)),
    }


def tiff_offsets_beyond_the_file() -> Files:
    tile: Tags = {322: 32, 323: 32, 324: 10**9, 325: 1024}
    return {
        "strip.tif": tiff_of({273: 10**9}),
        "strip at the very end.tif": tiff_of({273: 2**32 - 1}),
        "strips.tif": tiff_of({273: (4, 4, 10**9), 278: 8}),
        "tile.tif": tiff_of(place=tile),
        "compressed tile.tif": tiff_of({259: 5}, place=tile),
        "compressed strip.tif": tiff_of({273: 10**9, 259: 8}),
    }


def tiff_without_end() -> Files:
    """Chains of pages that come back to themselves. Only the first page is wanted."""
    first = 8 + 32 * 32
    return {
        "page follows itself.tif": tiff_of(next_ifd=first),
        "next page beyond the file.tif": tiff_of(next_ifd=2**32 - 1),
        "next page is the header.tif": tiff_of(next_ifd=2),
        "details are the page.tif": tiff_of({34665: first}),
        "subpages are the page.tif": tiff_of({330: first}),
    }


def tiff_without_directory() -> Files:
    return {f"at {at}.tif": patched(tiff_of(), 4, put=struct.pack("<I", at)) for at in (0, 10**6, 2**32 - 1)}


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
    return {f"{name}.tif": tiff_of(change) for name, change in changes.items()}


def tiff_fax_damaged() -> Files:
    """As with JPEG, a line that cannot be decoded is left as it is."""
    return {"noise.tif": tiff_of({259: 4, 258: 1})}


KINDS: Kinds = {
    tiff_cut_short: BROKEN,
    tiff_of_32_bits: r"16 bits",
    tiff_offsets_beyond_the_file: BROKEN,
    tiff_without_end: READABLE,
    tiff_without_directory: BROKEN,
    tiff_with_foolish_tags: BROKEN,
    tiff_fax_damaged: READABLE,
}
