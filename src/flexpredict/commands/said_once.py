"""Prints an error once if several ranks of torchrun fail with it: other ranks do not repeat the first one's."""

import hashlib
import os
import signal
import time
from contextlib import suppress
from datetime import timedelta

_WAITED = 10.0  # seconds for the first rank, which may still be importing torch or listing images


def is_said_by_first_rank(message: str) -> bool:
    """Whether the first rank prints this message, so that this rank need not. False on the first rank itself."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or os.environ.get("WORLD_SIZE") == "1":
        return False
    with suppress(ValueError):  # not in the main thread
        # torchrun sends it as soon as the first rank has ended.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Imported late: it takes seconds, and most errors come before anything needs torch.
    from torch.distributed.rendezvous import rendezvous

    key = f"said {hashlib.sha256(message.encode(errors='surrogateescape')).hexdigest()}"
    with suppress(RuntimeError):  # the agents are gone, and their store with them
        store, rank, _ = next(rendezvous("env://", timeout=timedelta(seconds=_WAITED)))
        if rank == 0:
            store.set(key, "")
            return False
        until = time.monotonic() + _WAITED
        while time.monotonic() < until:
            if store.check([key]):
                return True
            time.sleep(0.05)
    return False
