"""Models of the network: a quick answer where there is none, and what is in the cache is used."""

import socket
import time
from collections.abc import Iterator

import pytest
from huggingface_hub import constants

import flexpredict
from flexpredict.errors import UserError
from flexpredict.hub_connection import fetching, hub_is_reachable

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


@pytest.fixture
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whether the hub can be reached is asked once in a process."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # which is put back afterwards
    hub_is_reachable.cache_clear()
    yield
    hub_is_reachable.cache_clear()


@pytest.mark.usefixtures("asked_anew")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("offline", [False, True])
def test_without_a_network_names_of_hubs_are_refused_at_once(
    name: str, offline: bool, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed_port}")
    monkeypatch.setenv("no_proxy", "*")
    start = time.monotonic()
    with pytest.raises(UserError, match="not downloaded before, and the Hugging Face hub cannot be reached") as said:
        flexpredict.load(name)
    assert time.monotonic() - start < 10, "the libraries by themselves take 30 seconds and more"
    assert "HF_HUB_OFFLINE" in str(said.value) and "the network is needed" in str(said.value)
    assert ("timm:vit_tiny_patch16_224,pretrained=no is the untrained model" in str(said.value)) == ("timm" in name)


@pytest.mark.usefixtures("asked_anew")
def test_errors_that_are_not_of_the_network_keep_their_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with (
        pytest.raises(UserError, match=r"^x could not be loaded: no such size Check it\.$"),
        fetching("x", "Check it."),
    ):
        raise ValueError("no such size")
