"""Whether the Hugging Face hub can be reached, found out within seconds."""

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
    """Ask the hub once. If it does not answer, the Hugging Face libraries are told to use only what was downloaded.

    Otherwise they would repeat each request for half a minute before they fail.
    """
    from huggingface_hub import constants

    answers: list[bool] = []
    # In a thread: to look up a name without a network can take longer than any time limit of a request.
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
    except Exception:  # of the library of requests that is in use, or because its offline mode is on already
        return False
    return True


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
        reason = in_a_line(error) or type(error).__name__
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
