"""The verbs: typed functions that return small results. The commands of the shell are made of them.

Nothing here imports torch before a function is called, so that help and typing errors are told at once.
"""

from flexpredict.api.ablating import ablate
from flexpredict.api.analyzing import analyze
from flexpredict.api.demonstrating import demo
from flexpredict.api.planning import plan
from flexpredict.api.pretraining import Run, pretrain
from flexpredict.api.reporting import report, serve
from flexpredict.evaluation.davis import evaluate_davis
from flexpredict.evaluation.depth import evaluate_depth
from flexpredict.evaluation.finetuning import finetune
from flexpredict.evaluation.location import evaluate_location
from flexpredict.evaluation.probe import evaluate_clevr, probe, transfer
from flexpredict.evaluation.segmentation import evaluate_segmentation
from flexpredict.exports import export
from flexpredict.features.embed import embed
from flexpredict.features.similar import similar
from flexpredict.prepare.inspect import inspect
from flexpredict.prepare.pack import pack

__all__ = [
    "Run",
    "ablate",
    "analyze",
    "demo",
    "embed",
    "evaluate_clevr",
    "evaluate_davis",
    "evaluate_depth",
    "evaluate_location",
    "evaluate_segmentation",
    "export",
    "finetune",
    "inspect",
    "pack",
    "plan",
    "pretrain",
    "probe",
    "report",
    "serve",
    "similar",
    "transfer",
]
