"""Finds out within seconds whether the Hugging Face hub can be reached, and explains errors of loading from it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Thread

from flexpredict.errors import UserError, in_a_line

_SECONDS = 5.0


@cache
def hub_is_reachable() -> bool:
    """Ask the hub once. If it does not answer, the Hugging Face libraries are set to offline mode.

    Otherwise they would repeat each request for half a minute before they fail.
    """
    from huggingface_hub import constants

    answers: list[bool] = []
    # In a thread: a name lookup without a network can take longer than any time limit of a request.
    asking = Thread(target=lambda: answers.append(_answers(constants.ENDPOINT)), daemon=True)
    asking.start()
    asking.join(_SECONDS)
    if answers == [True]:
        return True
    os.environ["HF_HUB_OFFLINE"] = "1"  # for processes that are started later
    constants.HF_HUB_OFFLINE = True
    if (datasets := sys.modules.get("datasets")) is not None:
        datasets.config.HF_HUB_OFFLINE = True
    return False


def _answers(endpoint: str) -> bool:
    from huggingface_hub import get_session

    try:
        get_session().head(endpoint, timeout=_SECONDS)
    except Exception:  # its type depends on the HTTP library; or offline mode is on already
        return False
    return True


@contextmanager
def fetching(name: str, remedy: str = "Check the name; to download it, the network is needed.") -> Iterator[None]:
    """For code that may download `name`; if the hub cannot be reached, the libraries use only their cache.

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
        reason = in_a_line(error) or type(error).__name__
        if offline and isinstance(error, OSError):
            reason = (
                "it was not downloaded before, and the Hugging Face hub cannot be reached (or HF_HUB_OFFLINE is set)."
            )
        raise UserError(f"{name} could not be loaded: {reason} {remedy}") from error


def download(name: str) -> Path:
    """Download a model from the hub: weights and JSON files, never code. Returns its folder."""
    from huggingface_hub import snapshot_download

    with fetching(f"hf:{name}"):
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))
