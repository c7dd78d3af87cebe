"""Models of the network: a quick answer where there is none, and what is in the cache is used."""

import socket
import time

import pytest
from huggingface_hub import constants

import flexpredict
from flexpredict.encoders.hub import fetching, reachable
from flexpredict.errors import UserError

NAMES = ("hf:nobody/nothing", "timm:vit_tiny_patch16_224")


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Before anything is timed."""
    assert flexpredict.load
    from transformers import AutoImageProcessor, AutoModel

    assert AutoImageProcessor and AutoModel


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("name", NAMES)
def test_without_a_network_names_of_hubs_are_refused_at_once(
    name: str, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed_port}")
    monkeypatch.setenv("no_proxy", "*")
    start = time.monotonic()
    with pytest.raises(
        UserError, match=rf"not in the local cache, and 127.0.0.1:{closed_port} cannot be reached"
    ) as said:
        flexpredict.load(name)
    assert time.monotonic() - start < 10, "the libraries by themselves take 30 seconds and more"
    assert "the network is needed" in str(said.value)
    assert ("timm:vit_tiny_patch16_224,pretrained=no is the untrained model" in str(said.value)) == ("timm" in name)
    assert not constants.HF_HUB_OFFLINE, "as it was before"


@pytest.mark.parametrize("name", NAMES)
def test_hf_hub_offline_is_honored_and_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="not in the local cache, and HF_HUB_OFFLINE is set"):
        flexpredict.load(name)
    assert constants.HF_HUB_OFFLINE


def test_a_host_that_answers_is_reachable_directly_or_by_its_proxy(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert reachable(f"http://127.0.0.1:{port}")
        assert not reachable(f"http://127.0.0.1:{closed_port}")
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        assert reachable("https://nowhere.invalid")
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{closed_port}")
        assert not reachable("https://nowhere.invalid")


def test_a_name_that_is_looked_up_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*rest: object) -> None:
        time.sleep(1)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", connect)
    start = time.monotonic()
    assert not reachable("https://nowhere.invalid", patience=0.1)
    assert time.monotonic() - start < 0.9


def test_errors_that_are_not_of_the_network_keep_their_own_words() -> None:
    with (
        pytest.raises(UserError, match=r"^x could not be loaded: no such size Check it\.$"),
        fetching("x", "Check it."),
    ):
        raise ValueError("no such size")
