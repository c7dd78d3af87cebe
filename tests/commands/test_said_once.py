"""Of ranks that fail alike, one says why; what only another one finds is said as well."""

import signal
import socket
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import TCPStore
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import rendezvous

from flexpredict.cli import main
from flexpredict.commands import said_once


@pytest.fixture(autouse=True)
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[TCPStore]:
    """The store of an agent of torchrun."""
    before = signal.getsignal(signal.SIGTERM)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port}
    for name, value in {**variables, "TORCHELASTIC_USE_AGENT_STORE": True}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(said_once, "_WAITED", 0.2)
    yield store
    signal.signal(signal.SIGTERM, before)


def said(rank: int, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("RANK", str(rank))
    assert main(words) == 2
    return capsys.readouterr().err


def test_an_error_of_all_ranks_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "epochz" in said(0, ["pretrain", "--epochz", "3"], monkeypatch, capsys)
    assert said(1, ["pretrain", "--epochz", "3"], monkeypatch, capsys) == ""


def test_an_error_of_another_rank_alone_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "epochz" in said(1, ["pretrain", "--epochz", "3"], monkeypatch, capsys), "the first rank has said nothing"
    assert "epochz" in said(0, ["pretrain", "--epochz", "3"], monkeypatch, capsys)
    assert "seeed" in said(1, ["pretrain", "--seeed", "3"], monkeypatch, capsys), "it has said something else"


def test_an_error_is_said_where_the_agent_has_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("MASTER_PORT", str(port))  # where nobody listens any more

    def impatient(url: str, timeout: timedelta = default_pg_timeout) -> Any:
        assert timeout < timedelta(minutes=1), "torch tries again as long as that"
        return rendezvous(url, timeout=timeout)

    monkeypatch.setattr(sys.modules["torch.distributed.rendezvous"], "rendezvous", impatient)
    assert "epochz" in said(1, ["pretrain", "--epochz", "3"], monkeypatch, capsys)
