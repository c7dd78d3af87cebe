"""`plan`: what a run costs, from Python and from the shell."""

import json
from typing import Any

import pytest

import flexpredict
from flexpredict.cli import main
from flexpredict.errors import UserError

SIZES: dict[str, Any] = {
    "model": "vit_tiny_patch16_224",
    "image_size": 32,
    "patch_size": 4,
    "epochs": 10,
    "batch_size": 64,
}


def test_a_plan_of_a_number_of_images() -> None:
    result = flexpredict.plan(50_000, **SIZES, on=["h100"], memory=8, utilization=0.5)
    known = result.to_dict()
    assert json.loads(json.dumps(known)) == known
    assert known["steps"] == 7813 and known["images_at_a_time"] == 64
    assert known["parts"]["context encoder"]["parameters"] == pytest.approx(5.36e6, rel=0.01)
    assert known["parts"]["target encoder"]["forward"] == known["parts"]["target encoder"]["operations"]
    seconds = 7813 * 64 * known["operations_per_image"] / (0.5 * 989e12)
    assert known["hardware"]["h100"]["seconds"] == pytest.approx(seconds)
    assert known["hardware"]["this machine"]["seconds"] > seconds
    assert known["largest_batch"] > 64 and known["hardware"]["h100"]["largest_batch"] > known["largest_batch"]


def test_devices_share_the_work_and_the_batch() -> None:
    how: dict[str, Any] = {**SIZES, "measure": False, "precision": "32-true"}
    alone = flexpredict.plan(50_000, **how).to_dict()
    eight = flexpredict.plan(50_000, **how, devices=4, num_nodes=2).to_dict()
    assert eight["devices"] == 8 and eight["images_at_a_time"] == 8
    assert eight["hardware"]["h100"]["seconds"] == pytest.approx(alone["hardware"]["h100"]["seconds"] / 8)
    assert eight["bytes"]["activations"] == alone["bytes"]["activations"] // 8
    assert eight["bytes"]["gradients"] == 2 * alone["bytes"]["gradients"], "DDP has a copy to add them up in"


def test_a_published_recipe_from_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "1281167", "--config", "vit_b16", "--measure", "false"]) == 0
    said = capsys.readouterr().out
    assert "85.80" in said and "375,342 steps" in said and "a100-80gb" in said and "this machine" not in said


def test_images_can_be_named_as_well(pictures: str) -> None:
    known = flexpredict.plan(pictures, **{**SIZES, "batch_size": 8}, measure=False).to_dict()
    assert known["images"] == 48 and known["steps"] == 60


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "How many images"),
        ({"data": 0}, "data=0"),
        ({"data": 100, "on": ["a1000"]}, "a1000 is not known"),
        ({"data": 100, "utilization": 1.5}, "utilization=1.5 is out of range"),
        ({"data": 100, "minutes": 3}, "minutes=3"),
        ({"data": 100, "devices": "two"}, "devices=two"),
    ],
)
def test_what_cannot_be_reckoned_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        flexpredict.plan(**settings)
