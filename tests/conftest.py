"""For all tests: nothing from the network, nothing in the user's folders, nothing left by the test before."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from tiny import RECIPE, write_pictures

from flexpredict import pretrain

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# A shell lets its background jobs, and all their children, ignore Ctrl-C; tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Random tests try the same examples every time, and may take as long as a busy machine makes them.
settings.register_profile("tests", derandomize=True, deadline=None)
settings.load_profile("tests")


@pytest.fixture(scope="session", autouse=True)
def cache_of_shared_fixtures(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["FLEXPREDICT_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test starts with an empty cache; the folder is made when something is kept."""
    monkeypatch.setenv("FLEXPREDICT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def same_random_numbers_in_any_order() -> None:
    torch.manual_seed(0)


@pytest.fixture
def few_penalties(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a probe chooses its penalty is tested in one place; it takes longer than all else in small tests."""
    monkeypatch.setattr("flexpredict.evaluation.linear.L2_GRID", (1.0, 0.1))


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of 48 pictures, to be read only."""
    return str(write_pictures(tmp_path_factory.mktemp("data") / "pictures"))


@pytest.fixture(scope="session")
def finished(pictures: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of 18 steps that nobody interrupted. Tests share it: one that changes a run copies it first."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert pretrain(pictures, out, **RECIPE).finished
    kept = {path: path.read_bytes() for path in (out / "config.yaml", *out.rglob("*.safetensors"))}
    yield out
    assert [path.name for path, content in kept.items() if path.read_bytes() != content] == [], "a test changed it"
