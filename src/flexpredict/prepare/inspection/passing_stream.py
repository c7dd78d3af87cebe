"""What is kept of a stream while it passes by: all names, in a file, and a few of its images."""

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray

from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.kept_images import KeptImages
from flexpredict.data.sources.streams import ImageStream, Record

_MOST_KEPT = 48


@dataclass(eq=False)
class PassingStream:
    """The first `most` images of a stream, piece after piece. To be gone through once."""

    stream: ImageStream
    most: int | None
    names_file: IO[str]  # A million names would fill memory; those of duplicates are looked up in the end.
    _kept: dict[int, Record] = field(default_factory=dict, init=False)

    def __iter__(self) -> Iterator[Record | UnreadableImage]:
        every = 1
        pieces = (self.stream.records(piece) for piece in range(self.stream.pieces))
        for row, entry in enumerate(itertools.islice(itertools.chain.from_iterable(pieces), self.most)):
            self.names_file.write(json.dumps(entry.name) + "\n")
            if row % every == 0 and isinstance(entry, Record):
                self._kept[row] = entry
                # How long the stream is shows only at its end: so keep ever fewer, evenly spaced all the time.
                if len(self._kept) > _MOST_KEPT:
                    every *= 2
                    self._kept = {row: record for row, record in self._kept.items() if row % every == 0}
            yield entry

    def kept(self, readable: NDArray[np.bool_]) -> KeptImages:
        """The images that were kept. readable: which of all that passed by turned out to be so."""
        records = [record for row, record in self._kept.items() if readable[row]]
        labels = [-1 if record.label is None else record.label for record in records]
        return KeptImages(
            name=self.stream.name, classes=self.stream.classes, labels=torch.tensor(labels), records=records
        )

    def names(self, rows: Iterable[int]) -> dict[int, str]:
        """What the images of these rows are called."""
        wanted = set(rows)
        self.names_file.seek(0)
        return {row: json.loads(line) for row, line in enumerate(self.names_file) if row in wanted}
