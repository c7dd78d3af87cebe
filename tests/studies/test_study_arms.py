"""The arms of the studies: what they set, that runs of one seed are paired, and what is left out."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from small_study import DATA, TEST, asked, base, recording, said

from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError
from flexpredict.masking import patches_of_cells, sample_masks
from flexpredict.settings.ablation import StudySettings
from flexpredict.settings.positions import noise_std_at_start
from flexpredict.settings.recipe import Recipe
from flexpredict.studies.ablations.paper import LEVELS, ratio
from flexpredict.studies.ablations.planning import GROUPS, PAPER, SEARCH, Agenda, find_studies, make_agenda
from flexpredict.studies.ablations.runs import Runs, changed, plan_of
from flexpredict.studies.ablations.study import Study


@pytest.fixture(scope="module")
def resolved() -> Recipe:
    return plan_of(base(model_options={"embed_dim": 24, "depth": 2, "num_heads": 2}), open_source(DATA)).recipe


def study(name: str, resolved: Recipe, **choices: Any) -> Study:
    return find_studies(StudySettings(name, **choices), resolved)[0]


def agenda(name: str, tmp_path: Path, **changes: Any) -> Agenda:
    return make_agenda(asked(tmp_path, name, **changes), recording())


def test_every_arm_of_every_study_can_be_planned_and_built(resolved: Recipe, tmp_path: Path) -> None:
    source = open_source(DATA)
    runs = Runs(resolved, source, tmp_path)
    for group, names in GROUPS.items():
        studies = find_studies(StudySettings(group), resolved)
        assert [study.name for study in studies] == list(names)
        for found in studies:
            assert len({arm.name for arm in found.arms}) == len(found.arms)
            for arm in found.arms:
                runs.of(arm, [0])[0].plan.build_model()
    assert set(PAPER) | set(SEARCH) == set(GROUPS["paper"]) | set(GROUPS["search"])


def test_the_papers_studies_begin_with_its_baseline_and_have_its_numbers(resolved: Recipe) -> None:
    papers = {}
    for found in find_studies(StudySettings("paper"), resolved):
        assert found.arms[0].fields["positions"] == {"kind": "sincos"}, "the baseline is I-JEPA's own"
        papers[found.name] = [arm.paper for arm in found.arms]
    assert papers["table6"] == [54.3, 54.4, 57.8]
    assert papers["table7"] == [54.3, 55.1, 56.8, 57.8]
    assert papers["table8"] == [54.3, 52.1, 54.1, 57.8]
    assert papers["l1"] == [54.3, 55.8, 57.8]
    assert [paper for paper in papers["fig3"] if paper] == [54.3, 57.8]


def test_levels_are_the_same_share_of_noise_at_every_width() -> None:
    assert LEVELS == (0.0, 0.08, 0.2, 0.39, 0.78)
    assert noise_std_at_start(ratio(0.25), 768) == pytest.approx(0.25, rel=0.03)
    assert noise_std_at_start(ratio(0.25), 96) == pytest.approx(0.25 * (768 / 96) ** 0.5, rel=0.03)


def test_noise_is_chosen_by_ratio_and_levels(resolved: Recipe) -> None:
    noisy = study("table6", resolved, noise=1.5).arms[2].fields["positions"]
    assert noisy == {"kind": "stochastic", "noise_to_signal": 1.5}
    levels = [arm.level for arm in study("fig4", resolved, levels=(0.5, 2.0)).arms]
    assert levels == [0.0, 0.5, 2.0]
    held = [arm.fields["positions"].get("hold") for arm in study("noise", resolved, levels=(1.0,)).arms]
    assert held == [None, False, True]
    with pytest.raises(UserError, match="does not vary one number"):
        study("table6", resolved, levels=(1.0,))


def test_some_arms_bring_what_they_are_compared_with(resolved: Recipe) -> None:
    def names(name: str, arms: list[str], **settings: Any) -> list[str]:
        return [arm.name for arm in study(name, resolved, arms=arms, **settings).arms]

    assert names("table6", ["StoP"]) == ["sin-cos", "StoP"]
    scenes = dataclasses.replace(resolved, data="scenes:100,size=32")
    free = find_studies(StudySettings("where", arms=["where=1, noise 0.5"]), scenes)[0]
    assert [arm.name for arm in free.arms] == ["where=1, sin-cos", "where=1, noise 0.5"]
    with pytest.raises(UserError, match=r"table6 has no arm 'Stop'. Did you mean 'StoP'\?"):
        names("table6", ["Stop"])
    with pytest.raises(UserError, match="is 8 studies"):
        names("paper", ["StoP"])


def test_norms_are_read_from_the_runs_of_the_other_studies(tmp_path: Path) -> None:
    levels, norms = (agenda(name, tmp_path, seeds=1, levels=[0.5], test=None) for name in ("fig3", "fig4"))
    assert set(norms.work) < set(levels.work)


def test_noise_goes_on_as_the_recipe_says_where_it_is_tied(resolved: Recipe) -> None:
    positions = dataclasses.replace(resolved.positions, hold=True, schedule="linear", final_level=0.5)
    arms = study("covariance", dataclasses.replace(resolved, positions=positions)).arms
    tied, fixed = arms[1].fields["positions"], arms[2].fields["positions"]
    assert (tied["hold"], tied["schedule"], tied["final_level"]) == (True, "linear", 0.5)
    assert "hold" not in fixed and fixed["schedule"] == "linear"
    assert arms[0].fields["positions"] == {"kind": "sincos"}


def test_an_arm_changes_what_it_says_and_nothing_else(resolved: Recipe) -> None:
    given = dataclasses.replace(resolved, targets=dataclasses.replace(resolved.targets, standardize="feature"))
    arms = {arm.name: changed(given, arm.fields) for arm in study("targets", given).arms}
    assert arms["layer norm (published)"].targets == resolved.targets
    assert arms["standardized by feature"] == given
    half = changed(given, study("table8", given).arms[1].fields)
    assert half.targets == dataclasses.replace(given.targets, resolution="half_bilinear")


def test_sizes_follow_the_encoder_and_the_image(resolved: Recipe) -> None:
    arms = [arm.fields["predictor"] for arm in study("predictor", resolved).arms]
    assert arms[0] == {"dim": 12, "depth": 1, "heads": None} and {"dim": 24, "depth": 2, "heads": None} in arms
    assert [arm.fields["patch_size"] for arm in study("grid", resolved).arms] == [4, 8, 2]
    assert [arm.name for arm in study("grid", resolved, levels=(4, 8)).arms] == ["4x4", "8x8"]
    with pytest.raises(UserError, match="fewer than two"):
        study("grid", resolved, levels=(5,))


def test_arms_of_one_seed_start_equal_and_see_the_same(tmp_path: Path) -> None:
    found = agenda("paper", tmp_path, seeds=1)
    states = {}
    for run in found.work.values():
        if run.recipe.method == "ijepa":
            states[run.name] = (run.plan.build_model().state_dict(), run.plan)
    reference, plan = states["positions.kind=sincos-seed=0"]
    assert len(states) > 12
    for name, (state, other) in states.items():
        shared = [key for key in reference if key in state and not key.endswith("pos_embed")]
        assert len(shared) >= len(reference) - 2
        for key in shared:
            assert torch.equal(state[key], reference[key]), f"{name}: {key}"
        assert (other.steps, other.recipe.batch_size) == (plan.steps, plan.recipe.batch_size)
        assert other.recipe.optimizer == plan.recipe.optimizer


def test_embeddings_are_scaled_against_positions_and_nothing_else_is(tmp_path: Path) -> None:
    runs = {run.name: run for run in agenda("embedding", tmp_path, seeds=1).work.values()}
    before, after = (
        dict(runs[name].plan.build_model().named_parameters())
        for name in ("as-given-seed=0", "embedding_scale=4.0-seed=0")
    )
    for name, weight in before.items():
        factor = 4 if "patch_embed.proj" in name else 1
        torch.testing.assert_close(after[name], weight * factor)


def test_masks_of_table_8_are_the_same_in_all_arms(tmp_path: Path) -> None:
    areas = []
    for run in agenda("table8", tmp_path, seeds=1).work.values():
        model, images = run.plan.build_model(), torch.zeros(1, 3, 32, 32)
        masks = sample_masks(run.recipe.masking, model.mask_grid(images), 7, 4)
        side = 8 // model.mask_grid(images)[0]
        areas.append([patches_of_cells(part, side, (8, 8)) for part in (masks.context, masks.targets)])
    for context, targets in areas[1:]:
        assert torch.equal(context, areas[0][0]) and torch.equal(targets, areas[0][1])


def test_arms_that_come_to_the_same_run_share_it(tmp_path: Path) -> None:
    found = agenda("paper", tmp_path, seeds=2)
    arms = sum(len(study.arms) for study in found.studies)
    assert len(found.work) < 2 * arms
    stop = [found.runs[name, arm][0].folder for name, arm in (("table6", "StoP"), ("table7", "masked only"))]
    assert stop[0] == stop[1]


def test_an_arm_that_is_the_recipe_as_given_is_not_listed_twice(tmp_path: Path) -> None:
    console = recording()
    found = make_agenda(asked(tmp_path, "optimizer", seeds=1), console)
    names = [arm.name for arm in found.studies[0].arms]
    assert "AdamW" not in names and "Muon 0.02" in names
    assert "'AdamW' is the same as 'as given'" in said(console)


def test_what_a_method_cannot_do_is_left_out_with_the_reason(tmp_path: Path) -> None:
    console = recording()
    found = make_agenda(asked(tmp_path, "paper", base=base(method="mae"), seeds=1), console)
    half = next(study for study in found.studies if study.name == "table8")
    assert [arm.name for arm in half.arms] == ["full resolution", "StoP"]
    assert "table8, half, bilinear, is left out. targets.resolution=half_bilinear belongs to" in said(console)
    console = recording()
    data2vec = base(method="data2vec", predictor={"dim": None, "depth": None, "heads": None})
    found = make_agenda(asked(tmp_path, "covariance", base=data2vec, seeds=1), console)
    assert "tied, level from the image, is left out" in said(console)
    assert [arm.name for arm in found.studies[0].arms][-1] == "diagonal"


def test_too_few_labels_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    small = base(data="scenes:120,size=32")
    with pytest.raises(UserError, match=r"where=0 are 0, fewer than its 10 classes"):
        agenda("where", tmp_path, base=small, test=None, where=[0.0], levels=[0.5], labels=[0.001])


def test_where_compares_each_noise_level_with_sin_cos_on_the_same_scenes(resolved: Recipe) -> None:
    found = study("where", resolved, where=(0.0, 0.5), levels=(0.2, 1.0))
    assert found.seeds == 5 and len(found.arms) == 6
    for arm in found.arms:
        sincos = found.baseline(arm)
        assert sincos.fields["positions"] == {"kind": "sincos"}
        assert sincos.fields["data"] == arm.fields["data"] and sincos.test == arm.test
        assert arm.series in arm.fields["data"] and arm.test is not None and arm.series in arm.test
    assert found.arms[3].fields["data"] == "scenes:64,size=32,seed=0,where=0.5"
    assert found.arms[3].test == "scenes:12,size=32,seed=0,where=0.5,split=test,first=10000"
    with pytest.raises(UserError, match="needs the built-in scenes"):
        study("where", dataclasses.replace(resolved, data="photos"))


def test_without_test_images_a_part_is_held_out_before_pre_training(tmp_path: Path) -> None:
    found = agenda("table6", tmp_path, test=None, holdout=0.25)
    assert found.role == "validation" and found.test is not None
    assert (len(found.train), len(found.test.source)) == (48, 16)
    assert {run.recipe.data for run in found.work.values()} == {f"{DATA},part=0.25-1"}
    kept, held_out = (set(source.indices.tolist()) for source in (found.train, found.test.source))  # type: ignore[attr-defined]
    assert not kept & held_out and len(kept | held_out) == 64
    several = agenda("table6", tmp_path / "b", base=base(data=[DATA, DATA + ",seed=1"]), test=None, holdout=0.25)
    assert several.test is not None
    assert (len(several.train), several.test.data) == (96, [f"{DATA},part=0-0.25", f"{DATA},seed=1,part=0-0.25"])
    assert agenda("table6", tmp_path / "c").role == "test"


def test_what_cannot_be_done_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no study 'table5'.*table6"):
        agenda("table5", tmp_path)
    with pytest.raises(UserError, match=r"cannot be run.*(cell|even)"):
        agenda("table8", tmp_path, base=base(image_size=28))
    for changes, message in (
        ({"labels": [0.01]}, "classes"),
        ({"base": base(positions={"covariance": "untied"})}, "set positions themselves"),
        ({"base": dataclasses.replace(base(), data=None)}, "No data was named"),
    ):
        with pytest.raises(UserError, match=message):
            agenda("table6", tmp_path, **changes)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="test scenes of its own"):
        agenda("where", tmp_path, test=TEST)
    assert not (tmp_path / "runs").exists()


def test_learning_rates_are_those_of_the_optimizer_that_an_arm_names(resolved: Recipe) -> None:
    for arm in study("lr", resolved).arms:
        kind, rate = arm.name.split()
        name = {"AdamW": "lr", "Muon": "muon_lr"}[kind]
        assert arm.fields["optimizer"] == {"kind": kind.lower(), name: float(rate)}
