"""What is kept of a stream while it is read once: all names, in a file, and a few of its images."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray

from flexpredict.data.sources.record_source import RecordSource
from flexpredict.data.sources.streams import Entry, ImageStream, Record, all_entries

_MOST_KEPT = 48


@dataclass(eq=False)
class PassingStream:
    """The first `most` images of a stream, to be iterated over once."""

    stream: ImageStream
    most: int | None
    names_file: IO[str]  # A million names would fill memory; those of duplicates are looked up at the end.
    _kept: dict[int, Record] = field(default_factory=dict, init=False)

    def __iter__(self) -> Iterator[Entry]:
        every = 1
        for row, found in islice(all_entries(self.stream), self.most):
            self.names_file.write(json.dumps(found.name) + "\n")
            if row % every == 0 and isinstance(found, Record):
                self._kept[row] = found
                # The length of the stream is known only at its end: so keep fewer and fewer, always evenly spaced.
                if len(self._kept) > _MOST_KEPT:
                    every *= 2
                    self._kept = {row: record for row, record in self._kept.items() if row % every == 0}
            yield row, found

    def kept(self, readable: NDArray[np.bool_]) -> RecordSource:
        """The images that were kept. readable: which of all images could be read."""
        records = [record for row, record in self._kept.items() if readable[row]]
        labels = torch.tensor([-1 if record.label is None else record.label for record in records])
        return RecordSource(name=self.stream.name, classes=self.stream.classes, labels=labels, records=records)

    def names(self, rows: Iterable[int]) -> dict[int, str]:
        """The names of the images of these rows."""
        wanted = set(rows)
        self.names_file.seek(0)
        return {row: json.loads(line) for row, line in enumerate(self.names_file) if row in wanted}
