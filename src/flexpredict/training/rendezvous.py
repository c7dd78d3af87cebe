"""How ranks find each other after `torchrun --max-restarts` has started them again.

torchrun's agents keep one key-value store for all starts of a job, and torch reads from it the addresses of ranks
that are dead ("Connection refused"). So each start gets a part of the store to itself. torchrun does not number
starts in the same way on all machines; the ranks therefore agree on a name for theirs.
"""

import hashlib
import os
import time
import uuid

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

_STARTED = "flexpredict was started"


def agents_keep_a_store() -> bool:
    """Whether torchrun started this process, and its agents keep a store for as long as the job lasts."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def was_started_before() -> bool:
    """Whether torchrun has started the ranks of this job before; the same answer for all of them.

    TORCHELASTIC_RESTART_COUNT does not tell: each machine counts only the failures of its own processes.
    """
    store, _, _ = next(rendezvous("env://"))
    return bool(store.check([_STARTED]))


def join_ranks(backend: str) -> None:
    """Make the process group, if torchrun's agents keep the store; otherwise whoever needs the group makes it."""
    if dist.is_initialized() or not agents_keep_a_store():
        return
    store, rank, ranks = next(rendezvous("env://"))
    own_part = PrefixStore(name_of_start(store, rank, ranks), store)
    store.set(_STARTED, "")  # only now that all ranks of this start have checked it
    dist.init_process_group(backend, store=own_part, rank=rank, world_size=ranks)


def name_of_start(store: Store, rank: int, ranks: int) -> str:
    """A name that the ranks of this start have in common with each other, and with no earlier start.

    Each rank leaves a token of its own, and reports which tokens it sees. They agree once all report the same; what a
    dead rank reported is never the same, because it saw a dead token in place of this one.
    """
    token = uuid.uuid4().hex
    store.set(f"token {rank}", token)
    while True:
        tokens = [value.decode() for value in store.multi_get([f"token {other}" for other in range(ranks)])]
        name = hashlib.sha256(" ".join(tokens).encode()).hexdigest()
        store.set(f"seen by {token}", name)
        reports = [f"seen by {other}" for other in tokens]
        if store.check(reports) and {value.decode() for value in store.multi_get(reports)} == {name}:
            return name
        time.sleep(0.05)
