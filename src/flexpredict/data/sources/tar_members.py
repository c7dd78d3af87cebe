"""Reads the members of a tar file, from a file or from a pipe, and continues after damaged parts.

Python's `tarfile` takes a damaged header for the end of the archive, and takes five times as long.
"""

import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_BLOCK = 512
_SKIPPED_AT_ONCE = 2**20
# A longer name or set of attributes is damaged.
_LONGEST_NAME = 2**16
# No file has a size of more digits; Python refuses to read numbers of thousands of digits.
_MOST_DIGITS = 20
_FILE_TYPES = (b"0", b"\0", b"7")
_LONG_NAME, _ATTRIBUTES, _OTHER_HEADERS = b"L", b"x", (b"g", b"K")


class Member(NamedTuple):
    """A file, folder or link in an archive."""

    name: bytes
    start: int
    size: int
    is_file: bool


class TarReader:
    """Iterates over members; `content()` reads the current one.

    Each damaged part is described in `damage`, and reading continues at the next intact header.
    """

    def __init__(self, file: BinaryIO, seekable: bool) -> None:
        self.damage: list[str] = []
        self._file, self._seekable = file, seekable
        self._at = 0
        self._member: Member | None = None

    def __iter__(self) -> Iterator[Member]:
        name, size = None, None  # from a header that describes the next member
        lost, empty = False, True
        while True:
            if lost:
                name, size = None, None  # of a damaged member
            header = self._read(_BLOCK)
            if len(header) < _BLOCK:
                if not lost:
                    # A whole archive ends with blocks of zeros.
                    self.damage.append("the file is empty" if empty and not header else "the archive is cut short")
                return
            if header.count(0) == _BLOCK:
                if not lost:
                    return
                continue
            if not _checksum_holds(header):
                if not lost:
                    where = "is no tar archive" if self._at == _BLOCK else f"is damaged at byte {self._at - _BLOCK}"
                    self.damage.append(where)
                lost = True
                continue
            lost, empty = False, False
            kind, own_size = header[156:157], _number(header[124:136])
            if own_size is None:
                self.damage.append(f"has a member without a size at byte {self._at - _BLOCK}")
                lost = True
                continue
            if kind in (_LONG_NAME, _ATTRIBUTES, *_OTHER_HEADERS):
                if own_size > _LONGEST_NAME:
                    self.damage.append(f"has a name of {own_size} bytes at byte {self._at - _BLOCK}")
                    lost = True
                    continue
                data = self._read(_padded(own_size))[:own_size]
                if kind == _LONG_NAME:
                    name = data.rstrip(b"\0")
                elif kind == _ATTRIBUTES:
                    attributes = _attributes(data)
                    name = attributes.get(b"path", name)
                    digits = attributes.get(b"size", b"")[:_MOST_DIGITS]
                    size = int(digits) if digits.isdigit() else size
                continue
            is_file = kind in _FILE_TYPES
            own_size = (own_size if size is None else size) if is_file else 0
            self._member = Member(name if name is not None else _name(header), self._at, own_size, is_file)
            end = self._at + _padded(own_size)
            name, size = None, None
            yield self._member
            if not self._skip(end - self._at):
                self.damage.append(f"is cut short in {self._member.name.decode(errors='backslashreplace')}")
                return

    def content(self, most: int) -> bytes:
        """Up to `most` bytes of the current member; fewer if the archive ends early."""
        assert self._member is not None and self._at == self._member.start
        return self._read(min(self._member.size, most))

    def _read(self, count: int) -> bytes:
        data = self._file.read(count)
        self._at += len(data)
        return data

    def _skip(self, count: int) -> bool:
        if self._seekable and count > 0:
            self._at += count
            try:
                # One byte before the end, as it is possible to seek beyond it.
                self._file.seek(self._at - 1)
            except (OSError, OverflowError, ValueError):
                return False  # a size that no file has
            return bool(self._file.read(1))
        while count > 0:
            skipped = len(self._read(min(count, _SKIPPED_AT_ONCE)))
            if not skipped:
                return False
            count -= skipped
        return True


def _checksum_holds(header: bytes) -> bool:
    """Compare the sum of all bytes, with spaces for the checksum itself; adler32 adds them a hundred times faster."""
    stated = _number(header[148:156])
    if stated is None:
        return False
    total = zlib.adler32(header[:148] + b" " * 8 + header[156:]) & 0xFFFF
    return total == (stated + 1) % 65521


def _number(text: bytes) -> int | None:
    if text[0] == 0x80:  # GNU: binary, for sizes of 8 GB and more
        return int.from_bytes(text[1:], "big")
    try:
        number = int(text.strip(b" \0") or b"0", 8)
    except ValueError:
        return None
    return number if number >= 0 else None


def _name(header: bytes) -> bytes:
    name = header[:100].partition(b"\0")[0]
    if header[257:263] == b"ustar\0":
        prefix = header[345:500].partition(b"\0")[0]
        return prefix + b"/" + name if prefix else name
    return name


def _attributes(data: bytes) -> dict[bytes, bytes]:
    """pax: lines of "LENGTH KEY=VALUE\\n"."""
    found = {}
    while data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or len(length) > _MOST_DIGITS or not len(length) < int(length) <= len(data):
            break
        key, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        found[key] = value
        data = data[int(length) :]
    return found


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
