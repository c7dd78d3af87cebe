"""`pretrain`."""

from pathlib import Path
from typing import Any

from flexpredict.api.run import Run
from flexpredict.settings.parameters import takes_fields_of
from flexpredict.settings.ranges import check_ranges
from flexpredict.settings.run import RunSettings
from flexpredict.settings.typed_values import typed_values
from flexpredict.training.recipe_parser import choose_length, make_recipe, merge

_OF_THE_RUN = ("out", "config", "resume", "overwrite")


@takes_fields_of(RunSettings)
def pretrain(given: dict[str, Any]) -> Run:
    """Pre-train an encoder on unlabeled images, by I-JEPA with stochastic positions, or by MAE or data2vec.

    Only the data is needed: everything else has a default that fits the images and the hardware, and is printed
    before the run starts. From Python, nested settings are dictionaries or dataclasses: positions={"noise_std": 0.5}.
    """
    values = typed_values(RunSettings, given)
    of_the_run = RunSettings(**{name: values.pop(name) for name in _OF_THE_RUN if name in values})
    out, saved = Path(of_the_run.out), dict[str, Any]()
    if of_the_run.resume:
        from flexpredict.runs.run_folder import RunFolder

        saved = RunFolder(out).load_config()
    recipe = choose_length(make_recipe(merge(saved, values), of_the_run.config), given=values)
    check_ranges(recipe)  # before torch is imported and images are listed

    from flexpredict.pretraining import run

    outcome = run(recipe, out, resume=of_the_run.resume, overwrite=of_the_run.overwrite)
    return Run(out, outcome.steps, outcome.finished)
