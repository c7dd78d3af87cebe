"""A run, from a folder of pictures to an encoder: what it leaves behind, and that nothing stops it from going on."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from interrupted import assert_same_weights, send, weights
from safetensors.torch import load_file
from tiny import RECIPE, write_pictures
from torch.optim.optimizer import register_optimizer_step_pre_hook

from flexpredict import pretrain, pretraining
from flexpredict.data.loader import training_batches
from flexpredict.data.sources.opening import open_source
from flexpredict.errors import UserError
from flexpredict.methods import ijepa
from flexpredict.runs.encoder_file import read_encoder
from flexpredict.settings.augmentation import PRESETS
from flexpredict.settings.optimizer import SettledOptimizer
from flexpredict.training.schedules import cosine, ema_momentum, linear, warmup_cosine


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_timing(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    timing = ("images_per_second", "data_wait")
    return [{name: value for name, value in record.items() if name not in timing} for record in records]


def test_a_run_leaves_everything_behind(finished: Path, pictures: str) -> None:
    config = yaml.safe_load((finished / "config.yaml").read_text())
    assert config["data"] == pictures and config["optimizer"]["lr"] == pytest.approx(5e-4)
    environment = json.loads((finished / "environment.json").read_text())
    assert environment["versions"]["torch"] == torch.__version__ and environment["effective_batch"] == 8
    assert list(finished.glob("events.out.tfevents.*")) and (finished / "report.html").stat().st_size > 1000
    assert sorted(path.name for path in (finished / "checkpoints").iterdir()) == ["last", "step-15", "step-18"]
    assert [record["step"] for record in metrics(finished)] == list(range(2, 19, 2))
    names = "epoch loss lr weight_decay ema_momentum grad_norm images_per_second data_wait target_spread target_rank "
    names += "A_norm mask_token_norm noise_to_signal location_blur location_kept location_share skipped"
    assert all(set(names.split()) <= record.keys() for record in metrics(finished))


def test_the_encoder_file_rebuilds_the_target_encoder(finished: Path) -> None:
    encoder = read_encoder(finished).encoder
    saved = weights(finished)
    for name, tensor in encoder.vit.state_dict().items():
        assert torch.equal(tensor, saved[f"target_encoder.vit.{name}"])
    assert encoder(torch.zeros(1, 3, 32, 32)).shape == (1, 64, 24) and not encoder.training


def test_training_moves_every_weight_that_is_to_be_trained(finished: Path, pictures: str, tmp_path: Path) -> None:
    trained = weights(finished)
    pretrain(pictures, tmp_path / "short", **{**RECIPE, "epochs": 1 / 6})
    fresh = weights(tmp_path / "short")
    still = [name for name in trained if torch.equal(trained[name], fresh[name])]
    assert still == ["context_encoder.vit.pos_embed", "target_encoder.vit.pos_embed"]


def test_the_loss_falls(pictures: str, tmp_path: Path) -> None:
    recipe = {**RECIPE, "epochs": 20, "checkpoint_every": None, "positions": {"kind": "sincos"}}
    pretrain(pictures, tmp_path / "run", **recipe)
    losses = [record["loss"] for record in metrics(tmp_path / "run")]
    assert losses[-1] < 0.8 * losses[0]


def test_the_same_seed_gives_the_same_run_and_another_seed_another(
    finished: Path, pictures: str, tmp_path: Path
) -> None:
    pretrain(pictures, tmp_path / "again", **RECIPE)
    assert_same_weights(finished, tmp_path / "again")
    assert without_timing(metrics(finished)) == without_timing(metrics(tmp_path / "again"))
    pretrain(pictures, tmp_path / "other", **RECIPE, seed=1)
    assert metrics(tmp_path / "other")[-1]["loss"] != metrics(finished)[-1]["loss"]


def test_reading_processes_and_accumulation_do_not_change_the_result(
    finished: Path, pictures: str, tmp_path: Path
) -> None:
    pretrain(pictures, tmp_path / "workers", **RECIPE, workers=2)
    assert_same_weights(finished, tmp_path / "workers")
    pretrain(pictures, tmp_path / "parts", **RECIPE, accumulate=4)
    ours, theirs = weights(tmp_path / "parts"), weights(finished)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-5, rtol=0)


def newest_step(run: Path) -> int:
    try:
        return int((run / "checkpoints" / "last").readlink().name.removeprefix("step-"))
    except OSError:
        return 0


def test_a_stop_signal_saves_and_leaves_and_the_run_goes_on_as_if_nothing_had_happened(
    finished: Path, pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(signal.SIGTERM, monkeypatch)
    outcome = pretrain(pictures, tmp_path / "run", **RECIPE)
    assert not outcome.finished and outcome.steps == 7
    assert pretrain(out=tmp_path / "run", resume=True).finished
    assert_same_weights(finished, tmp_path / "run")
    assert without_timing(metrics(tmp_path / "run")) == without_timing(metrics(finished))


def test_resuming_a_finished_run_changes_nothing(finished: Path) -> None:
    before = weights(finished)
    assert pretrain(out=finished, resume=True).finished
    after = weights(finished)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_new_run_does_not_overwrite_an_old_one_unless_told(finished: Path, pictures: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"already holds a run.*resume=True.*overwrite=True.*whole-2"):
        pretrain(pictures, finished, **RECIPE)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="not a run folder"):
        pretrain(pictures, precious, **RECIPE, overwrite=True)
    assert (precious / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"model": "vit_small_patch16_224"}, "model"),
        ({"positions": {"noise_std": 0.5}}, "positions"),
        ({"seed": 3}, "seed"),
    ],
)
def test_resuming_with_another_recipe_is_refused(finished: Path, change: dict[str, Any], name: str) -> None:
    with pytest.raises(UserError, match=rf"was started with {name}.*init_from"):
        pretrain(out=finished, resume=True, **change)


def test_resuming_where_there_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run to resume"):
        pretrain(out=tmp_path / "nothing", resume=True)


def test_starting_from_another_runs_weights_is_a_new_run(finished: Path, pictures: str, tmp_path: Path) -> None:
    still = {**RECIPE, "epochs": 1 / 6, "optimizer": {"lr": 0.0}}
    pretrain(pictures, tmp_path / "run", **still, init_from=str(finished))
    ours, theirs = weights(tmp_path / "run"), weights(finished)
    for name in ours:
        if not name.startswith("target_encoder"):
            assert torch.equal(ours[name], theirs[name])
    assert len(metrics(tmp_path / "run")) == 1
    gone = tmp_path / "gone"
    pretrain(pictures, gone, **still)
    pretrain(pictures, tmp_path / "from-gone", **still, init_from=str(gone))
    shutil.rmtree(gone)
    assert pretrain(out=tmp_path / "from-gone", resume=True).finished, "its own weights are enough to go on"
    with pytest.raises(UserError, match="do not fit"):
        other = {**still, "model_options": {"embed_dim": 36, "depth": 2, "num_heads": 2}}
        pretrain(pictures, tmp_path / "other", **other, init_from=str(finished))


def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_last_good_checkpoint(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    original = ijepa.IJEPA.forward

    def broken_at_the_eighth(self: ijepa.IJEPA, *arguments: Any) -> ijepa.Prediction:
        nonlocal calls
        calls += 1
        result = original(self, *arguments)
        return result._replace(loss=result.loss * float("nan")) if calls == 8 else result

    monkeypatch.setattr(ijepa.IJEPA, "forward", broken_at_the_eighth)
    with pytest.raises(UserError, match=r"loss of step 8 is not a number.*checkpoints.*lower optimizer\.lr"):
        pretrain(pictures, tmp_path / "run", **RECIPE)
    saved = tmp_path / "run" / "checkpoints"
    assert newest_step(tmp_path / "run") == 6
    assert all(torch.isfinite(tensor).all() for tensor in load_file(saved / "last" / "model.safetensors").values())
    assert [record["step"] for record in metrics(tmp_path / "run")] == [2, 4, 6]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "The loss of step 8 is not a number" in page and "curve-data" in page


def test_a_full_disk_leaves_the_last_checkpoint_whole(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flexpredict.runs import checkpoint

    original, calls = checkpoint.save_file, 0

    def full_at_the_fourth(tensors: dict[str, torch.Tensor], path: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            path.write_bytes(b"half a fi")
            raise OSError(28, "No space left on device")
        original(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", full_at_the_fourth)
    with pytest.raises(UserError, match=r"No room left on the disk.*step-6.*resume=True"):
        pretrain(pictures, tmp_path / "run", **RECIPE)
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["last", "step-3"]
    monkeypatch.setattr(checkpoint, "save_file", original)
    assert pretrain(out=tmp_path / "run", resume=True).finished


def test_checkpoints_to_be_kept_stay(pictures: str, tmp_path: Path) -> None:
    pretrain(pictures, tmp_path / "run", **RECIPE, keep_every=1)
    names = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert names == {"last", "step-6", "step-12", "step-15", "step-18"}


def test_the_page_is_refreshed_at_every_checkpoint(
    pictures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = []
    monkeypatch.setattr(pretraining, "refresh_report", lambda run: lines.append(len(metrics(run))))
    pretrain(pictures, tmp_path / "run", **RECIPE)
    assert lines == [1, 3, 4, 6, 7, 9], "a checkpoint every three steps, a line every two"


def test_an_unreadable_picture_is_skipped_counted_and_listed_once(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "pictures")
    (folder / "007.png").write_bytes((folder / "007.png").read_bytes()[:40])
    pretrain(str(folder), tmp_path / "run", **RECIPE)
    listed = [json.loads(line) for line in (tmp_path / "run" / "skipped.jsonl").read_text().splitlines()]
    assert [Path(entry["path"]).name for entry in listed] == ["007.png"] and listed[0]["reason"]
    assert metrics(tmp_path / "run")[-1]["skipped"] == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of itself
@pytest.mark.parametrize(
    "fields",
    [
        {"positions": {"noise_to_signal": 1.0}},
        {"positions": {"kind": "learned"}, "encoder_positions": "learned", "image_size": "32,40"},
        {"model": "beit_base_patch16_224", "image_size": "32,40"},
    ],
    ids=["noise", "learned positions at several sizes", "relative positions at several sizes"],
)
def test_a_compiled_run_is_the_same_run(fields: dict[str, Any], pictures: str, tmp_path: Path) -> None:
    short = {**RECIPE, "epochs": 1 / 2, **fields}
    pretrain(pictures, tmp_path / "plain", **short)
    pretrain(pictures, tmp_path / "compiled", **short, compile=True)
    plain, compiled = weights(tmp_path / "plain"), weights(tmp_path / "compiled")
    for name in plain:
        torch.testing.assert_close(compiled[name], plain[name], atol=1e-4, rtol=0)


def test_gradients_of_all_optimizers_are_clipped_together_and_logged_as_they_were(
    pictures: str, tmp_path: Path
) -> None:
    applied: list[float] = []

    def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        gradients = [weight.grad for group in optimizer.param_groups for weight in group["params"]]
        applied.append(sum(float(gradient.square().sum()) for gradient in gradients if gradient is not None))

    once = {**RECIPE, "epochs": 1 / 3, "log_every": 1}
    pretrain(pictures, tmp_path / "plain", **once, optimizer={"kind": "muon"})
    hook = register_optimizer_step_pre_hook(look)
    try:
        pretrain(pictures, tmp_path / "clipped", **once, optimizer={"kind": "muon", "clip_grad": 0.01})
    finally:
        hook.remove()
    muon, adamw = applied[:2]
    assert muon > 0 and adamw > 0 and (muon + adamw) ** 0.5 == pytest.approx(0.01, rel=1e-3)
    plain, clipped = (metrics(tmp_path / name)[0]["grad_norm"] for name in ("plain", "clipped"))
    assert clipped == pytest.approx(plain) and plain > 0.02, "clipping would hide that a run is about to break down"


def test_bf16_and_clipping_run(pictures: str, tmp_path: Path) -> None:
    short = {**RECIPE, "epochs": 1 / 3, "optimizer": {"clip_grad": 0.1}}
    pretrain(pictures, tmp_path / "bf16", **{**short, "precision": "bf16-mixed"})
    pretrain(pictures, tmp_path / "plain", **short)
    low, plain = metrics(tmp_path / "bf16")[-1], metrics(tmp_path / "plain")[-1]
    assert low["loss"] == pytest.approx(plain["loss"], rel=0.05)
    assert low["grad_norm"] == pytest.approx(plain["grad_norm"], rel=0.2)


def test_schedules_pass_through_their_published_points() -> None:
    lr = [warmup_cosine(step, 100, 20, 2e-4, 8e-4, 1e-6) for step in range(101)]
    assert (lr[0], lr[20], lr[100]) == pytest.approx((2e-4, 8e-4, 1e-6))
    assert lr[10] == pytest.approx(5e-4) and lr[60] == pytest.approx((8e-4 + 1e-6) / 2)
    assert cosine(0, 100, 0.04, 0.4) == pytest.approx(0.04) and cosine(100, 100, 0.04, 0.4) == pytest.approx(0.4)
    assert linear(50, 100, 0.996, 1.0) == pytest.approx(0.998)


def test_by_steps_a_slow_average_follows_from_the_beginning() -> None:
    settings = SettledOptimizer(ema_momentum=0.999, final_ema_momentum=0.999)
    assert ema_momentum(0, 10_000, settings) == 0.999
    settings.ema_by_steps = True
    momenta = [ema_momentum(step, 10_000, settings) for step in (0, 8, 90, 10_000)]
    assert momenta == pytest.approx([0.1, 0.5, 0.91, 0.999])


def test_no_image_comes_twice_in_an_epoch_over_ranks_and_workers(pictures: str) -> None:
    source = open_source(pictures)
    seen: list[int] = []
    for rank in range(2):
        how = {"seed": 0, "batch_size": 8, "first_step": 0, "last_step": 6, "rank": rank, "world_size": 2}
        batches = training_batches(source, PRESETS["none"], [(8, 8)], **how, workers=2 * rank)  # type: ignore[arg-type]
        seen += [index for batch in batches for index in batch.indices.tolist()]
    assert sorted(seen) == list(range(48))
