"""Tar shards that are damaged or foolish, or of which members are: headers and contents in blocks of 512 bytes."""

import bz2
import gzip
import lzma
import os
import tarfile
from pathlib import Path

from hostile.pieces import BROKEN, FOREIGN, READABLE, Hostile, patched, picture, random_bytes, saved

_NOT_A_FILE = r"link|not a (regular )?file"
_NO_SIZE = r"size"
_DAMAGED = r"header|checksum|damaged"
_CUT_SHORT = r"cut short"
_END = bytes(1024)


def write_shards(folder: Path) -> list[Hostile]:
    """Good members between bad ones. Where a shard itself is at fault, `path` is the shard's.

    Those in the folder `compressed` can only be read in order. Of their members nothing is said: how many are found
    before the damage depends on the compression.
    """
    (folder / "compressed").mkdir(parents=True)
    written: list[Hostile] = []

    def write(shard: str, content: bytes, members: dict[str, str] | tuple[str, ...] = (), at_fault: str = "") -> None:
        (folder / shard).write_bytes(content)
        fates = members if isinstance(members, dict) else dict.fromkeys(members, READABLE)
        kind = shard.partition(".")[0].replace(" ", "_")
        written.extend(Hostile(f"{shard}/{member}", kind, reason) for member, reason in fates.items())
        if at_fault:
            written.append(Hostile(shard, kind, at_fault))

    for shard, (content, fates) in _bad_members().items():
        write(shard, content + _END, fates)
    twice = ("0001.jpg", "0001.jpg", "0002.jpg", "0002.png", "0001.jpg")
    write("same key twice.tar", _jpegs(*twice) + _END)
    written.extend(Hostile(f"same key twice.tar/{name}", "same_key_twice", READABLE) for name in twice)

    first, second, behind = _jpegs("first.jpg"), _jpegs("second.jpg"), _jpegs("behind.jpg") + _END
    write("no end.tar", first, ("first.jpg",), _CUT_SHORT)
    unfinished = {"first.jpg": READABLE, "last.jpg": BROKEN}
    write("last member cut short.tar", first + _member("last.jpg", saved("BMP"))[:1212], unfinished, _CUT_SHORT)
    write("last header cut short.tar", first + second[:100], ("first.jpg",), _CUT_SHORT)
    long_name = _header("x", size=300, kind=b"L") + b"n" * 300
    write("long name cut short.tar", first + long_name[:-200], ("first.jpg",), _CUT_SHORT)
    write("noise at the end.tar", first + random_bytes("end of shard", 3000), ("first.jpg",), _DAMAGED)
    # A reader finds its way back to the next whole header, unless a size leads beyond the end.
    for shard, (damage, reason) in _damaged_headers().items():
        write(shard, first + damage + behind, ("first.jpg", "behind.jpg"), reason)
    for shard, damage in _sizes_beyond_the_file().items():
        unfinished = {"first.jpg": READABLE, "second.jpg": r"too many"}
        write(shard, first + damage + behind, unfinished, _CUT_SHORT)
    endless = _attributes(b"9" * 5000 + b" size=1\n")
    write("attributes without end.tar", first + endless + behind, ("first.jpg", "behind.jpg"))
    for shard, content in {
        "text.tar": b"Not found.\n" * 99,
        "nothing.tar": b"",
        "gzip.tar": gzip.compress(bytes(10240), mtime=0),
        "noise.tar": random_bytes("shard", 5000),
    }.items():
        write(shard, content, at_fault=r"no tar|empty|cut short")
    for shard, content in _compressed().items():
        write(f"compressed/{shard}", content, at_fault=r"cannot be read|empty")
    return written


def tar_of(name: str, content: bytes) -> bytes:
    return _member(name, content) + _END


_ODD_NAMES = (
    "new\nline.jpg", "\U0001f98a.jpg", "e\u0301.jpg", "\u202egpj.jpg", os.fsdecode(b"\xff\xfe.jpg"), "-rf.jpg",
    "n" * 240 + ".jpg", "/".join(["deep"] * 60) + "/down.jpg", "[red].jpg", "%s%n.jpg", "two.dots.jpg", "a b.JPG",
)  # fmt: skip
_NAMES_THAT_LEAD_OUTSIDE = ("/tmp/hostile-was-here.jpg", "../../outside.jpg", "a/../../b.jpg")
_LABELS = (b"cat", b"", b"-5", b"1.5", b"\xff", b"9" * 30, b"9" * 100_000, b"1000000000000", b"4")


