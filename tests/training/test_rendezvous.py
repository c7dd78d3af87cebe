"""Ranks that torchrun starts again find each other, and the run goes on from its last checkpoint by itself."""

import os
import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from interrupted import assert_same_weights
from ranks import OPTIONS, two_ranks, warm_processes
from torch.distributed import HashStore
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from flexpredict.cli import main
from flexpredict.methods.ijepa import IJEPA
from flexpredict.runs.metrics import read_records
from flexpredict.training.engine import launch_fabric
from flexpredict.training.rendezvous import name_of_start


def killed_in_its_fifth_step(given: list[str]) -> int:
    """What a rank does: the first rank dies in its first life, the second in its second."""
    torch.set_num_threads(1)
    calls, original, life = 0, IJEPA.after_step, os.environ["TORCHELASTIC_RESTART_COUNT"]
    if os.environ["RANK"] == "1":
        os.environ["TORCHELASTIC_RESTART_COUNT"] = "0"  # as on another machine, which counts its own failures

    def after_step(self: IJEPA, momentum: float) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == 5 and os.environ["RANK"] == life:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, momentum)

    IJEPA.after_step = after_step  # type: ignore[method-assign]
    return main(given)


@pytest.fixture
def handlers_restored() -> Iterator[None]:
    """torchrun's own, which are there to end its processes, would else stay for the tests that come after."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.slow
@pytest.mark.usefixtures("handlers_restored")
def test_a_killed_rank_brings_the_job_back_to_the_same_weights(pictures: str, tmp_path: Path) -> None:
    """By what `torchrun --standalone --nproc-per-node 2 --max-restarts 2` calls."""
    warm_processes()
    given = [
        "pretrain",
        "--data",
        pictures,
        *(word for name, value in OPTIONS.items() for word in (f"--{name}", value)),
    ]
    torchrun = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=uuid.uuid4().hex,
        max_restarts=2,
        monitor_interval=0.1,
        start_method="forkserver",
    )
    run = tmp_path / "run"
    codes = elastic_launch(torchrun, killed_in_its_fifth_step)([*given, "--out", str(run), "--overwrite"])
    assert codes == {0: 0, 1: 0}
    assert not (tmp_path / "run.1").exists(), "to start a job again is not to start over"
    assert [record["step"] for record in read_records(run / "starts.jsonl")] == [0, 3, 6]
    assert two_ranks(*given, "--out", str(tmp_path / "whole"), "--devices", "2").returncode == 0
    assert_same_weights(run, tmp_path / "whole")


def test_what_fabric_run_has_started_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LT_CLI_USED", "1")
    assert launch_fabric("cpu", 1).world_size == 1


def test_ranks_agree_on_a_name_that_no_earlier_start_had() -> None:
    store, ranks = HashStore(), 4

    def start() -> set[str]:
        with ThreadPoolExecutor(ranks) as threads:
            return set(threads.map(lambda rank: name_of_start(store, rank, ranks), range(ranks)))

    first = start()
    # Of the next start only two ranks come so far as to leave a token, and one of them to report what it sees.
    store.set("token 1", "died early")
    store.set("token 2", "died later")
    store.set("seen by died later", "anything")
    later = start()
    assert len(first) == len(later) == 1 and first != later
