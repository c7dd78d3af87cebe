"""Weights from the network: downloaded because someone named them, with a quick answer where there is no network."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flexpredict.errors import UserError, in_a_line
from flexpredict.hub_connection import hub_is_reachable


@contextmanager
def fetching(name: str, remedy: str = "Check the name; the first time, the network is needed.") -> Iterator[None]:
    """Within, the libraries below may download `name`; if the hub cannot be reached, they look in their cache only.

    Whatever they raise becomes a `UserError`. remedy: what to try, in a sentence.
    """
    with errors_in_words(name, remedy, offline=not hub_is_reachable()):
        yield


@contextmanager
def errors_in_words(name: str, remedy: str, offline: bool = False) -> Iterator[None]:
    """Turn whatever the libraries raise while they load `name` into a `UserError`."""
    try:
        yield
    except Exception as error:  # of many kinds
        reason = in_a_line(error)
        if offline and isinstance(error, OSError):
            reason = (
                "it was not downloaded before, and the Hugging Face hub cannot be reached (or HF_HUB_OFFLINE is set)."
            )
        raise UserError(f"{name} could not be loaded: {reason} {remedy}") from error


def download(name: str) -> Path:
    """The folder of a model on the hub: weights and what describes them, never code."""
    from huggingface_hub import snapshot_download

    with fetching(f"hf:{name}"):
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))