def _bad_members() -> dict[str, tuple[bytes, dict[str, str]]]:
    """Whole archives, without their ends, and what becomes of their members."""
    contents = {
        "first.jpg": (saved("JPEG"), READABLE),
        "noise.jpg": (random_bytes("member", 2000), FOREIGN),
        "second.jpg": (saved("JPEG"), READABLE),
        "nothing.jpg": (b"", r"empty"),
        "page.png": (b"<html>404</html>", FOREIGN),
    }
    bad = b"".join(_member(name, content) for name, (content, _) in contents.items()) + _member("first.cls", b"3")
    kinds = {"link.jpg": b"2", "same.jpg": b"1", "pipe.jpg": b"6", "device.jpg": b"3"}
    bad += b"".join(_header(name, kind=kind) for name, kind in kinds.items()) + _jpegs("last.jpg")
    fates = {name: reason for name, (_, reason) in contents.items()} | dict.fromkeys(kinds, _NOT_A_FILE)
    labeled = b"".join(_jpegs(f"{n}.jpg") + _member(f"{n}.cls", label) for n, label in enumerate(_LABELS))
    return {
        "bad members.tar": (bad, fates | {"last.jpg": READABLE}),
        "odd names.tar": (_jpegs(*_ODD_NAMES), dict.fromkeys(_ODD_NAMES, READABLE)),
        "names that lead outside.tar": (
            _jpegs(*_NAMES_THAT_LEAD_OUTSIDE),
            dict.fromkeys(_NAMES_THAT_LEAD_OUTSIDE, READABLE),
        ),
        "labels that are none.tar": (labeled, {f"{n}.jpg": READABLE for n in range(len(_LABELS))}),
    }


def _damaged_headers() -> dict[str, tuple[bytes, str]]:
    """What stands where a header and perhaps a block of content should, and what is said of it."""
    content = bytes(512)
    return {
        "wrong checksum.tar": (patched(_header("second.jpg", size=100), 148, put=b"000000\0 ") + content, _DAMAGED),
        "size in words.tar": (_header("second.jpg", size=b"very large!!") + content, _NO_SIZE),
        "size below zero.tar": (_header("second.jpg", size=b"\xff" * 12) + content, _NO_SIZE),
        # In octal digits, as nearly all sizes are.
        "size of minus one.tar": (_header("second.jpg", size=b"-0000000001\0"), _NO_SIZE),
        "size of minus a thousand.tar": (_header("second.jpg", size=b"-0000001750\0"), _NO_SIZE),
        "name of minus a thousand.tar": (_header("second.jpg", size=b"-0000001750\0", kind=b"L"), _NO_SIZE),
        "attributes of a damaged member.tar": (_attributes(_size(b"512")) + random_bytes("header", 512), _DAMAGED),
        "name of four gigabytes.tar": (_header("second.jpg", size=_binary(2**32), kind=b"L"), r"name"),
    }


def _sizes_beyond_the_file() -> dict[str, bytes]:
    return {
        "size of four exabytes.tar": _header("second.jpg", size=_binary(2**62)),
        "size of eleven bytes.tar": _header("second.jpg", size=_binary(2**88 - 1)),
        "size of 30 digits.tar": _attributes(_size(b"9" * 30)) + _header("second.jpg"),
        # More digits than Python makes a number of.
        "size of 5000 digits.tar": _attributes(_size(b"9" * 5000)) + _header("second.jpg"),
    }


def _compressed() -> dict[str, bytes]:
    whole = b"".join(_member(f"{n}.bmp", saved("BMP", picture(seed=n))) for n in range(8)) + _END
    files = {}
    for suffix, compressed in {
        "gz": gzip.compress(whole, mtime=0),
        "bz2": bz2.compress(whole),
        "xz": lzma.compress(whole),
    }.items():
        half = len(compressed) // 2
        files[f"cut short.tar.{suffix}"] = compressed[:half]
        files[f"damaged.tar.{suffix}"] = patched(compressed, half, put=b"\xff" * 50)
        files[f"text.tar.{suffix}"] = b"Not found.\n" * 99
        files[f"nothing.tar.{suffix}"] = b""
    # Behind the ten bytes of a gzip header, the first block is of a kind that does not exist.
    return files | {"no such block.tar.gz": patched(gzip.compress(whole, mtime=0), 10, put=b"\xff")}


def _jpegs(*names: str) -> bytes:
    return b"".join(_member(name, saved("JPEG", picture(seed=seed))) for seed, name in enumerate(names))


def _member(name: str, content: bytes) -> bytes:
    return _header(name, len(content)) + content + bytes(-len(content) % 512)


def _header(name: str, size: int | bytes = 0, kind: bytes = b"0") -> bytes:
    """With `size` as it is, if in bytes, and a checksum that holds all the same."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "first.jpg" if kind in b"12" else ""
    member.size = size if isinstance(size, int) else 0
    blocks = bytearray(member.tobuf(tarfile.GNU_FORMAT))  # more than one if the name is long
    if isinstance(size, bytes):
        blocks[124:136] = size
        blocks[148:156] = b" " * 8
        blocks[148:156] = b"%06o\0 " % sum(blocks)
    return bytes(blocks)


def _attributes(lines: bytes) -> bytes:
    """A pax header, which says more of the member behind it."""
    return _header("attributes", len(lines), kind=b"x") + lines + bytes(-len(lines) % 512)


def _size(digits: bytes) -> bytes:
    """A line of a pax header: its length, which counts itself, then a key and a value."""
    length = len(digits) + len(b"00 size=\n")
    return b"%d size=%s\n" % (length + (length > 99) + (length > 999), digits)


def _binary(size: int) -> bytes:
    return b"\x80" + size.to_bytes(11, "big")
