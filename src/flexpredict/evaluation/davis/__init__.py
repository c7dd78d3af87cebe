"""`flexpredict evaluate davis`: segments the objects of videos by carrying the masks of the first frame along."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from flexpredict.encoders.arguments import EncoderLike, EncoderOptions
from flexpredict.errors import UserError
from flexpredict.evaluation.results import AUTO, Result, ResultTable, place_of_results
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.ranges import Checked, ranged


@dataclass(frozen=True, kw_only=True)
class Propagation(Checked):
    """How labels are carried over. The defaults are DINO's.

    Args:
        queue: number of previous frames to look at, besides the first.
        radius: radius of the neighborhood, in patches; 0 looks everywhere.
        top_k: number of most similar patches that vote.
        temperature: temperature of the similarities.
    """

    queue: int = ranged(7, least=0)
    radius: int = ranged(12, least=0)
    top_k: int = ranged(5, least=1)
    temperature: float = ranged(0.1, above=0)


@dataclass(frozen=True, kw_only=True)
class DavisSettings(EncoderOptions, Propagation, ResultTable):
    """Settings of `evaluate_davis`.

    Args:
        encoder: a run folder, a checkpoint (I-JEPA, StoP, MAE, DINO …), timm:NAME or hf:NAME.
        data: the DAVIS folder, or scenes:8,size=96,frames=16,seed=0 for built-in videos.
        score_only: score the masks in this folder, which another method made; no encoder is needed.
        split: list of sequences in ImageSets.
        year: 2016 treats all objects of a sequence as one.
        height: shorter side of the frames, in pixels.
        overlays: format of the films that show the masks.
        accelerator: auto, cpu, cuda or mps.
        out: folder to write masks, films and scores to (default: auto, which is RUN/davis for a run folder, where its
            page finds them, and results/davis for any other encoder).
    """

    encoder: EncoderLike | None = field(default=None, kw_only=False)
    data: str | Path
    score_only: str | Path | None = None
    split: str = "val"
    year: Literal["2016", "2017"] = "2017"
    height: int = ranged(480, least=1)
    overlays: Literal["gif", "mp4", "none"] = "gif"
    accelerator: str = "auto"
    out: str | Path = AUTO

    @property
    def place(self) -> Path:
        """The folder that everything is written to."""
        return place_of_results(self.out, None if self.score_only is not None else self.encoder, "davis")


@takes_fields_of(DavisSettings)
def evaluate_davis(asked: DavisSettings) -> Result:
    """Semi-supervised video object segmentation with features of the last layer, by DINO's protocol.

    The masks of the first frame are carried on from patch to similar patch. Frames keep their aspect ratio: the
    shorter side becomes `height`, and both sides the nearest multiple of the patch size. OUT holds
    masks/SEQUENCE/00000.png, overlays/SEQUENCE.gif, scores.csv (J, F, recall, decay), sequences.csv and result.json.
    Sequences that already have masks, made with the same settings, are not segmented again.
    """
    from flexpredict.evaluation.davis.scores import score_masks
    from flexpredict.evaluation.davis.segmentation import segment_videos
    from flexpredict.features.workspace import launch_one, open_console, open_workspace

    fabric = launch_one(asked.accelerator, "DAVIS")
    if asked.score_only is not None:
        result = score_masks(Path(asked.score_only), asked, open_console(fabric))
    elif asked.encoder is not None:
        result = segment_videos(open_workspace(asked.encoder, fabric, asked), asked)
    else:
        raise UserError("There is nothing to evaluate. Give an encoder, or masks of another method as score_only.")
    asked.save(result, fabric)
    return result
