"""Ranks that torchrun has started fail alike: the first one says why, and the others only what it does not say."""

import hashlib
import os
import signal
import time
from contextlib import suppress
from datetime import timedelta

_WAITED = 10.0  # seconds for the first rank, which may still be importing torch or listing images


def is_said_by_first_rank(message: str) -> bool:
    """Whether the first rank says this, so that another need not. The first itself announces it, and says it."""
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
