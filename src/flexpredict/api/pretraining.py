"""`pretrain`."""

from pathlib import Path
from typing import Any

from flexpredict.api.run import Run
from flexpredict.runs.run_folder import RunFolder
from flexpredict.settings.parameters import takes_some_fields_of
from flexpredict.settings.ranges import check_ranges
from flexpredict.settings.run import RunSettings
from flexpredict.settings.typed_values import typed_values
from flexpredict.training.recipe_parser import checked_values, choose_length, make_recipe, merge

_OF_THE_RUN = ("out", "config", "resume", "overwrite")


@takes_some_fields_of(RunSettings)
def pretrain(given: dict[str, Any]) -> Run:
    """Pre-train an encoder on unlabeled images, by I-JEPA with stochastic positions, or by MAE or data2vec.

    Only the data is needed: everything else has a default that fits the images and the hardware, and is printed
    before the run starts.
    """
    values = typed_values(RunSettings, given)
    if values.get("data") is None:  # left out by name: a resumed run has its own
        values.pop("data", None)
    of_the_run = RunSettings(**{name: values.pop(name) for name in _OF_THE_RUN if name in values})
    out, folder = Path(of_the_run.out), RunFolder(Path(of_the_run.out))
    saved = checked_values(folder.load_config(), folder.config) if of_the_run.resume else {}
    recipe = choose_length(make_recipe(merge(saved, values), of_the_run.config), given=values)
    # What can be refused without torch and the images is refused before they are loaded.
    check_ranges(recipe)
    if not of_the_run.resume:
        folder.refuse_used(of_the_run.overwrite)

    from flexpredict.pretraining import run

    outcome = run(recipe, out, resume=of_the_run.resume, overwrite=of_the_run.overwrite)
    return Run(out, outcome.steps, outcome.finished)
