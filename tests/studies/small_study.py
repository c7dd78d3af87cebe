"""Studies small enough for tests: 64 scenes of 32 pixels, one block, two steps."""

from pathlib import Path
from typing import Any

from rich.console import Console
from tiny import RECIPE

from flexpredict.settings.recipe import Recipe
from flexpredict.studies.ablations.planning import Ablation
from flexpredict.training.recipe_parser import make_recipe

DATA, TEST = "scenes:64,size=32", "scenes:40,size=32,split=test"


def base(**fields: Any) -> Recipe:
    small = {"model_options": {"embed_dim": 24, "depth": 1, "num_heads": 2}, "predictor": {"dim": 16, "depth": 1}}
    return make_recipe({**RECIPE, **small, "data": DATA, "epochs": 0.25, "log_every": 1, **fields})


def asked(out: Path, study: str, **changes: Any) -> Ablation:
    usual: dict[str, Any] = {
        "test": TEST,
        "seeds": 2,
        "labels": [1.0],
        "subsets": 1,
        "location_images": 30,
        "jobs": 1,
    }
    return Ablation(study, **{"base": base(), **usual, "out": out, **changes})


def recording() -> Console:
    return Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: PTH123 (lives as long as it)


def said(console: Console) -> str:
    return " ".join(console.export_text().split())
