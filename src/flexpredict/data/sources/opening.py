"""Opens images by name: a folder, shards, tables, the hub, a stream, scenes, or several of these."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from flexpredict.data.arguments import ImagesLike, StreamLike
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.loader import evaluation_batch
from flexpredict.data.scenes.scenes import CLASSES, IMAGE_OPTIONS, SceneOptions, draw_scenes, read_options
from flexpredict.data.sources.derived import JoinedSource, part_of, split_part
from flexpredict.data.sources.folders import open_folder, suffix
from flexpredict.data.sources.image_source import ArraySource, ImageSource, evenly_spaced
from flexpredict.data.sources.listing import Count
from flexpredict.data.sources.manifest import PACKING_SETTINGS, Manifest
from flexpredict.data.sources.shards import ShardStream, can_be_indexed, expand_braces, matching_files, open_shards
from flexpredict.data.sources.streams import ImageStream, JoinedStream, SourceAsStream, is_stream
from flexpredict.errors import UserError, did_you_mean
from flexpredict.named_options import split_options
from flexpredict.progress import Counting

__all__ = ["ArraySource", "ImageSource", "ImageStream", "is_stream", "open_images", "open_source"]

_TRIED_ON_OPENING = 32
_SCENES = 10_000
_SHARDS = (".tar", ".tgz", ".gz", ".bz2", ".xz")
_FILES = (*_SHARDS, ".parquet")
_OPTIONS = ("image", "label", "split", "config", "revision")
_SPLIT = re.compile(r"(train|test|val(?:id(?:ation)?)?|dev|eval)(?![a-z])")
_FEW_IMAGES = 1000  # fewer images beside shards are more likely a preview than the data
_KINDS = ("scenes", "stream", "pipe", "hf")  # beginnings of names that are not paths, before : or a comma
_WAYS = (
    "a folder of images, tar shards (shards-{000..127}.tar), parquet files, hf://NAME, or scenes to try things out"
)
_STREAMED = "stream: is for shards, parquet files and hf://"


def open_images(data: StreamLike, count: Count = lambda found: None) -> ImageSource | ImageStream:
    """Open images by name; `count` is called with numbers of images as they are listed. Returns opened ones as is.

    - a folder of images, nested and linked in any way; if all are in folders directly below it, at least two, those
      are the classes
    - WebDataset shards: shards-{000..127}.tar, a folder of them, or pipe:COMMAND, whose output is a shard
    - Hugging Face data sets: hf://NAME, hf://NAME:SPLIT, a folder made by save_to_disk, or parquet files
    - the built-in scenes: scenes, or scenes:5000,size=64,seed=0,split=test,where=0.5
    - stream: before shards, parquet files or hf:// reads them from beginning to end, without index, cache or download
    - several of these as a list

    Options follow a comma: hf://NAME:SPLIT,config=…,image=COLUMN,label=COLUMN or FOLDER,split=test. part=0-0.1 and
    part=0.1-1 divide anything but a stream. A folder that is itself called scenes is ./scenes.
    """
    if not isinstance(data, str | Path | Sequence):
        return data
    names = [str(data)] if isinstance(data, str | Path) else list(map(str, data))
    if not names:
        raise UserError(f"No data was named. Give {_WAYS}.")
    opened = [_open_part(name, count) for name in names]
    if len(opened) == 1:
        return opened[0]
    if any(is_stream(one) for one in opened):
        return JoinedStream([one if is_stream(one) else SourceAsStream(one) for one in opened])
    return JoinedSource([one for one in opened if not is_stream(one)])


def absolute_names(data: str | list[str]) -> str | list[str]:
    """Names of the same data that work from any folder."""
    if not isinstance(data, str):
        return [str(absolute_names(name)) for name in data]
    stream = "stream:" * data.startswith("stream:")
    name = data.removeprefix(stream)
    return data if not is_path(name) else stream + os.path.abspath(os.path.expanduser(name))


def is_path(name: str) -> bool:
    """Whether the name is the path of files on this machine."""
    return re.split("[:,]", name)[0] not in _KINDS


def open_data(data: StreamLike, console: Console) -> ImageSource | ImageStream:
    """Like `open_images`, and shows the progress of listing on the console."""
    with Counting(console, "listing", "images") as counting:
        return open_images(data, counting.add)


def open_source(data: ImagesLike, count: Count = lambda found: None) -> ImageSource:
    """Like `open_images`, but refuses a stream: for callers that read images in any order."""
    opened = open_images(data, count)
    if is_stream(opened):
        shown = " ".join(f"'{name}'" for name in (data if isinstance(data, list | tuple) else [data]))
        raise UserError(
            f"{opened.name} is a stream, which is read from beginning to end, but here images are read in any "
            f"order. Convert it once with `flexpredict pack {shown} FOLDER`, then give that folder."
        )
    return opened


def _open_part(uri: str, count: Count) -> ImageSource | ImageStream:
    name, part = split_part(uri)
    if part is None:
        return _open(name, count)
    opened = _open_part(name, count)
    if is_stream(opened):
        raise UserError(f"{opened.name} is a stream, which cannot be divided. Leave {part} out, or pack it first.")
    return part_of(opened, part)


def _open(uri: str, count: Count) -> ImageSource | ImageStream:
    stream = uri.startswith("stream:")
    name = uri.removeprefix("stream:")
    if name.startswith("pipe:"):
        return ShardStream(name, expand_braces(name))
    if name.partition(":")[0] == "scenes":
        _refuse_stream(stream, f"{name} are drawn in memory")
        return _open_scenes(name)
    name, options = split_options(name, _OPTIONS)
    if name.startswith("hf://"):
        from flexpredict.data.sources.hub import open_hub  # pyarrow takes a while to import

        name, _, split = name.removeprefix("hf://").partition(":")
        if split and "split" in options:
            raise UserError(f"{uri} names two splits. Leave one out.")
        return _readable(open_hub(name, split or options.get("split"), options, stream))
    files = _files(name, uri)
    if isinstance(files, Path):
        return _readable(_open_folder(files, options, stream, count))
    return _open_files(uri, files, options, stream, count)


def _refuse_stream(stream: bool, why: str) -> None:
    if stream:
        raise UserError(f"{_STREAMED}, but {why}. Leave stream: out.")


def _open_folder(folder: Path, options: dict[str, str], stream: bool, count: Count) -> ImageSource | ImageStream:
    """A folder of any kind: a packed or saved data set, images, shards or tables."""
    if (manifest := Manifest.load(folder)) is not None:
        shards = [str(folder / shard.name) for shard in manifest.shards]
        for shard in manifest.shards:
            path = folder / shard.name
            if not path.is_file() or path.stat().st_size != shard.bytes:
                raise UserError(f"{path} is missing or not as it was packed. Restore it, or pack the images again.")
        return _open_files(str(folder), shards, options, stream, count)
    if (folder / PACKING_SETTINGS).is_file():
        raise UserError(f"{folder} is packed only in part. Run the same `flexpredict pack` again to finish it.")
    if _is_saved(folder):
        from flexpredict.data.sources.hub import open_saved

        _refuse_stream(stream, f"{folder} is a saved data set, which can be read in any order")
        return open_saved(folder, options.get("split"), options)
    try:
        images = open_folder(folder, count)
    except UserError:
        if shards := _shards_in(folder):
            return _open_files(str(folder), shards, options, stream, count)
        tables = sorted(map(str, folder.rglob("*.parquet")))
        if not tables:
            raise
        name, tables = _one_split(folder, tables, options.pop("split", None))
        return _open_files(name, tables, options, stream, count)
    _refuse_options(f"{folder}, a folder of image files,", options, ())
    _refuse_stream(stream, f"{folder} is a folder of image files, which can be read in any order")
    if len(images) < _FEW_IMAGES and _shards_in(folder):
        raise UserError(
            f"{folder} holds {len(images)} image(s) and shards beside them. Name what you mean: the shards as"
            f" {folder}/*.tar, or move one of them elsewhere."
        )
    return images


def _is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` of the `datasets` library made this folder."""
    one = all((folder / name).is_file() for name in ("dataset_info.json", "state.json"))
    return one or (folder / "dataset_dict.json").is_file()


