"""Files that a folder of pictures from the web may hold and should not: broken, foreign, oversized, oddly named.

`python tests/hostile/corpus.py FOLDER` writes them all, for a look or for another program. Tests call

- `write_corpus(folder)`: single files and links, one folder a kind;
- `write_shards(folder)`: tar shards, of which `path` names members as `shard.tar/member`;
- `write_parquet(folder)`: tables, of which `path` names rows as `file.parquet, row 2` or `file.parquet, rows 4 to 7`;
- `write_damaged(folder)`: pictures with random bytes in them, of which nobody knows what they have become.

Each but the last returns what should become of every file, member or row. All are the same whenever they are
written; pictures that PIL compressed differ between versions of its libraries, but not in what becomes of them.
"""

import json
import os
import stat
import sys
from pathlib import Path

import torch

import hostile.foreign
import hostile.formats
import hostile.headers
import hostile.jpeg
import hostile.oddities
import hostile.png
import hostile.tiff
from flexpredict.randomness import stream_key, uniform
from hostile.pieces import FORMATS, READABLE, Hostile, Kinds, patched, random_bytes, saved
from hostile.shards import write_shards
from hostile.tables import write_parquet

__all__ = ["Hostile", "write_corpus", "write_damaged", "write_parquet", "write_shards"]

_KINDS: Kinds = {
    **hostile.png.KINDS,
    **hostile.headers.KINDS,
    **hostile.formats.KINDS,
    **hostile.tiff.KINDS,
    **hostile.foreign.KINDS,
    **hostile.oddities.KINDS,
    **hostile.jpeg.KINDS,
}


def write_corpus(folder: Path) -> list[Hostile]:
    """More than 400 files of more than 60 kinds, 5 MB, in `folder`, which is made."""
    written = []
    for files, reason in _KINDS.items():
        kind = files.__name__
        for name, content in files().items():
            path = folder / kind / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            written.append(Hostile(f"{kind}/{name}", kind, reason))
    return [*written, *_write_special_files(folder), *_write_locked_files(folder)]


def write_damaged(folder: Path, count: int = 320) -> list[str]:
    """Pictures of which one to eight bytes are random: readable or not, they must do no harm. Returns their names."""
    folder.mkdir(parents=True)
    wholes = [(suffix, saved(format)) for suffix, format in FORMATS.items()]
    names = []
    for index in range(count):
        suffix, content = wholes[index % len(wholes)]
        places = uniform(torch.tensor([stream_key(0, "damage", index)]), 8)[0]
        for place, byte in zip(places[: 1 + index % 8], random_bytes(f"damage {index}", 8), strict=False):
            content = patched(content, int(place * len(content)), put=bytes([byte]))
        names.append(f"{index}{suffix}")
        (folder / names[-1]).write_bytes(content)
    return names


def _write_special_files(folder: Path) -> list[Hostile]:
    """Links, pipes, sockets, devices and a folder that are named like pictures.

    All but that folder are to be listed, each once, so that a person is told of them.
    """
    place = folder / "special_file"
    (place / "folder.jpg").mkdir(parents=True)
    (place / "folder.jpg" / "inside.png").write_bytes(saved("PNG"))
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
        (place / name).write_bytes(saved("PNG"))
    (place / "locked.png").chmod(0)
    (place / "folder").chmod(0)
    reason = READABLE if os.geteuid() == 0 else r"permission denied"
    return [Hostile(f"locked_file/{name}", "locked_file", reason) for name in ("locked.png", "folder/inside.png")]


def main() -> None:
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        sys.exit("usage: python tests/hostile/corpus.py FOLDER, a folder that is not there yet")
    folder = Path(sys.argv[1])
    for name, write in (("files", write_corpus), ("shards", write_shards), ("parquet", write_parquet)):
        written = write(folder / name)
        kinds = len({hostile.kind for hostile in written})
        expected = [vars(hostile) | {"readable": hostile.readable} for hostile in written]
        (folder / f"{name}.json").write_text(json.dumps(expected, indent=1))
        print(f"{folder / name}: {len(written)} of {kinds} kinds; what should become of them is in {name}.json")


if __name__ == "__main__":
    main()
