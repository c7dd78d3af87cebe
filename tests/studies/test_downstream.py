"""`ablate` can measure downstream tasks too: the numbers are those of the commands, and mistakes are told at once."""

import json
from pathlib import Path

import pytest
from small_study import asked, recording

from flexpredict import evaluate_clevr, evaluate_davis, probe
from flexpredict.errors import UserError
from flexpredict.studies.ablations.ablating import ablate
from flexpredict.studies.ablations.planning import make_agenda

SCENES, VIDEOS = "scenes:60,size=32", "scenes:1,size=48,frames=3"
OTHER = ["scenes:200,size=32,seed=3", "scenes:40,size=32,seed=3,split=test"]


@pytest.mark.usefixtures("no_figures")
def test_downstream_numbers_are_those_of_the_commands(tmp_path: Path, in_process: list[str]) -> None:
    request = asked(tmp_path, "table6", seeds=1, arms=["StoP"], transfer=OTHER, clevr=SCENES, davis=VIDEOS)
    assert ablate(request, console=recording())
    run = next((tmp_path / "runs").glob("*sincos-seed=0"))
    numbers = json.loads((run / "measured.json").read_text())["numbers"]
    out = {"out": tmp_path / "results", "table": tmp_path / "table.csv"}
    probed = probe(str(run), train=OTHER[0], test=OTHER[1], labels=[1.0], **out)
    assert numbers["transfer, linear"] == pytest.approx(probed.numbers["linear, 100 % labels"])
    for found, name in zip(evaluate_clevr(str(run), data=SCENES, **out), ("count", "distance"), strict=True):
        assert numbers[f"CLEVR {name}"] == pytest.approx(found.numbers["linear, 100 % labels"])
    followed = evaluate_davis(str(run), data=VIDEOS, height=30 * 4, overlays="none", **out)
    assert numbers["DAVIS J&F"] == pytest.approx(followed.numbers["J&F"])
    assert not (run / ".features").exists()
    table = (tmp_path / "table6" / "table.md").read_text()
    assert f"Transfer, linear: all labels of {OTHER[0]}, tested on {OTHER[1]}. CLEVR: {SCENES}. DAVIS" in table
    heading = table.splitlines()[2]
    assert "| transfer, linear | diff. | CLEVR count | diff. | CLEVR distance | diff. | DAVIS J&F | diff." in heading


@pytest.mark.usefixtures("no_figures", "quick_measures")
def test_what_is_asked_later_is_measured_without_training_again(tmp_path: Path, in_process: list[str]) -> None:
    changes = {"seeds": 1, "arms": ["StoP"]}
    assert ablate(asked(tmp_path, "table6", **changes), console=recording())
    run = next((tmp_path / "runs").glob("*sincos-seed=0"))
    weights = (run / "encoder.safetensors").read_bytes()
    assert ablate(asked(tmp_path, "table6", clevr=SCENES, **changes), console=recording())
    assert "CLEVR count" in json.loads((run / "measured.json").read_text())["numbers"]
    assert (run / "encoder.safetensors").read_bytes() == weights


def test_mistakes_are_told_before_anything_is_trained(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    mistakes = (
        ({"transfer": ["a"]}, r"transfer is a\. Give two names"),
        ({"transfer": [OTHER[0], nowhere]}, "nowhere"),
        ({"clevr": nowhere}, "is not CLEVR's folder"),
        ({"davis": nowhere}, "no folder .*nowhere"),
    )
    for changes, words in mistakes:
        with pytest.raises(UserError, match=words):
            make_agenda(asked(tmp_path, "table6", **changes), recording())  # type: ignore[arg-type]
    assert not (tmp_path / "runs").exists()
