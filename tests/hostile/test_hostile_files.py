"""Whatever a file holds, decoding it gives pixels or says why not, quickly, quietly and in little memory.

A fresh process (this file, run as a program) decodes the whole corpus and notes what happens, file by file: there,
what C libraries print can be told apart from the rest, peak memory is that of decoding, and a file that hangs or
kills the process does so to nobody else.
"""

import faulthandler
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import torch

from flexpredict.data import decoding
from hostile.corpus import Hostile, write_corpus, write_damaged, write_parquet, write_shards

_SECONDS = 300  # for all together, which take about five; so many more are a hang, however busy the machine is
_MEGABYTES = 300  # beyond what decoding an ordinary picture takes
_IMAGE_SIZE = (24, 40)
_DAMAGED = "damaged"


@dataclass(frozen=True)
class Outcome:
    """What came of one file."""

    path: str
    reasons: dict[str, str]  # of each way to read it: why it could not be; empty if it could
    accidents: list[str]  # exceptions that are not UnreadableImage, and pixels of a wrong shape
    printed: str
    descriptors: int  # that are open afterwards and were not before
    megabytes: float  # by which the peak memory has grown

    @property
    def reason(self) -> str:
        return self.reasons["decode"]


@dataclass(frozen=True)
class Watched:
    """What came of the corpus, file by file up to one that ended the process."""

    folder: Path
    corpus: list[Hostile]
    damaged: list[str]
    outcomes: dict[str, Outcome]
    ghostscript_ran: bool


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    folder = tmp_path_factory.mktemp("hostile")
    damaged = [f"{_DAMAGED}/{name}" for name in write_damaged(folder / _DAMAGED)]
    corpus = write_corpus(folder)
    # The first is whole, and decoded twice: it shows what an ordinary picture takes.
    names = [f"wrong_extension/{name}" for name in ("JPEG.JPG", "PNG.jpg")]
    names += damaged + [hostile.path for hostile in corpus]
    (folder / "names.json").write_text(json.dumps(names))
    program = folder / "programs" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch '{folder}/ghostscript ran'\n")
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", ""))),
    }
    with (folder / "printed").open("wb") as printed:
        # -W always: a warning, too, is then something printed.
        command = [sys.executable, "-W", "always", __file__, str(folder)]
        subprocess.run(command, stdout=printed, stderr=printed, env=environment, check=False)
    lines = (folder / "outcomes.jsonl").read_text().splitlines()
    outcomes = [Outcome(**json.loads(line)) for line in lines]
    found = {outcome.path: outcome for outcome in outcomes}
    return Watched(folder, corpus, damaged, found, (folder / "ghostscript ran").exists())


def test_every_file_is_answered_before_long(watched: Watched) -> None:
    expected = [*watched.damaged, *(hostile.path for hostile in watched.corpus)]
    unanswered = [path for path in expected if path not in watched.outcomes]
    assert not unanswered, f"hung or died over {unanswered[0]!r}, with {len(unanswered) - 1} after it"


def test_a_file_gives_pixels_or_the_reason_why_not(watched: Watched) -> None:
    wrong = []
    for hostile in watched.corpus:
        outcome = watched.outcomes.get(hostile.path)
        if outcome is None:
            continue
        if hostile.readable != (not outcome.reason) or not re.search(hostile.reason, outcome.reason, re.IGNORECASE):
            wrong.append((hostile.path, hostile.reason or "readable", outcome.reason or "was read"))
    assert not wrong


def test_nothing_but_unreadable_image_is_ever_raised(watched: Watched) -> None:
    assert not {path: o.accidents for path, o in watched.outcomes.items() if o.accidents}


def test_content_in_memory_meets_the_same_fate_as_the_file(watched: Watched) -> None:
    contents = [o for o in watched.outcomes.values() if "decode content" in o.reasons]
    assert len(contents) > 700
    assert not {o.path: o.reasons for o in contents if o.reasons["decode content"] != o.reasons["decode"]}


def test_whole_pictures_and_crops_of_them_are_readable_alike(watched: Watched) -> None:
    outcomes = watched.outcomes.values()
    assert not {o.path: o.reasons for o in outcomes if bool(o.reasons["upright"]) != bool(o.reasons["decode"])}


