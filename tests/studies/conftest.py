"""For the tests of studies: runs in the process of the test, quick measures, and tiny runs to analyze."""

from pathlib import Path
from typing import Any

import pytest
from tiny import RECIPE, write_pictures

from flexpredict import pretrain
from flexpredict.commands import ablate_task
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.evaluation.results import Result
from flexpredict.features.workspace import Workspace
from flexpredict.settings.probing import Probing
from flexpredict.studies import figures
from flexpredict.studies.ablations import ablating, measuring, processes
from flexpredict.studies.ablations.costs import Costs
from flexpredict.studies.ablations.processes import Task
from flexpredict.studies.analyses.opening import OpenedModel, open_model

PREDICTOR = {"dim": None, "depth": None, "heads": None}


class Finished:
    """A process that is over before anyone asks."""

    def __init__(self, code: int) -> None:
        self.code = code

    def poll(self) -> int:
        return self.code

    def terminate(self) -> None: ...

    def wait(self) -> int:
        return self.code


@pytest.fixture
def tasks_in_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tasks are carried out in this process; the names of the first runs of those begun."""
    begun: list[str] = []
    monkeypatch.setattr(processes, "_SECONDS_BETWEEN_LOOKS", 0.0)

    def begin(task: Task, slot: int, at_a_time: int) -> Finished:
        begun.append(task.runs[0].name)
        return Finished(ablate_task.carry_out(Task.load(task.save())))

    monkeypatch.setattr(processes, "begin", begin)
    return begun


@pytest.fixture
def in_process(tasks_in_process: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The same, without trying out how long runs take."""
    monkeypatch.setattr(
        ablating, "find_costs", lambda runs, task, stop: {run.arm: Costs(step=0.1, other=2.0) for run in runs}
    )
    return tasks_in_process


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing them takes half the time of a small study."""
    monkeypatch.setattr(figures, "draw", lambda study, rows, seeds, path: path.touch())


@pytest.fixture
def quick_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that depend on the weights and nothing else, in no time."""

    def result(encoder: ImageEncoder, names: list[str]) -> Result:
        value = int(encoder.fingerprint()[:6], 16) / 16**6
        return Result("quick", encoder.what, "", {name: 10 * place + value for place, name in enumerate(names)}, {})

    def probe(encoder: ImageEncoder, train: Any, test: Any, how: Any, probing: Probing, **named: Any) -> Result:
        shares = [f"linear, {100 * share:g} % labels" for share in probing.labels or ()]
        return result(encoder, [*shares, f"{probing.neighbors}-NN"])

    def location(space: Workspace, *given: Any, **named: Any) -> Result:
        return result(space.encoder, list(measuring.LOCATION))

    monkeypatch.setattr(measuring, "run_probe", probe)
    monkeypatch.setattr(measuring, "measure_location", location)


@pytest.fixture(autouse=True)
def quick_probes(few_penalties: None) -> None: ...


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny run of each kind, six steps long; to be read only."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_pictures(folder / "pictures", 48)
    kinds: dict[str, dict[str, Any]] = {
        "sincos": {"positions": {"kind": "sincos"}},
        "stop": {"positions": {"noise_to_signal": 0.5}, "keep_every": 0.5},
        "learned": {"positions": {"kind": "learned"}},
        "mae": {"method": "mae", "positions": {"kind": "stochastic"}},
        "data2vec": {"method": "data2vec", "predictor": PREDICTOR, "positions": {"kind": "stochastic"}},
        "fading": {"positions": {"schedule": "linear", "final_level": 0.0}},
        "half": {"targets": {"resolution": "half_bilinear"}, "image_size": 64, "patch_size": 8},
    }
    for name, fields in kinds.items():
        pretrain(data, folder / name, **{**RECIPE, "epochs": 1, **fields})
    return {name: folder / name for name in (*kinds, "pictures")}


@pytest.fixture(scope="session")
def stop(runs: dict[str, Path]) -> OpenedModel:
    return open_model(runs["stop"])
