"""requirements.lock: hashes for all, the versions that were tested, and no address of a registry."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"([\w.-]+)==(\S+)(?: --hash=sha256:([0-9a-f]{64}))?")


def pins(file: str) -> dict[str, tuple[str, str | None]]:
    """Version and hash of each package of a file."""
    lines = [line for line in (ROOT / file).read_text().splitlines() if line and not line.startswith("#")]
    found = [PIN.fullmatch(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if match is None]
    return {re.sub("[-_.]+", "-", match[1]).lower(): (match[2], match[3]) for match in found if match}


def test_the_lock_has_a_hash_for_every_package_and_the_versions_of_the_constraints() -> None:
    locked, tested = pins("requirements.lock"), pins("constraints.txt")
    assert all(digest for _, digest in locked.values())
    assert not {"torch", "torchvision"} & locked.keys(), "their files differ between builds of one version"
    differ = {name: (tested[name][0], locked[name][0]) for name in tested.keys() & locked.keys()}
    assert all(one == other for one, other in differ.values()), "run .ci/lock again"
    assert {"timm", "safetensors", "jsonargparse", "lightning-fabric"} <= locked.keys()


def test_neither_file_names_a_registry() -> None:
    assert all("://" not in (ROOT / file).read_text() for file in ("requirements.lock", "constraints.txt"))
