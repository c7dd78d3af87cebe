"""Whether the Hugging Face hub can be reached, found out within seconds."""

import os
import sys
from functools import cache
from threading import Thread

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