def test_what_can_be_decoded_has_a_header(watched: Watched) -> None:
    outcomes = [o for o in watched.outcomes.values() if not o.reason]
    assert not {o.path: o.reasons for o in outcomes if o.reasons["read_size"] or o.reasons["image_facts"]}


def test_nothing_is_printed_and_nobody_is_warned(watched: Watched) -> None:
    assert not {path: o.printed for path, o in watched.outcomes.items() if o.printed}


def test_no_file_is_left_open(watched: Watched) -> None:
    assert not {path: o.descriptors for path, o in watched.outcomes.items() if o.descriptors}


def test_little_memory_is_taken(watched: Watched) -> None:
    grown = {path: round(o.megabytes) for path, o in watched.outcomes.items() if o.megabytes > 1}
    assert sum(grown.values()) < _MEGABYTES, grown


def test_postscript_is_not_run(watched: Watched) -> None:
    assert any(hostile.kind == "postscript" for hostile in watched.corpus if hostile.path in watched.outcomes)
    assert not watched.ghostscript_ran


def test_the_corpus_is_large_varied_and_always_the_same(watched: Watched, tmp_path: Path) -> None:
    assert len(watched.corpus) >= 450 and len({hostile.kind for hostile in watched.corpus}) >= 60
    assert len({hostile.path for hostile in watched.corpus}) == len(watched.corpus)
    assert write_corpus(tmp_path / "corpus") == watched.corpus
    corpus = _regular_files(tmp_path / "corpus")
    assert {path: (watched.folder / path).read_bytes() for path in corpus} == corpus
    for write in (write_shards, write_parquet):
        once, again = tmp_path / write.__name__ / "once", tmp_path / write.__name__ / "again"
        assert write(once) == write(again)
        assert _regular_files(once) == _regular_files(again)


def _regular_files(folder: Path) -> dict[str, bytes]:
    return {
        os.path.relpath(path, folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK)
    }


def _watch(folder: str) -> None:
    """Read each file in every way there is, and note what happens."""
    faulthandler.dump_traceback_later(_SECONDS, exit=True)
    torch.set_num_threads(1)
    names = json.loads(Path(folder, "names.json").read_text())
    _read_in_every_way(f"{folder}/{names[0]}", {}, [])
    peak = _peak_megabytes()
    with (
        Path(folder, "outcomes.jsonl").open("w", buffering=1) as outcomes,
        Path(folder, "printed").open("rb") as printed,
    ):
        for name in names:
            reasons: dict[str, str] = {}
            accidents: list[str] = []
            before = _open_descriptors()
            _read_in_every_way(f"{folder}/{name}", reasons, accidents)
            sys.stdout.flush()
            left = _open_descriptors() - before
            before_peak, peak = peak, _peak_megabytes()
            words = printed.read().decode(errors="replace")
            outcome = Outcome(name, reasons, accidents, words, left, peak - before_peak)
            outcomes.write(json.dumps(asdict(outcome)) + "\n")


def _read_in_every_way(path: str, reasons: dict[str, str], accidents: list[str]) -> None:
    def whole(height: int, width: int) -> decoding.Box:
        return 0, 0, width, height

    def decode(encoded: decoding.Encoded) -> None:
        pixels = decoding.decode(encoded, path, _IMAGE_SIZE, whole)
        if pixels.shape != (3, *_IMAGE_SIZE) or pixels.dtype != torch.uint8:
            accidents.append(f"{pixels.shape} of {pixels.dtype}")

    ways: dict[str, Callable[[], object]] = {
        "decode": lambda: decode(path),
        "read_size": lambda: decoding.read_size(path, path),
        "image_facts": lambda: decoding.image_facts(path, path),
        "upright": lambda: decoding.upright(path, path, 16),
    }
    if Path(path).is_file():
        content = Path(path).read_bytes()
        ways["decode content"] = lambda: decode(content)
    for way, read in ways.items():
        try:
            read()
            reasons[way] = ""
        except decoding.UnreadableImage as unreadable:
            reasons[way] = unreadable.reason
        except Exception as error:
            reasons[way] = "an accident"
            accidents.append(f"{way}: {error!r}")


def _open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _peak_megabytes() -> float:
    # Not getrusage, whose maximum begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    _watch(sys.argv[1])