def _shards_in(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.iterdir() if suffix(path.name) in _SHARDS)


def _open_files(
    name: str, files: list[str], options: dict[str, str], stream: bool, count: Count
) -> ImageSource | ImageStream:
    _refuse_options(name, options, ("image", "label") if suffix(files[0]) == ".parquet" else ())
    kinds = {"tables" if suffix(file) == ".parquet" else "shards" for file in files}
    if len(kinds) > 1:
        raise UserError(f"{name} names shards and tables at once. Give them as two sources.")
    if kinds == {"tables"}:
        from flexpredict.data.sources.tables import TableStream, open_tables

        columns = options.get("image"), options.get("label")
        return TableStream(name, files, *columns) if stream else _readable(open_tables(name, files, *columns, count))
    if stream or not all(can_be_indexed(file) for file in files):
        return ShardStream(name, files)
    return _readable(open_shards(name, files, count))


def _files(name: str, uri: str) -> Path | list[str]:
    """The folder, or the files, that a name stands for."""
    path = Path(name).expanduser()
    if name and path.is_dir():
        return path
    files = [str(path)] if path.is_file() else sorted(matching_files(name))
    known = [file for file in files if suffix(file) in _FILES]
    if files and not known:
        raise UserError(
            f"{files[0]} is a file, but neither a tar shard nor a parquet table. Give the folder of the images."
        )
    if known:
        return known
    kind, colon, _ = uri.partition(":")
    if colon and "/" not in kind and len(kind) > 1 and kind != "stream":
        raise UserError(f"'{kind}:' in {uri} is not a kind of data set.{did_you_mean(kind, _KINDS)} Give {_WAYS}.")
    if re.search(r"[{*?]", name):
        raise UserError(f"No file matches {name} (looked for in {Path.cwd()}).")
    raise UserError(f"There is no folder '{name}' (looked for in {Path.cwd()}).{_similar_names(path)} Give {_WAYS}.")


