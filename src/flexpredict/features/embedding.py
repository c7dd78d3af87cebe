"""Writes the features of any number of images into one file.

Parts are kept beside the file until all are finished, and are then joined one by one: no more than one part is in
memory, and interrupted work continues after the last part.
"""

from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from rich.console import Console
from rich.table import Table

from flexpredict import __version__
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import is_stream
from flexpredict.data.sources.streams import ImageStream, identity
from flexpredict.errors import UserError, printable
from flexpredict.features.embed import EmbedSettings
from flexpredict.features.embedding_files import EmbeddingFiles, JoinedParts
from flexpredict.features.encoding import FeatureShape, PatchType, feature_shape
from flexpredict.features.extraction import make_parts
from flexpredict.features.parts import PartsFolder, images_in_part
from flexpredict.features.workspace import Workspace
from flexpredict.progress import Counting
from flexpredict.showing import numbers_table
from flexpredict.training.engine import on_first_rank

# Change this whenever the same settings would give other parts.
_VERSION = 2
_SKIPPED_SHOWN = 5


@dataclass(frozen=True)
class EmbedResult:
    """The result of `embed`."""

    files: list[Path]  # the requested file, then those beside it
    images: int
    skipped: int  # images that could not be read
    shape: FeatureShape
    examples: list[UnreadableImage] = field(default_factory=list)  # the first skipped images

    @property
    def warnings(self) -> list[str]:
        if not self.skipped:
            return []
        names = "".join(f"\n  {printable(str(failure))}" for failure in self.examples)
        more = "\n  …" if self.skipped > len(self.examples) else ""
        return [f"{self.skipped:,} images could not be read and were left out; see {self.files[-1]}:{names}{more}"]

    def tables(self) -> list[tuple[str, Table]]:
        patches = ""
        if (grid := self.shape.grid) is not None:
            patches = f", and {grid[0]}x{grid[1]} patches of {self.shape.patch_dim} ({self.shape.patch_type})"
        return [(f"Embedded {self.images:,} images, {self.shape.dim} features each{patches}.", self.table())]

    def table(self) -> Table:
        return numbers_table({path.name: {"kB": f"{path.stat().st_size / 1e3:,.1f}"} for path in self.files})

    def to_dict(self) -> dict[str, Any]:
        return {
            "files": [str(path) for path in self.files],
            "images": self.images,
            "skipped": self.skipped,
            "dim": self.shape.dim,
            "grid": self.shape.grid,
            "patch_dim": self.shape.patch_dim,
        }


def write_embedding(space: Workspace, images: ImageSource | ImageStream, asked: EmbedSettings) -> EmbedResult:
    """Write the features of all images into one file, or continue after an interruption.

    The file is the same for any number of processes that share the work.
    """
    encoder, fabric, console = space.encoder, space.fabric, space.console
    patches: PatchType | None = asked.dtype if asked.patches else None
    files, parts = require_free(asked, fabric)
    shape = feature_shape(encoder, asked, patches)
    if is_stream(images) and fabric.world_size > 1:
        raise UserError(
            f"{images.name} is a stream, which only one process can read, but there are {fabric.world_size}. Use "
            "devices=1, or convert it once with `flexpredict pack`."
        )
    size = images_in_part(shape.bytes_per_image)
    described = asked.describe(encoder) | {"patches": patches or "none", "data": images.name}
    content = {} if is_stream(images) else {"content": images.fingerprint()}
    settings = {"version": _VERSION, **described, **identity(images), **content, "images_in_part": size}
    on_first_rank(fabric, lambda: parts.begin(settings, asked.overwrite))
    stored = make_parts(images, encoder, asked, parts, size, fabric, console, patches)
    facts = {"made_by": f"flexpredict {__version__}", "encoder": encoder.what, **described, "grid": shape.grid}
    problems = [] if is_stream(images) else images.problems
    joined = JoinedParts(stored, shape, images.classes, problems, facts)
    return on_first_rank(fabric, lambda: _join(joined, files, parts, images.name, console))


def require_free(asked: EmbedSettings, fabric: Fabric) -> tuple[EmbeddingFiles, PartsFolder]:
    """The files and parts of an embedding; refuses an `out` that is a folder, or files that already exist."""
    out = Path(asked.out)
    files, parts = EmbeddingFiles(out), PartsFolder(out.with_name(f"{out.name}.parts"))
    on_first_rank(fabric, lambda: files.require_free(parts.is_begun(), asked.overwrite))
    return files, parts


def _join(joined: JoinedParts, files: EmbeddingFiles, parts: PartsFolder, data: str, console: Console) -> EmbedResult:
    """Write the files that were asked for; after that, the parts are no longer needed."""
    rows, skipped = joined.rows(), joined.count_skipped()
    examples = list(islice(joined.skipped(), _SKIPPED_SHOWN))
    if not rows:
        why = f": none of {skipped:,} could be read, for example {examples[0]}" if skipped else ""
        raise UserError(f"There are no images to embed in {data}{why}.")
    total = len(joined.parts) * files.passes(joined)
    with parts.kept(), Counting(console, "joining", "parts", total) as counting:
        written = files.write(replace(joined, advance=counting.add))
    parts.remove()
    return EmbedResult(written, rows, skipped, joined.shape, examples)
