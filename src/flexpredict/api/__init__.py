"""The public functions, typed and with small results. The commands of the shell are made from them.

Nothing here imports torch before a function is called, so that help and error messages come at once.
"""

from flexpredict.api.ablating import ablate
from flexpredict.api.analyzing import analyze
from flexpredict.api.demonstrating import demo as demo  # not below: flexpredict.demo is a package
from flexpredict.api.planning import plan
from flexpredict.api.pretraining import Run, pretrain
from flexpredict.api.reporting import report, serve
from flexpredict.errors import UserError
from flexpredict.evaluation.davis import evaluate_davis
from flexpredict.evaluation.dense import evaluate_depth, evaluate_segmentation
from flexpredict.evaluation.finetuning import finetune
from flexpredict.evaluation.location import evaluate_location
from flexpredict.evaluation.probe import evaluate_clevr, probe, transfer
from flexpredict.exports import export
from flexpredict.features.embed import embed
from flexpredict.features.similar import similar
from flexpredict.prepare.inspect import inspect
from flexpredict.prepare.pack import pack
from flexpredict.settings.augmentation import Augmentation
from flexpredict.settings.masking import Masking
from flexpredict.settings.optimizer import Optimizer
from flexpredict.settings.positions import Positions
from flexpredict.settings.recipe import PredictorSize, Recipe
from flexpredict.settings.targets import Targets

__all__ = ["Augmentation", "Masking", "Optimizer", "Positions", "PredictorSize", "Recipe", "Run", "Targets"]
__all__ += ["UserError", "ablate", "analyze", "embed", "export", "finetune", "inspect", "pack", "plan", "pretrain"]
__all__ += ["evaluate_clevr", "evaluate_davis", "evaluate_depth", "evaluate_location", "evaluate_segmentation"]
__all__ += ["probe", "report", "serve", "similar", "transfer"]