def _refuse_options(name: str, options: dict[str, str], known: tuple[str, ...]) -> None:
    for option in options:
        if option not in known:
            raise UserError(
                f"{name} has no option '{option}'; it has {', '.join(known) or 'none'}. To choose a split, name its"
                " files, or the folder that holds all splits."
            )


def _one_split(folder: Path, tables: list[str], split: str | None) -> tuple[str, list[str]]:
    """Files named train-00000-of-00002.parquet and the like belong to a split; the first (train) by default."""
    splits: dict[str, list[str]] = {}
    for table in tables:
        # train-00000-of-00002.parquet, or train/0000.parquet
        parts = reversed(Path(table).relative_to(folder).parts)
        found = next(filter(None, (_SPLIT.match(part.lower()) for part in parts)), None)
        splits.setdefault(found.group(1) if found else "", []).append(table)
    if split is not None and split not in splits:
        known = ", ".join(name or "(none)" for name in splits)
        raise UserError(f"{folder} has no tables of a split '{split}'.{did_you_mean(split, splits)} It has: {known}.")
    chosen = split if split is not None else "train" if "train" in splits else next(iter(splits))
    return f"{folder}, split {chosen}" if chosen else str(folder), splits[chosen]


def _readable(source: ImageSource | ImageStream) -> ImageSource | ImageStream:
    """Refuse a source without any readable image before it is used."""
    if is_stream(source):
        return source  # its beginning is read anyway, for the size of its images
    failures: list[UnreadableImage] = []
    for tried in evenly_spaced(len(source), _TRIED_ON_OPENING):
        skipped = evaluation_batch(source, (16, 16), range(tried, tried + 1)).skipped
        if not skipped:
            return source
        failures += skipped
    raise UserError(
        f"Of {len(source)} images in {source.name}, {len(failures)} were tried and none could be read; for example"
        f" {failures[0]}. Check that the files are complete and are images."
    )


def _similar_names(path: Path) -> str:
    """A hint at folders and files of images beside the path with a similar name."""
    try:
        entries = [entry for entry in os.scandir(path.parent) if entry.is_dir() or suffix(entry.name) in _FILES]
    except OSError:
        return ""
    return did_you_mean(path.name, [entry.name for entry in entries])


def _open_scenes(uri: str) -> ArraySource:
    asked = read_options(uri, SceneOptions(count=_SCENES), IMAGE_OPTIONS)
    chosen = asked.first + np.arange(asked.count)
    scenes = draw_scenes(chosen, size=asked.size, seed=asked.seed, split=asked.split, where=asked.where)
    return ArraySource(uri, torch.from_numpy(scenes.images), CLASSES, torch.from_numpy(scenes.classes))
