"""`inspect` and `pack`: images before training."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from flexpredict.errors import UserError, some_of
from flexpredict.features.arguments import SizeLike, StreamLike
from flexpredict.settings.augmentation import PRESETS
from flexpredict.settings.extraction import one_image_size
from flexpredict.showing import SimpleResult, facts_table

if TYPE_CHECKING:
    from flexpredict.data.sources.manifest import Manifest
    from flexpredict.prepare.inspection import Survey


@dataclass(frozen=True)
class InspectResult(SimpleResult):
    """What a set of images holds. It is shown as soon as all are counted, before the contact sheet is drawn.

    Args:
        survey: counts, sizes, formats, classes, broken files, duplicates and warnings.
        out: the folder with contact_sheet.png, survey.json, broken.jsonl and duplicates.jsonl.
    """

    survey: "Survey"
    out: Path

    def table(self) -> Table:
        from flexpredict.prepare.inspection.table import fact_table

        return fact_table(self.survey)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self.survey), "out": str(self.out)}


@dataclass(frozen=True)
class PackResult(SimpleResult):
    """Shards that were written or verified.

    Args:
        manifest: counts, checksums, and what was left out.
        out: the folder of the shards.
        verified: whether they were compared with their checksums, and not written.
    """

    manifest: "Manifest"
    out: Path
    verified: bool = False

    def tables(self) -> list[tuple[str, Table | None]]:
        return [("", self.table())]

    def table(self) -> Table:
        facts = {name: f"{value:,}" if isinstance(value, int) else value for name, value in self.to_dict().items()}
        return facts_table(
            facts | {"verified": "yes, all shards are as they were written" if self.verified else "no"}
        )

    def to_dict(self) -> dict[str, Any]:
        made = self.manifest
        return {
            "out": str(self.out),
            "images": made.images,
            "shards": len(made.shards),
            "bytes": made.bytes,
            "skipped": len(made.skipped),
            "verified": self.verified,
        }


def inspect(
    source: StreamLike,
    *,
    out: str | Path = "inspection",
    sample: int | None = None,
    workers: int | None = None,
    image_size: SizeLike | None = None,
    patch_size: int | None = None,
    augmentation: Literal["ijepa", "stop", "none"] = "stop",
    seed: int = 0,
) -> InspectResult:
    """See what is in a set of images: counts, sizes, formats, classes, broken files and exact duplicates.

    Also draws a contact sheet, with what the model will see of the images after augmentation and masking.

    Args:
        source: a folder of images, tar shards (shards-{000..127}.tar), parquet files, a folder made by save_to_disk,
            hf://NAME[:SPLIT], or scenes; or several of these.
        out: folder for the picture and the lists.
        sample: look at so many evenly spaced images only.
        workers: processes that read images (default: one a core).
        image_size: size that training would use, 224 or 256x192 (default: as pretrain would choose).
        patch_size: side of a patch (default: as pretrain would choose).
        augmentation: what happens to the crops.
        seed: seed of the images, crops and masks that are drawn.
    """
    size = one_image_size(image_size)
    from flexpredict.prepare.inspection import inspect as inspect_images

    survey = inspect_images(
        source if not isinstance(source, Path) else str(source),
        Path(out),
        sample=sample,
        workers=workers,
        image_size=size,
        patch_size=patch_size,
        augmentation=PRESETS[augmentation],
        seed=seed,
    )
    return InspectResult(survey, Path(out))


def pack(
    source: StreamLike,
    out: str | Path | None = None,
    *,
    size: int = 256,
    quality: int = 90,
    images_per_shard: int = 1000,
    workers: int | None = None,
    max_skipped: float = 0.05,
    verify: bool = False,
) -> PackResult:
    """Convert images once into WebDataset shards at training resolution, which are several times quicker to read.

    Run it again to go on after an interruption. Then pre-train on the folder of shards.

    Args:
        source: a folder of images, tar shards (shards-{000..127}.tar), parquet files, a folder made by save_to_disk,
            hf://NAME[:SPLIT], or scenes; or several of these.
        out: the folder for the shards.
        size: shorter side of the packed images; smaller ones are not enlarged.
        quality: quality of the JPEGs, up to 100.
        images_per_shard: images in one shard.
        workers: processes that convert images (default: one a core).
        max_skipped: largest share of unreadable images.
        verify: only check the shards in the folder `source` against their checksums.
    """
    if verify:
        return _verified(Path(str(source[0] if isinstance(source, list) else source)))
    if out is None:
        raise UserError("The folder for the shards is missing: give `out`.")
    from flexpredict.prepare.packing import pack as pack_images

    manifest = pack_images(
        str(source) if isinstance(source, Path) else source,
        Path(out),
        size=size,
        quality=quality,
        images_per_shard=images_per_shard,
        workers=workers,
        max_skipped=max_skipped,
    )
    return PackResult(manifest, Path(out))


def _verified(folder: Path) -> PackResult:
    from flexpredict.data.sources.manifest import Manifest, verify

    problems = verify(folder)
    if problems:
        raise UserError(f"Shards in {folder} are damaged: {some_of(problems)}. Pack the images again.")
    manifest = Manifest.load(folder)
    assert manifest is not None
    return PackResult(manifest, folder, verified=True)
