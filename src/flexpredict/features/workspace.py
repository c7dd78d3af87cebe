"""The workspace of a command: an encoder, the processes that share the work, and a console for progress."""

from dataclasses import dataclass, fields

from lightning_fabric import Fabric
from rich.console import Console

from flexpredict.data.arguments import ImagesLike, StreamLike
from flexpredict.data.sources.image_source import ImageSource
from flexpredict.data.sources.opening import open_data, open_source
from flexpredict.data.sources.streams import ImageStream
from flexpredict.encoders.arguments import EncoderLike, EncoderOptions
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.opening import open_encoder
from flexpredict.errors import UserError
from flexpredict.progress import Counting
from flexpredict.showing import say
from flexpredict.training.engine import launch_fabric


@dataclass(frozen=True)
class Workspace:
    """The encoder, processes and console of a command."""

    encoder: ImageEncoder
    fabric: Fabric
    console: Console

    def open_source(self, data: ImagesLike) -> ImageSource:
        """Images that can be read in any order."""
        with Counting(self.console, "listing", "images") as counting:
            return open_source(data, counting.add)

    def open_images(self, data: StreamLike) -> ImageSource | ImageStream:
        """Images, or a stream of them."""
        return open_data(data, self.console)


def open_workspace(encoder: EncoderLike, fabric: Fabric, options: EncoderOptions) -> Workspace:
    """Open an encoder, and describe it on the console."""
    console = open_console(fabric)
    how = {field.name: getattr(options, field.name) for field in fields(EncoderOptions)}
    opened = open_encoder(encoder, **how)
    if opened is encoder:
        return Workspace(opened, fabric, console)
    say(console, f"Encoder: {opened.what}, {opened.depth} layers of {opened.dim}")
    for line in opened.details:
        say(console, f"  {line}")
    return Workspace(opened, fabric, console)


def launch_one(accelerator: str, task: str) -> Fabric:
    """Launch a single process, for work that several cannot share."""
    fabric = launch_fabric(accelerator, 1)
    if fabric.world_size > 1:
        raise UserError(f"{task} is evaluated by one process. Start it without torchrun.")
    return fabric


def open_console(fabric: Fabric) -> Console:
    """A console on which only the first process prints."""
    return Console(soft_wrap=True, quiet=not fabric.is_global_zero)
