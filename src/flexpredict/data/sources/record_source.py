"""A few images in memory, as a source."""

from dataclasses import dataclass, field

from flexpredict.data.decoding import Encoded
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.listing import digest
from flexpredict.data.sources.streams import Record


@dataclass(eq=False, kw_only=True)
class RecordSource(ImageSource):
    """Records of a stream, or single image files."""

    records: list[Record] = field(repr=False)

    def __len__(self) -> int:
        return len(self.records)

    def describe(self, index: int) -> str:
        return self.records[index].name

    def encoded(self, index: int) -> Encoded:
        return self.records[index].encoded

    def fingerprint(self) -> str:
        return digest([record.name for record in self.records])
