"""`flexpredict inspect`: what is in a set of images, before anything is trained on it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flexpredict.data.arguments import StreamLike
from flexpredict.settings.augmentation import PRESETS, Augmentation, chosen_augmentation
from flexpredict.settings.extraction import SizeLike, one_image_size
from flexpredict.settings.masking import Masking
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.ranges import Checked, ranged

if TYPE_CHECKING:
    from flexpredict.prepare.inspection import Inspection

_MODELS_OWN_PATCH = 16  # of the models that pre-training chooses by default


@dataclass(frozen=True, kw_only=True)
class InspectSettings(Checked):
    """Settings of `inspect`.

    Args:
        data: images to inspect.
        out: folder for contact_sheet.png, survey.json, broken.jsonl and duplicates.jsonl.
        sample: examine this many images, evenly spaced; of a stream, the first (default: all).
        image_size: height x width of the crops of training, 224 or 256x192 (default: as pretrain chooses).
        patch_size: side of a patch in pixels (default: as pretrain chooses).
        augmentation: random changes to the crops, as in pretrain; single parameters override those of stop.
        masking: which patches are context and which are targets, as in pretrain.
        seed: seed of the crops and masks on the contact sheet.
        workers: processes that decode images; 0 decodes in this process (default: one for each core).
    """

    data: StreamLike = field(kw_only=False)
    out: str | Path = field(default="inspection", kw_only=False)
    sample: int | None = ranged(None, least=1)
    image_size: SizeLike | None = None
    patch_size: int | None = ranged(None, least=1)
    augmentation: Augmentation | dict[str, Any] | Literal["ijepa", "stop", "none"] = "stop"
    masking: Masking = field(default_factory=Masking)
    seed: int = ranged(0, least=0)
    workers: int | None = ranged(None, least=0)


@takes_fields_of(InspectSettings)
def inspect(asked: InspectSettings) -> "Inspection":
    """Count and check images, and draw a contact sheet of them.

    Decodes every image, and finds sizes, formats, classes, broken files and exact duplicates. The contact sheet shows
    some of the images, and what the model will see of them after augmentation and masking.
    """
    from rich.console import Console

    from flexpredict.data.sources.opening import is_stream, open_data
    from flexpredict.data.sources.streams import first_images
    from flexpredict.prepare.contact_sheet import TrainingView
    from flexpredict.prepare.inspection import inspect_images
    from flexpredict.sizes import default_image_size, default_patch_size

    size, console = one_image_size(asked.image_size), Console(soft_wrap=True)
    images = open_data(asked.data, console)
    if size is None:
        sizes = (first_images(images) if is_stream(images) else images).sizes()
        size = (default_image_size(sizes),) * 2 if sizes else None
    view = None  # stays None if no image can be read
    if size is not None:
        augmentation = chosen_augmentation(asked.augmentation, PRESETS["stop"])
        patch_size = asked.patch_size or default_patch_size(size, _MODELS_OWN_PATCH)
        view = TrainingView(size, patch_size, augmentation, asked.masking, asked.seed)
        # Settings that do not work are refused now, not after an hour of decoding.
        view.check()
    return inspect_images(images, asked, view, console)
