"""Features of any number of images in a file (`embed`), and the images most like a given one (`similar`).

Work is done in parts, which are kept beside the file until all are there and are then joined one by one: at no time
is more than a part in memory, and what was interrupted goes on after the last part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from rich.console import Console

from flexpredict import __version__
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.identity import identity
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import is_stream, open_images
from flexpredict.data.sources.streams import ImageStream
from flexpredict.encoders.frozen import FrozenEncoder, open_encoder
from flexpredict.errors import UserError, printable
from flexpredict.features.collection import Collection
from flexpredict.features.extraction import Extraction
from flexpredict.features.named_batches import NamedBatch, source_batches, stream_batches, stream_entries
from flexpredict.features.output import Output
from flexpredict.features.parts import PartsFolder
from flexpredict.features.rows import PatchType, Row, encode_part, row_of
from flexpredict.features.similarity import similar
from flexpredict.features.similarity_sheet import Neighbour
from flexpredict.progress import Counting
from flexpredict.training.engine import gather, launch_fabric, on_first_rank

__all__ = ["Embedded", "Neighbour", "embed", "similar"]

# Another number whenever the same settings would give other parts.
_VERSION = 1
_SKIPPED_SHOWN = 5


@dataclass(frozen=True)
class Embedded:
    """What was written."""

    files: list[Path]  # the one that was asked for, and those beside it
    images: int
    skipped: int
    examples: list[UnreadableImage]  # the first of those skipped
    row: Row


def embed(
    encoder: str | Path | FrozenEncoder,
    data: str | Sequence[str] | ImageSource | ImageStream,
    out: Path,
    how: Extraction | None = None,
    *,
    patches: PatchType | None = None,
    overwrite: bool = False,
    fabric: Fabric | None = None,
    console: Console | None = None,
) -> Embedded:
    """Write the features of all images into one file, and go on with it if that was begun before.

    Args:
        encoder: what `open_encoder` takes, or what it gives.
        data: what `open_images` takes, or what it gives. Streams are read in order, by one process.
        out: a .parquet, .npy or .safetensors file.
        how: layers, pooling, image size and so on.
        patches: write the features of the patches too, as numbers of this type.
        overwrite: replace `out` if it is there, and parts that were begun with another encoder, settings or images.
        fabric: the processes that share the work; this one alone by default. The file is the same for any number.
        console: where progress goes; the standard output by default.
    """
    output, how = Output(out), how or Extraction()
    fabric = fabric or launch_fabric("auto", 1)
    console = console or Console(soft_wrap=True, quiet=not fabric.is_global_zero)
    parts = PartsFolder(out.with_name(f"{out.name}.parts"))
    on_first_rank(fabric, lambda: output.require_room(parts.is_begun(), overwrite))
    encoder = encoder if isinstance(encoder, FrozenEncoder) else open_encoder(encoder)
    row = row_of(encoder, how, patches)
    with Counting(console, "listing", "images") as counting:
        images = open_images(data, counting.add) if isinstance(data, str | Sequence) else data
    if is_stream(images) and fabric.world_size > 1:
        raise UserError(
            f"{images.name} is a stream, which is read from its beginning to its end and so by one process, but "
            f"there are {fabric.world_size}. Use --devices 1, or convert it once with `flexpredict pack`."
        )
    described = how.describe(encoder) | {"patches": patches or "none", "data": images.name}
    on_first_rank(fabric, lambda: parts.begin(_settings(described, images, row), overwrite))
    work = _Work(encoder, how, row, parts, fabric, console)
    numbers = work.embed_stream(images) if is_stream(images) else work.embed_source(images)
    fabric.barrier()
    facts = {"made_by": f"flexpredict {__version__}", "encoder": encoder.what, **described, "grid": row.grid}
    problems = [] if is_stream(images) else images.problems
    collection = Collection([parts.stored(number) for number in numbers], row, images.classes, problems, facts)
    joined: list[Embedded] = []
    on_first_rank(fabric, lambda: joined.append(_join(collection, output, parts, images.name, console)))
    return gather(fabric, joined)[0][0]


def _settings(described: dict[str, Any], images: ImageSource | ImageStream, row: Row) -> dict[str, Any]:
    """All that makes parts what they are."""
    content = {} if is_stream(images) else {"content": images.fingerprint()}
    return {"version": _VERSION, **described, **identity(images), **content, "images_in_part": row.images_in_part()}


@dataclass(frozen=True)
class _Work:
    """The making of parts."""

    encoder: FrozenEncoder
    how: Extraction
    row: Row
    parts: PartsFolder
    fabric: Fabric
    console: Console

    def embed_source(self, source: ImageSource) -> range:
        """Ranks share the parts that are missing. Gives the numbers of all parts."""
        size = self.row.images_in_part()
        numbers = range(-(-len(source) // size))
        finished = self.parts.finished()
        missing = [number for number in numbers if number not in finished]
        self.fabric.barrier()  # nobody adds to the list of what is done before all have seen it
        done = len(source) - sum(min(size, len(source) - number * size) for number in missing)
        with Counting(self.console, f"features of {source.name}", "images", len(source), done=done) as counting:
            for number in missing[self.fabric.global_rank :: self.fabric.world_size]:
                last = min((number + 1) * size, len(source))
                self._make(number, source_batches(source, self._image_size, self.how, number * size, last), counting)
        return numbers

    def embed_stream(self, stream: ImageStream) -> range:
        """From the first part on that is missing, up to the end of the stream."""
        size = self.row.images_in_part()
        # A part that is not full was the end of the stream, which may have grown since.
        full = {number for number in self.parts.finished() if self.parts.stored(number).images() == size}
        first = next(number for number in count() if number not in full)
        entries = stream_entries(stream, first * size)
        label = f"features of {stream.name}"
        with Counting(self.console, label, "images", stream.length, done=first * size) as counting:
            number = first
            while (
                self._make(number, stream_batches(islice(entries, size), self._image_size, self.how), counting)
                == size
            ):
                number += 1
        return range(number + 1)

    def _make(self, number: int, batches: Iterator[NamedBatch], counting: Counting) -> int:
        """Make and keep one part, of which nothing stays in memory; says of how many images."""
        part = encode_part(
            self.encoder,
            batches,
            self.how,
            self.row,
            self.fabric.device,
            # Of the other ranks' work nothing is heard: what this one does stands for all.
            advance=lambda images: counting.add(images * self.fabric.world_size),
        )
        self.parts.save(number, part)
        return len(part.names) + len(part.skipped)

    @property
    def _image_size(self) -> tuple[int, int]:
        return self.how.image_size or self.encoder.image_size


def _join(collection: Collection, output: Output, parts: PartsFolder, data: str, console: Console) -> Embedded:
    """All parts into the files that were asked for; then they are no longer needed."""
    rows, skipped = collection.rows(), collection.count_skipped()
    examples = list(islice(collection.skipped(), _SKIPPED_SHOWN))
    if not rows:
        why = f": none of {skipped:,} could be read, for example {examples[0]}" if skipped else ""
        raise UserError(f"There are no images to embed in {data}{why}.")
    with (
        parts.kept(),
        Counting(console, "joining", "parts", len(collection.parts) * output.passes(collection)) as counting,
    ):
        files = output.write(replace(collection, advance=counting.add))
    parts.remove()
    embedded = Embedded(files, rows, skipped, examples, collection.row)
    console.print(_summary(embedded, output), highlight=False, markup=False)
    return embedded


def _summary(embedded: Embedded, output: Output) -> str:
    row = embedded.row
    lines = [f"Embedded {embedded.images:,} images, {row.dim} features each."]
    if row.grid is not None:
        lines[0] = lines[0][:-1] + f", and {row.grid[0]}x{row.grid[1]} patches of {row.patch_dim} ({row.patch_type})."
    if embedded.skipped:
        lines.append(f"{embedded.skipped:,} could not be read and were left out; see {output.list_of_skipped}:")
        lines += [f"  {printable(str(failure))}" for failure in embedded.examples]
        lines += ["  …"] if embedded.skipped > len(embedded.examples) else []
    return "\n".join([*lines, f"Written: {', '.join(map(str, embedded.files))}"])
