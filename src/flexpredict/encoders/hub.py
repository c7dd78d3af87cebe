"""Weights from the network: fetched because someone named them, and with a quick answer where there is no network."""

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from flexpredict.errors import UserError, in_a_line

_PATIENCE = 2.0  # seconds; the libraries try again and again for up to a minute


@contextmanager
def fetching(name: str, remedy: str = "Check the name; the first time, the network is needed.") -> Iterator[None]:
    """Within, the libraries below may fetch `name`; if the hub cannot be reached, they look in their cache only.

    Whatever they raise becomes a `UserError`. remedy: what to try, in a sentence.
    """
    from huggingface_hub import constants

    was_offline, reason = constants.HF_HUB_OFFLINE, ""
    if was_offline:
        reason = "HF_HUB_OFFLINE is set"
    elif not reachable(constants.ENDPOINT):
        reason = f"{urlsplit(constants.ENDPOINT).netloc} cannot be reached"
    constants.HF_HUB_OFFLINE = bool(reason)
    try:
        with errors_in_words(name, remedy, reason):
            yield
    finally:
        constants.HF_HUB_OFFLINE = was_offline


@contextmanager
def errors_in_words(name: str, remedy: str, offline: str = "") -> Iterator[None]:
    """Turn whatever the libraries raise while they load `name` into a `UserError`.

    offline: why the network is not used, if it is not.
    """
    try:
        yield
    except Exception as error:  # of many kinds
        in_cache_only = offline and isinstance(error, OSError)
        reason = f"it is not in the local cache, and {offline}." if in_cache_only else in_a_line(error)
        raise UserError(f"{name} could not be loaded: {reason} {remedy}") from error


def download(name: str) -> Path:
    """The folder of a model on the hub: weights and what describes them, never code."""
    from huggingface_hub import snapshot_download

    with fetching(f"hf:{name}"):
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))


def reachable(url: str, patience: float = _PATIENCE) -> bool:
    """Whether the host of a URL, or the proxy that is set for it, accepts connections."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.netloc):
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    address = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
    answered: list[bool] = []

    def connect() -> None:
        try:
            socket.create_connection(address, patience).close()
        except OSError:
            return
        answered.append(True)

    # In a thread, because looking up a name has no time limit of its own.
    attempt = threading.Thread(target=connect, daemon=True)
    attempt.start()
    attempt.join(patience)
    return bool(answered)
