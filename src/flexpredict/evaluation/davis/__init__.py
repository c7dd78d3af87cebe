"""`flexpredict evaluate davis`: segments the objects of videos by carrying the masks of the first frame along."""

from pathlib import Path
from typing import Literal

from flexpredict.evaluation.results import Result
from flexpredict.features.arguments import EncoderLike, Which


def evaluate_davis(
    encoder: EncoderLike | None = None,
    *,
    data: str | Path,
    score_only: str | Path | None = None,
    split: str = "val",
    year: Literal["2016", "2017"] = "2017",
    queue: int = 7,
    radius: int = 12,
    top_k: int = 5,
    temperature: float = 0.1,
    height: int = 480,
    overlays: Literal["gif", "mp4", "none"] = "gif",
    accelerator: str = "auto",
    which: Which = "target",
    heads: int | None = None,
    grid: str | None = None,
    partial: bool = False,
    out: str | Path = "results/davis",
    table: str | Path | None = None,
) -> Result:
    """Semi-supervised video object segmentation with features of the last layer, by DINO's protocol.

    The masks of the first frame are carried on from patch to similar patch. Frames keep their aspect ratio: the
    shorter side becomes `height`, and both sides the nearest multiple of the patch size. OUT holds
    masks/SEQUENCE/00000.png, overlays/SEQUENCE.gif, scores.csv (J, F, recall, decay), sequences.csv and result.json.
    Sequences whose masks are there already, made with the same settings, are not segmented again.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME.
        data: the DAVIS folder, or scenes:8,size=96,frames=16,seed=0 for built-in videos.
        score_only: score the masks in this folder, which another method made; no encoder is needed.
        split: list of sequences in ImageSets.
        year: 2016 takes all objects of a sequence for one.
        queue: number of previous frames to look at, besides the first.
        radius: radius of the neighborhood, in patches; 0 looks everywhere.
        top_k: number of most similar patches that vote.
        temperature: temperature of the similarities.
        height: shorter side of the frames, in pixels.
        overlays: format of the films that show the masks.
        accelerator: auto, cpu, cuda or mps.
        which: encoder to take from a run or checkpoint that has two.
        heads: attention heads, if a checkpoint does not tell.
        grid: rows x columns of patches, 4x16, if a checkpoint does not tell.
        partial: accept a checkpoint with missing or additional tensors.
        out: folder to write masks, films and scores to.
        table: a CSV file to add the numbers to, one row for each encoder.
    """
    from flexpredict.errors import UserError
    from flexpredict.evaluation.davis.propagation import Propagation
    from flexpredict.evaluation.davis.scoring import score_masks
    from flexpredict.evaluation.davis.segmentation import segment_videos
    from flexpredict.evaluation.dense.protocol import launch_one
    from flexpredict.evaluation.result_files import ResultPlaces
    from flexpredict.features.workspace import open_console, open_workspace

    how = Propagation(queue, radius, top_k, temperature)
    places = ResultPlaces(None, table)
    if encoder is None and score_only is None:
        raise UserError("There is nothing to evaluate. Give an encoder, or masks of another method as score_only.")
    fabric = launch_one(accelerator, "DAVIS")
    if score_only is not None:
        console = open_console(fabric)
        result = score_masks(Path(score_only), str(data), Path(out), split=split, year=year, console=console)
    else:
        assert encoder is not None
        space = open_workspace(encoder, fabric, which, heads, grid, partial)
        result = segment_videos(
            space, str(data), Path(out), how, split=split, year=year, height=height, overlays=overlays
        )
    places.save([result], fabric)
    return result
