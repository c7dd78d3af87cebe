"""What `ablate` takes: a recipe that all runs share, and what is varied and measured."""

from dataclasses import dataclass, field
from pathlib import Path

from flexpredict.settings.recipe import Recipe
from flexpredict.settings.run import Names


@dataclass(kw_only=True)
class AblationSettings(Recipe):
    """A recipe that all runs share, and what is varied and measured.

    Args:
        study: a study: table6 (positions), table7 (noise on which tokens), table8 (half resolution), fig3 (level and
            covariance), fig4 (norms of A and m̃), l1 (L1 on A), covariance (tied, fixed, untied, diagonal, from the
            image), or all.
        test: labeled images to test on (scenes have their own).
        seeds: runs of each arm; seeds count up from `seed`.
        labels: shares of the labels that the probes are trained on.
        levels: noise levels of fig3 and fig4.
        l1_weight: weight of the penalty in the study l1.
        jobs: runs at a time, which share the cores.
        out: folder for runs, tables and figures.
        config: a recipe file such as configs/vit_b16.yaml; settings that are given beside it override it.
        dry_run: show the plan and how long it would take, and start nothing.
    """

    study: str = field(kw_only=False)
    data: Names | None = None  # type: ignore[assignment]
    test: Names | None = None
    seeds: int = 3
    labels: list[float] = field(default_factory=lambda: [0.01, 1.0])
    levels: list[float] | None = None
    l1_weight: float = 1e-5
    jobs: int = 1
    out: str | Path = "ablations"
    config: str | Path | None = None
    dry_run: bool = False
