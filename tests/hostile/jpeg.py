"""JPEGs that are damaged or foolish: segments of a marker, a length (which counts itself) and a payload."""

import struct
from typing import Any

from hostile.pieces import BROKEN, READABLE, Files, Kinds, cuts, patched, picture, random_bytes, saved


def segment(marker: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


def jpeg_with(*segments: bytes, **options: Any) -> bytes:
    jpeg = saved("JPEG", **options)
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def jpeg_frame(jpeg: bytes) -> int:
    """Where the frame header is: FF C0 or C2, length, precision, height, width."""
    return max(jpeg.find(b"\xff\xc0\x00"), jpeg.find(b"\xff\xc2\x00"))


def _jpeg_without(marker: int) -> bytes:
    """Segments of one kind taken out. They end with the start of the first scan, DA."""
    jpeg = saved("JPEG")
    kept, at = jpeg[:2], 2
    while jpeg[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
        kept += jpeg[at:end] if jpeg[at + 1] != marker else b""
        at = end
    return kept + jpeg[at:]


def jpeg_cut_short() -> Files:
    return cuts(saved("JPEG"), ".jpg", 0.01, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)


def progressive_jpeg_cut_short() -> Files:
    return cuts(saved("JPEG", progressive=True), ".jpg", 0.1, 0.3, 0.5, 0.7, 0.9, 0.97)


def jpeg_entropy_damaged() -> Files:
    """Random bits where the coefficients are, but no marker: a decoder shows what it gets, like every browser."""
    jpeg = saved("JPEG", quality=95)
    start = jpeg.find(b"\xff\xda") + 14
    files = {}
    for index in range(16):
        noise = bytes(byte % 255 for byte in random_bytes(f"entropy {index}", 8 + 4 * index))
        files[f"{len(noise)} bytes.jpg"] = patched(jpeg, start + 9 * index, put=noise)
    return files


def jpeg_of_unsupported_coding() -> Files:
    jpeg = saved("JPEG")
    frame = jpeg_frame(jpeg)
    markers = (0xC5, 0xC6, 0xC7, 0xCD, 0xCF)
    files = {f"SOF {marker:02X}.jpg": patched(jpeg, frame + 1, put=bytes([marker])) for marker in markers}
    return files | {f"{bits} bits.jpg": patched(jpeg, frame + 4, put=bytes([bits])) for bits in (0, 1, 7, 200)}


def jpeg_without_tables() -> Files:
    return {"no quantization.jpg": _jpeg_without(0xDB), "no frame.jpg": _jpeg_without(0xC0)}


def jpeg_with_foolish_segments() -> Files:
    jpeg = saved("JPEG")
    files = {f"table of length {n}.jpg": jpeg[:2] + b"\xff\xdb" + bytes([0, n]) + jpeg[2:] for n in (0, 1)}
    files["length beyond the file.jpg"] = jpeg[:2] + b"\xff\xe2\xff\xff" + jpeg[2:]
    files["profile of no part.jpg"] = jpeg_with(segment(0xE2, b"ICC_PROFILE\0"))
    return files


def jpeg_with_segments_of_no_length() -> Files:
    """Even a length counts itself, so none can be below two; but here nothing needed is lost."""
    jpeg = saved("JPEG")
    return {f"length {n}.jpg": jpeg[:2] + b"\xff\xe2" + bytes([0, n]) + jpeg[2:] for n in (0, 1)}


def cmyk_of_every_marking() -> Files:
    cmyk = saved("JPEG", picture(mode="CMYK"))
    at = cmyk.find(b"\xff\xee")
    files = {"Adobe.jpg": cmyk, "unmarked.jpg": cmyk[:at] + cmyk[at + 16 :]}
    files |= {f"transform {n}.jpg": patched(cmyk, at + 15, put=bytes([n])) for n in (1, 2, 3)}
    return files | {"CMYK.tif": saved("TIFF", picture(mode="CMYK"))}


def jpeg_of_many_scans() -> Files:
    """Twenty thousand progressive scans that say, in 40 bytes each, that nothing changes in 16 million pixels."""
    side, scans = 4096, 20_000
    code = bytes([1] + [0] * 15)  # one Huffman code, of one bit
    blocks = (side // 8) ** 2
    runs = bytes(blocks // 16384 * 15 // 8 + 1)  # 0 is the code of "no more in the next 16384 blocks"
    head = [b"\xff\xd8", segment(0xDB, bytes([0] + [1] * 64))]
    head += [segment(0xC2, struct.pack(">BHHB3B", 8, side, side, 1, 1, 0x11, 0))]
    head += [segment(0xC4, b"\x00" + code + b"\x00"), segment(0xC4, b"\x10" + code + b"\xe0")]
    head += [segment(0xDA, bytes([1, 1, 0, 0, 0, 0])), bytes(blocks // 8)]
    scan = segment(0xDA, bytes([1, 1, 0, 1, 63, 0])) + runs
    return {"20000.jpg": b"".join(head) + scan * scans + b"\xff\xd9"}


KINDS: Kinds = {
    jpeg_cut_short: BROKEN,
    progressive_jpeg_cut_short: BROKEN,
    jpeg_entropy_damaged: READABLE,
    jpeg_of_unsupported_coding: BROKEN,
    jpeg_without_tables: BROKEN,
    jpeg_with_foolish_segments: BROKEN,
    jpeg_with_segments_of_no_length: READABLE,
    cmyk_of_every_marking: READABLE,
    # Last, for it is the one that may take minutes, and what comes before is then known already.
    jpeg_of_many_scans: r"scans",
}
