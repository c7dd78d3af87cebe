"""Fine-tuning: what is trained how fast, on which images, and that neither a kill nor a second rank changes it."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from ranks import call_on_two_ranks
from safetensors.torch import load_file

from flexpredict.data.augmentation import draw_crops
from flexpredict.data.decoding import UnreadableImage
from flexpredict.data.sources.derived import SubsetSource
from flexpredict.data.sources.opening import ArraySource, ImageSource, open_source
from flexpredict.encoders.hugging_face_encoder import HuggingFaceEncoder
from flexpredict.encoders.image_encoder import ImageEncoder
from flexpredict.encoders.timm_encoder import TimmEncoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.finetuning import finetune
from flexpredict.evaluation.finetuning import loop as loop_module
from flexpredict.evaluation.finetuning.classifier import (
    Classifier,
    DropPath,
    layer_of,
    layered_groups,
    load_classifier,
)
from flexpredict.evaluation.finetuning.loop import mix_images, mix_labels, own_shares, symmetric_beta
from flexpredict.evaluation.labeled_images import choose, hold_out, with_labels
from flexpredict.evaluation.results import Result
from flexpredict.interruption import Terminated
from flexpredict.model.building import build_encoder
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import sample_keys, stream_key, uniform
from flexpredict.settings.augmentation import PRESETS

SETTINGS: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 8,
    "fraction": 0.24,
    "mixup": 0.8,
    "accelerator": "cpu",
    "devices": 1,
    "log_every": 2,
    "checkpoint_every": 5,
}
STEPS = 18


def tiny_encoder() -> ImageEncoder:
    options = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    encoder = build_encoder("vit_tiny_patch16_224", (32, 32), 8, options=options)
    return ViTEncoder(encoder, "runs/tiny", "target encoder of runs/tiny").eval()


def scenes(split: str = "train", count: int = 200) -> ImageSource:
    return open_source(f"scenes:{count},size=32,split={split}")


def run(out: Path, **changes: Any) -> Result | None:
    return finetune(tiny_encoder(), scenes(), scenes("test", 60), out=out, **SETTINGS | changes)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model.safetensors")


def metrics(out: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    timing = ("images_per_second", "data_wait")
    return [{name: value for name, value in record.items() if name not in timing} for record in records]


def assert_same_run(first: Path, second: Path) -> None:
    ours, theirs = weights(first), weights(second)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    assert metrics(first) == metrics(second)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody interrupted."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert run(out) is not None
    return out


# Learning rates


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("encoder.model.cls_token", 0),
        ("encoder.model.pos_embed", 0),
        ("encoder.model.patch_embed.proj.weight", 0),
        ("encoder.model.patch_embed.norm.weight", 0),
        ("encoder.model.norm_pre.weight", 0),
        ("encoder.encoder.vit.blocks.0.norm1.weight", 1),
        ("encoder.model.blocks.11.attn.qkv.weight", 12),
        ("encoder.model.norm.weight", 13),
        ("encoder.model.fc_norm.bias", 13),
        ("encoder.model.embeddings.position_embeddings", 0),
        ("encoder.model.embeddings.patch_embeddings.projection.bias", 0),
        ("encoder.model.encoder.layer.0.layernorm_before.weight", 1),
        ("encoder.model.encoder.layer.10.attention.output.dense.weight", 11),
        ("encoder.model.layers.11.mlp.fc1.weight", 12),
        ("encoder.model.layernorm.weight", 13),
        ("encoder.model.pooler.dense.weight", 13),
        ("head.weight", 13),
    ],
)
def test_parameters_belong_to_the_layer_that_their_name_says(name: str, layer: int) -> None:
    assert layer_of(name, depth=12) == layer


def scales(model: Classifier, decay: float) -> dict[str, float]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = layered_groups(model, model.encoder.depth, decay, "it")
    return {names[id(parameter)]: group["scale"] for group in groups for parameter in group["params"]}


def test_learning_rates_halve_from_layer_to_layer() -> None:
    found = scales(Classifier(tiny_encoder(), ("a", "b"), None, (32, 32)), decay=0.5)
    by_hand = {"patch_embed": 0.125, "blocks.0": 0.25, "blocks.1": 0.5, "vit.norm": 1.0, "head": 1.0}
    for name, scale in found.items():
        assert [value for part, value in by_hand.items() if part in name] == [scale], name
    assert "encoder.encoder.vit.pos_embed" not in found, "sines and cosines stay as they are"


def test_learning_rates_fall_as_by_timms_own_layer_decay() -> None:
    from timm.optim import param_groups_layer_decay

    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, embed_dim=24, depth=3, num_heads=2, num_classes=0)
    model = Classifier(TimmEncoder(vit, "timm:tiny", "it", (32, 32)), ("a", "b"), "class", (32, 32))
    ours = {
        id(parameter): (group["scale"], group["decays"])
        for group in layered_groups(model, 3, 0.65, "it")
        for parameter in group["params"]
    }
    tokens = ["cls_token", "pos_embed"]
    theirs = param_groups_layer_decay(vit, weight_decay=0.05, layer_decay=0.65, no_weight_decay_list=tokens)
    final_norm = {id(parameter) for parameter in vit.norm.parameters()}
    compared = 0
    for group in theirs:
        for parameter in group["params"]:
            # timm counts the final norm to the last block, hence one layer less; MAE, and we, to the head.
            factor = 1.0 if id(parameter) in final_norm else 0.65
            assert ours[id(parameter)] == (pytest.approx(factor * group["lr_scale"]), group["weight_decay"] > 0)
            compared += 1
    assert compared == len(ours) - 2, "all but the head"


def test_models_of_hugging_face_are_trained_but_for_what_is_not_used() -> None:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, image_size=32, patch_size=8
    )
    encoder = HuggingFaceEncoder(ViTModel(config), "hf:tiny", "it")
    found = scales(Classifier(encoder, ("a", "b"), None, (32, 32)), decay=0.5)
    by_hand = {"embeddings": 0.125, "layers.0": 0.25, "layers.1": 0.5, "model.layernorm": 1.0, "head": 1.0}
    for name, scale in found.items():
        assert [value for part, value in by_hand.items() if part in name] == [scale], name
    unused = {name for name, _ in encoder.named_parameters()} - {name.removeprefix("encoder.") for name in found}
    assert unused == {"model.pooler.dense.weight", "model.pooler.dense.bias"}


def test_a_network_without_layers_to_be_told_apart_is_refused() -> None:
    resnet = TimmEncoder(timm.create_model("resnet10t", num_classes=0), "timm:resnet10t", "a resnet", (64, 64))
    model = Classifier(resnet, ("a", "b"), None, (64, 64))
    with pytest.raises(UserError, match=r"a resnet cannot be told .* layer_decay=1"):
        layered_groups(model, resnet.depth, 0.75, resnet.what)
    assert {group["scale"] for group in layered_groups(model, resnet.depth, 1.0, resnet.what)} == {1.0}


# Mixup and drop path


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0, 4.0])
def test_mixing_shares_are_of_the_beta_distribution(alpha: float) -> None:
    from scipy import stats

    drawn = symmetric_beta(sample_keys(stream_key(0, "test"), torch.arange(20_000)), alpha)
    assert stats.kstest(drawn.numpy(), stats.beta(alpha, alpha).cdf).pvalue > 0.01


@pytest.mark.parametrize("alpha", [1e-4, 1e-2, 1e3])
def test_mixing_shares_stay_within_bounds_at_extreme_settings(alpha: float) -> None:
    drawn = symmetric_beta(sample_keys(stream_key(0, "test"), torch.arange(20_000)), alpha)
    assert bool(((drawn >= 0) & (drawn <= 1)).all())
    assert drawn.mean().item() == pytest.approx(0.5, abs=0.02)


def test_images_are_mixed_with_the_other_of_their_pair() -> None:
    images = torch.randint(0, 256, (6, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator())
    shares = own_shares(0, 5, torch.arange(6), 0.8)
    mixed = mix_images(images, shares)
    for row, other in enumerate((1, 0, 3, 2, 5, 4)):
        blend = shares[row] * images[row].float() + (1 - shares[row]) * images[other].float()
        assert (mixed[row].float() - blend).abs().max() <= 0.5 + 1e-4
        assert shares[row] == shares[other]
    assert torch.equal(mix_images(images, torch.ones(6)), images)


def test_each_rank_draws_its_part_of_the_global_shares() -> None:
    whole = own_shares(3, 7, torch.arange(8), 0.8)
    assert torch.equal(own_shares(3, 7, torch.arange(4, 8), 0.8), whole[4:])
    assert not torch.equal(own_shares(3, 8, torch.arange(8), 0.8), whole)


def test_the_loss_of_mixed_labels_is_the_mixture_of_both_losses() -> None:
    logits = uniform(torch.arange(6), 7)
    labels, partners = torch.tensor([0, 3, 6, 1, 2, 2]), torch.tensor([3, 0, 1, 6, 2, 2])
    shares = own_shares(0, 0, torch.arange(6), 0.8)
    found = F.cross_entropy(logits, mix_labels(labels, shares, 7), label_smoothing=0.1)
    own = F.cross_entropy(logits, labels, label_smoothing=0.1, reduction="none")
    other = F.cross_entropy(logits, partners, label_smoothing=0.1, reduction="none")
    torch.testing.assert_close(found, (shares * own + (1 - shares) * other).mean())


def test_a_branch_is_left_out_as_often_as_asked_and_kept_on_average() -> None:
    drop_path = DropPath(0.25)
    branch = torch.ones(4000, 2, 3)
    assert torch.equal(drop_path(branch), branch)
    drop_path.numbers = uniform(torch.tensor(5), 4000)
    dropped = drop_path(branch)
    assert sorted(set(dropped.flatten().tolist())) == pytest.approx([0, 1 / 0.75])
    assert dropped.mean().item() == pytest.approx(1, abs=0.03)


def test_drop_path_grows_with_depth_and_acts_only_with_keys() -> None:
    encoder = tiny_encoder()
    images = scenes().read(torch.arange(16), draw_crops(PRESETS["none"], torch.arange(16)), (32, 32))[0]
    before = encoder.pooled(images)
    model = Classifier(encoder, ("a", "b"), None, (32, 32), drop_path=0.5)
    rates = [module.rate for module in model.modules() if isinstance(module, DropPath)]
    assert rates == [0.0, 0.0, 0.5, 0.5]
    with torch.no_grad():
        assert not torch.allclose(model(images, torch.arange(16)), model(images))
        model(images)
        assert torch.equal(encoder.pooled(images), before)


# A run


def test_a_tiny_set_is_learned(tmp_path: Path) -> None:
    source = SubsetSource(scenes(), torch.arange(40))
    settings: dict[str, Any] = {
        "epochs": 60, "batch_size": 20, "augmentation": "none", "lr": 1e-2, "layer_decay": 1.0, "drop_path": 0.0,
        "held_out": 0.0, "label_smoothing": 0.0, "accelerator": "cpu", "devices": 1,
    }  # fmt: skip
    result = finetune(tiny_encoder(), source, source, out=tmp_path / "run", **settings)
    losses = [record["loss"] for record in metrics(tmp_path / "run")]
    assert losses[-1] < 0.1 * losses[0]
    assert result is not None and result.numbers["accuracy"] == 100


def test_a_run_leaves_everything_behind(finished: Path) -> None:
    config = yaml.safe_load((finished / "config.yaml").read_text())
    assert config["train_images"] == 48 and config["lr"] == 1e-3 * 8 / 256 and config["drop_path"] == 0.1
    assert config["fingerprint"] == tiny_encoder().fingerprint()
    assert [record["step"] for record in metrics(finished)] == list(range(2, STEPS + 1, 2))
    assert (finished / "checkpoints" / "last").resolve().name == f"step-{STEPS}"
    result = json.loads((finished / "result.json").read_text())
    assert result["task"] == "fine-tuning on 24 % of the labels" and result["protocol"]["fraction"] == 0.24
    fresh = Classifier(tiny_encoder(), scenes().classes or (), None, (32, 32)).state_dict()
    still = [name for name, tensor in weights(finished).items() if torch.equal(tensor, fresh[name])]
    assert still == ["encoder.encoder.vit.pos_embed"]


def test_the_result_is_what_the_saved_model_gives(finished: Path) -> None:
    model = load_classifier(finished / "model.safetensors", tiny_encoder())
    test = scenes("test", 60)
    images, _ = test.read(torch.arange(60), draw_crops(PRESETS["none"], torch.arange(60)), (32, 32))
    assert test.labels is not None and test.classes == model.classes
    with torch.no_grad():
        order = model(images).argsort(dim=1, descending=True)
    right = order[:, 0] == test.labels
    result = json.loads((finished / "result.json").read_text())
    numbers, of_classes = result["numbers"], result["details"]["accuracy of classes"]
    assert numbers["accuracy"] == pytest.approx(100 * right.double().mean().item())
    assert numbers["top-5"] == pytest.approx(100 * (order[:, :5] == test.labels[:, None]).any(1).double().mean())
    for number, name in enumerate(test.classes or ()):
        assert of_classes[name] == pytest.approx(100 * right[test.labels == number].double().mean().item())


def test_a_killed_run_goes_on_bit_for_bit(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = loop_module.RunLog.add
    seen: list[int] = []

    def dies(journal: Any, *arguments: Any) -> None:
        seen.append(0)
        if len(seen) == 8:
            raise MemoryError
        step(journal, *arguments)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(loop_module.RunLog, "add", dies)
        run(tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "last").resolve().name == "step-5"
    assert run(tmp_path / "run", batch_size=None, checkpoint_every=4, resume=True) is not None
    assert_same_run(tmp_path / "run", finished)


def test_a_signal_ends_a_run_after_its_step_and_resuming_ends_it_the_same(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = loop_module.TrainingProgress.step

    def signals(progress: Any, done: int) -> None:
        step(progress, done)
        if done == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(loop_module.TrainingProgress, "step", signals)
        with pytest.raises(Terminated):
            run(tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "last").resolve().name == "step-4"
    assert not (tmp_path / "run" / "result.json").exists()
    assert run(tmp_path / "run", resume=True) is not None
    assert_same_run(tmp_path / "run", finished)


def test_bf16_trains_nearly_the_same(finished: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "run", precision="bf16-mixed") is not None
    ours, theirs = metrics(tmp_path / "run")[-1]["loss"], metrics(finished)[-1]["loss"]
    assert ours != theirs and ours == pytest.approx(theirs, abs=0.02)
    assert {tensor.dtype for tensor in weights(tmp_path / "run").values()} == {torch.float32}


def print_accuracy(out: Path) -> None:
    result = run(out, devices=2)
    assert result is not None
    print("accuracy", result.numbers["accuracy"])


@pytest.mark.slow
def test_two_ranks_reach_the_weights_of_one(finished: Path, tmp_path: Path) -> None:
    done = call_on_two_ranks(print_accuracy, tmp_path / "two")
    assert done.returncode == 0, done.stderr
    accuracy = json.loads((finished / "result.json").read_text())["numbers"]["accuracy"]
    said = [line for line in done.stdout.splitlines() if line.startswith("accuracy")]
    assert said == [f"accuracy {accuracy}"] * 2
    one, two = weights(finished), weights(tmp_path / "two")
    for name in one:
        torch.testing.assert_close(
            two[name], one[name], atol=1e-6, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_the_test_images_are_looked_at_once_when_training_is_over(tmp_path: Path) -> None:
    test = scenes("test", 60)
    read: list[int] = []

    def watched(indices: torch.Tensor, *how: Any) -> Any:
        assert (tmp_path / "run" / "checkpoints" / "last").resolve().name == f"step-{STEPS}"
        read.extend(indices.tolist())
        return original(indices, *how)

    original, test.read = test.read, watched  # type: ignore[method-assign]
    finetune(tiny_encoder(), scenes(), test, out=tmp_path / "run", **SETTINGS)
    assert read == list(range(60))


def test_training_images_that_are_held_out_are_classified_every_epoch(tmp_path: Path) -> None:
    assert run(tmp_path / "run", held_out=0.3, fraction=0.4) is not None
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["train_images"] == 56
    measured = [record for record in metrics(tmp_path / "run") if "held_out_accuracy" in record]
    assert [record["epoch"] for record in measured] == [1, 2, 3]


def with_a_broken_image(source: ImageSource, broken: int) -> ImageSource:
    original = source.read

    def read(indices: torch.Tensor, *how: Any) -> Any:
        failed = (indices == broken).nonzero()[:, 0].tolist()
        return original(indices, *how)[0], {row: UnreadableImage(f"image {broken}", "cut short") for row in failed}

    source.read = read  # type: ignore[method-assign]
    return source


def test_images_that_cannot_be_read_are_passed_over_and_named(tmp_path: Path) -> None:
    train, test = with_a_broken_image(scenes(count=24), 5), with_a_broken_image(scenes("test", 20), 7)
    settings = SETTINGS | {"fraction": 1.0, "epochs": 1}
    result = finetune(tiny_encoder(), train, test, out=tmp_path / "run", **settings)
    assert result is not None and result.details["unreadable"] == ["image 7: cut short"]
    right = result.numbers["accuracy"] * 19 / 100
    assert right == pytest.approx(round(right)), "a share of the 19 that could be read"
    skipped = [json.loads(line) for line in (tmp_path / "run" / "skipped.jsonl").read_text().splitlines()]
    assert [(record["path"], record["reason"]) for record in skipped] == [("image 5", "cut short")]
    assert metrics(tmp_path / "run")[-1]["skipped"] == 1


# Which images


def test_a_subset_gives_the_images_it_names() -> None:
    source = scenes()
    subset = SubsetSource(source, torch.tensor([7, 3, 150]))
    crops = draw_crops(PRESETS["none"], torch.arange(2))
    assert torch.equal(
        subset.read(torch.tensor([2, 1]), crops, (16, 16))[0], source.read(torch.tensor([150, 3]), crops, (16, 16))[0]
    )
    assert source.labels is not None and torch.equal(subset.labels, source.labels[[7, 3, 150]])  # type: ignore[arg-type]
    assert len(subset) == 3 and subset.describe(0) == source.describe(7) and subset.sizes() == [(32, 32)] * 3


def test_held_out_images_and_the_rest_are_all_of_them() -> None:
    chosen = choose(with_labels(scenes(), "training"), None, 0.5, seed=1)
    rest, aside = hold_out(chosen, 0.2, seed=1)
    assert aside is not None and len(chosen) == 100 and len(aside) == 20
    assert isinstance(rest.source, SubsetSource) and isinstance(aside.source, SubsetSource)
    together = torch.cat((rest.source.indices, aside.source.indices)).sort().values
    assert torch.equal(together, torch.arange(100))


class NamedPictures(ArraySource):
    def describe(self, index: int) -> str:
        return f"/data/{'cats' if index < 3 else 'dogs'}/{index % 3}.png"


def test_a_list_names_the_images_to_train_on(tmp_path: Path) -> None:
    pictures = torch.zeros(6, 8, 8, 3, dtype=torch.uint8)
    source = NamedPictures("pets", pictures, ("cat", "dog"), torch.tensor([0, 0, 0, 1, 1, 1]))
    listed = tmp_path / "list.txt"

    def chosen(*names: str) -> list[int]:
        listed.write_text("\n".join(names))
        found = choose(with_labels(source, "training"), str(listed), 1.0, seed=0).source
        assert isinstance(found, SubsetSource)
        return found.indices.tolist()

    assert chosen("dogs/1.png", "", "cats/2.png", "/data/cats/2.png") == [2, 4]
    with pytest.raises(UserError, match=r"1 of 2 images .* cats/7\.png.*for example /data/cats/0\.png"):
        chosen("cats/7.png", "dogs/1.png")
    with pytest.raises(UserError, match=r"stand for several images of pets: 1\.png"):
        chosen("1.png")
    with pytest.raises(UserError, match=r"no training image among those listed in .*list\.txt: cat"):
        chosen("dogs/1.png")


def test_images_without_a_label_are_left_out() -> None:
    source = scenes()
    assert source.labels is not None
    source.labels[::2] = -1
    labeled = with_labels(source, "training")
    assert len(labeled) == 100 and torch.equal(labeled.labels, source.labels[1::2])


def test_classes_in_another_order_are_found_by_name(finished: Path, tmp_path: Path) -> None:
    test = scenes("test", 60)
    assert test.classes is not None and test.labels is not None
    turned = tuple(reversed(test.classes))
    test.labels, test.classes = len(turned) - 1 - test.labels, turned
    finetune(tiny_encoder(), scenes(), test, out=tmp_path / "run", **SETTINGS)
    ours, theirs = (json.loads((out / "result.json").read_text()) for out in (tmp_path / "run", finished))
    assert ours["numbers"] == theirs["numbers"] and ours["details"] == theirs["details"]


# Bad input


def refused(out: Path, test: ImageSource | None = None, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        finetune(tiny_encoder(), scenes(), test or scenes("test", 60), out=out, **SETTINGS | changes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fraction": 0.01}, "leaves some of the 10 classes without an image. Use fraction=0.05 or more"),
        ({"fraction": 1.5}, "fraction=1.5 is out of range: it must be more than 0 and at most 1"),
        ({"fraction": 0.05, "held_out": 0.5}, "classes have no training image once"),
        ({"image_size": 36}, "image_size=32"),
        ({"image_size": "32,64"}, "names several sizes"),
        ({"batch_size": 7}, "in pairs, as mixup needs them. Use batch_size=8"),
        ({"pooling": "class"}, "Use pooling=mean"),
        ({"image_list": "nowhere.txt"}, "nowhere.txt cannot be read"),
        ({"layer_decay": 0.0}, "layer_decay=0.0 is out of range: it must be more than 0 and at most 1"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_written(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    assert message in refused(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_an_encoder_whose_layers_cannot_be_told_apart_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    resnet = TimmEncoder(timm.create_model("resnet10t", num_classes=0), "timm:resnet10t", "a resnet", (64, 64))
    with pytest.raises(UserError, match="layer_decay=1"):
        finetune(resnet, scenes(), scenes("test", 60), out=tmp_path / "run", **SETTINGS)
    assert not (tmp_path / "run").exists()


def test_other_classes_and_missing_labels_are_refused(tmp_path: Path) -> None:
    test = scenes("test", 60)
    assert test.classes is not None
    test.classes = (*test.classes[:-1], test.classes[-1] + "s")
    message = refused(tmp_path / "run", test=test)
    assert f"{test.classes[-1]}. Did you mean '{test.classes[-1][:-1]}'?" in message
    test.labels = None
    assert "have no labels" in refused(tmp_path / "run", test=test)


def test_a_run_is_not_resumed_with_other_settings_nor_overwritten_by_accident(finished: Path) -> None:
    message = refused(finished, lr=0.5, mixup=0.2, resume=True)
    assert "lr=3.125e-05 (now 0.5)" in message and "mixup=0.8 (now 0.2)" in message
    assert "test_images=60 (now 50)" in refused(finished, test=scenes("test", 50), resume=True)
    assert "resume=True" in refused(finished)
