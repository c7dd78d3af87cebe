"""`flexpredict serve` in a thread, at a free port of this machine."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from flexpredict.reports.serving import make_site


@contextmanager
def served(root: Path) -> Iterator[int]:
    """The port at which the runs of a folder are shown."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_site(root, "127.0.0.1"), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()
