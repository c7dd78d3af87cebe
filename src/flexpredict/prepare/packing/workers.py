"""Worker processes that decode and encode batches of images, and hand them back in order."""

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.now_reading import begin_worker, last_read, new_board, now_reading
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.manifest import SkippedImage
from flexpredict.data.sources.streams import Record
from flexpredict.errors import UserError
from flexpredict.prepare.packing.shard_writing import LeftOut, PackedImage, pack_image

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import SynchronizedArray

# Images by their number in the source, of which a worker reads them; or with what a stream gave for each.
Batch: TypeAlias = range | list[tuple[int, Record | UnreadableImage]]
Packed: TypeAlias = list[PackedImage | LeftOut]

# A worker has a batch in hand and another waiting: more would only fill the memory.
_BATCHES_A_WORKER = 2


@dataclass(frozen=True)
class Packer:
    """Makes the members of a shard from images. `source` is None where the batches bring their records along."""

    source: ImageSource | None = field(repr=False)
    size: int
    quality: int

    def __call__(self, batch: Batch) -> Packed:
        if isinstance(batch, range):
            return [self._pack(index, self._read(index)) for index in batch]
        return [self._pack(index, record) for index, record in batch]

    def describe(self, batch: Batch, position: int) -> str:
        """Number and name of an image of a batch."""
        if isinstance(batch, range):
            assert self.source is not None
            return f"{batch[position]} ({self.source.describe(batch[position])})"
        index, record = batch[position]
        return f"{index} ({record.name})"

    def _read(self, index: int) -> Record | UnreadableImage:
        assert self.source is not None
        name = self.source.describe(index)
        now_reading(name)
        try:
            label = None if self.source.labels is None else int(self.source.labels[index])
            return Record(name, self.source.encoded(index), label)
        except UnreadableImage as failure:
            return failure

    def _pack(self, index: int, record: Record | UnreadableImage) -> PackedImage | LeftOut:
        now_reading(record.name)
        try:
            if isinstance(record, UnreadableImage):
                raise record
            label = None if record.label is None or record.label < 0 else record.label
            return pack_image(index, record.encoded, record.name, label, self.size, self.quality)
        except UnreadableImage as failure:
            return LeftOut(index, SkippedImage(failure.name, failure.reason))
        finally:
            now_reading("")


def pack_in_order(packer: Packer, batches: Iterator[Batch], workers: int) -> Generator[Packed, None, None]:
    """What the packer makes of each batch; by this process alone if there are no workers."""
    if workers == 0:
        yield from map(packer, batches)
        return
    context = _context()
    board, pids = new_board(workers), context.Array("q", workers)
    pool = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(packer, board, pids))
    pending: deque[tuple[Batch, Future[Packed]]] = deque()
    try:
        for batch in batches:
            pending.append((batch, pool.submit(_pack_in_worker, batch)))
            if len(pending) > _BATCHES_A_WORKER * workers:
                yield pending[0][1].result()
                pending.popleft()
        while pending:
            yield pending[0][1].result()
            pending.popleft()
    except BrokenProcessPool as error:
        first, last = packer.describe(pending[0][0], 0), packer.describe(pending[-1][0], -1)
        names = [name for pid in pids[:] if (name := last_read(board, pid))]
        raise UserError(
            f"A worker process died while images {first} to {last} were packed"
            + (f"; the workers were reading {' and '.join(names)}" if names else "")
            + ". Either the memory ran out (use fewer workers), or a file made its decoder crash (remove it)."
            " Then run the same again: finished shards are kept."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _context() -> BaseContext:
    """Never a plain fork: it copies the locks of threads (the progress bar's, torch's) as they happen to be."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Imported once, in the server, and not by each worker.
    context.set_forkserver_preload([__name__])
    return context


_in_this_process: list[Packer] = []


def _start_worker(packer: Packer, board: Tensor, pids: "SynchronizedArray[int]") -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    with pids.get_lock():
        line = pids[:].index(0)
        pids[line] = os.getpid()
    begin_worker(board, line)
    _in_this_process[:] = [packer]


def _end_with_parent() -> None:
    """A pool's workers wait for ever when the main process is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _pack_in_worker(batch: Batch) -> Packed:
    return _in_this_process[0](batch)
