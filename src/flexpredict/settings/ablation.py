"""Settings of `ablate`: a recipe that all runs share, and what is varied and measured."""

from dataclasses import dataclass, field
from pathlib import Path

from flexpredict.settings.ranges import ranged
from flexpredict.settings.recipe import Recipe
from flexpredict.settings.run import Names, RecipeFile


@dataclass(kw_only=True)
class StudySettings(RecipeFile):
    """Settings of a study: what is varied and what is measured.

    Args:
        study: from the paper: table6 (positions), table7 (noise on which tokens), table8 (half resolution), fig3
            (level and covariance), fig4 (norms of A and m̃), l1 (L1 on A), covariance (tied, fixed, untied, diagonal,
            by image), mae (on MAE), or paper for all of these; about the recipe: targets, noise, ema, lr, optimizer,
            masks, predictor, augmentation, grid, embedding, combined, or search for all of these; on the scenes:
            where (stochastic positions as the location of parts becomes freer).
        test: labeled images to test on (by default a share of the images is held out for validation).
        holdout: share of the images for validation, held out before pre-training.
        seeds: runs of each arm, from `seed` on (by default 3; where: 5).
        labels: shares of the labels to train the probes on.
        subsets: random subsets drawn for each share below 1.
        location_images: largest number of images to measure location with, but at least the number of classes.
        transfer: also measure a linear probe on other labeled images: those to fit it on, and those to test it on.
        clevr: also measure counting and distance: the folder of CLEVR, or scenes:10000,size=64.
        davis: also follow objects through videos: the folder of DAVIS, or scenes.
        noise: noise level of the paper's studies as ‖A n‖ / ‖ψ‖ (paper: 0.2).
        arms: only these arms of the study, by the names that `dry_run` shows, and those they are compared with.
        levels: values of the one number that fig3, fig4, noise, ema, lr, grid and where vary.
        where: how freely parts are placed in the study where, 0 to 1.
        l1_weight: weight of the penalty in the study l1.
        jobs: runs at a time (by default one for each core).
        nice: priority given to other processes, 0 (none) to 19.
        out: folder for runs, tables and figures.
        chapter: folder for a page with the results, such as studies/table6.
        dry_run: show the plan and how long it would take, and start nothing.
    """

    study: str = field(kw_only=False)
    test: list[str] | str | None = None
    holdout: float = ranged(0.1, above=0, below=1)
    seeds: int | None = ranged(None, least=1)
    labels: list[float] = ranged([0.01, 1.0], above=0, most=1)
    subsets: int = ranged(5, least=1)
    location_images: int = ranged(2000, least=10)
    transfer: list[str] = field(default_factory=list)
    clevr: str | None = None
    davis: str | None = None
    noise: float = ranged(0.2, least=0)
    arms: list[str] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)
    where: list[float] = ranged([0.0, 0.25, 0.5, 0.75, 1.0], least=0, most=1)
    l1_weight: float = ranged(1e-5, least=0)
    jobs: int | None = ranged(None, least=1)
    nice: int = ranged(0, least=0, most=19)
    out: str | Path = "ablations"
    chapter: str | Path | None = None
    dry_run: bool = False


@dataclass(kw_only=True)
class AblationSettings(Recipe, StudySettings):
    """A recipe that all runs share, and what is varied and measured."""

    data: Names | None = None  # type: ignore[assignment]
    test: Names | None = None  # type: ignore[assignment]
