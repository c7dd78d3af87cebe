"""Pre-training goes on from anyone's weights: they are all there, and the first prediction is the one they made."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import yaml
from foreign_models import unsettled
from reference_vectors import reference_checkpoint, reference_vectors
from safetensors.torch import load_file
from tiny import RECIPE, write_pictures
from torch import Tensor

import flexpredict
from flexpredict import pretrain, randomness
from flexpredict.data.pixels import MEAN, STD
from flexpredict.data.sources.opening import ArraySource, open_images
from flexpredict.errors import UserError
from flexpredict.model.positions import sincos_positions
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import normal, sample_keys
from flexpredict.runs.encoder_file import read_encoder
from flexpredict.training.initial_weights import initial_weights
from flexpredict.training.plan import Plan, make_plan
from flexpredict.training.recipe_parser import make_recipe
from flexpredict.training.starting_weights import adopted, start_from

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def started(init_from: Any, **fields: Any) -> tuple[Plan, Any]:
    """The plan and the model with which a run would begin."""
    recipe = make_recipe({"data": "scenes:16,size=32", "init_from": str(init_from), "accelerator": "cpu", **fields})
    initial = initial_weights(recipe)
    source = open_images(recipe.data or "")
    plan = make_plan(adopted(recipe, initial, source), source, torch.device("cpu"), 1)
    model = plan.build_model()
    start_from(model, initial)
    return plan, model


def pixels(height: int = 32, width: int = 32) -> Tensor:
    return normal(sample_keys(3, torch.arange(2)), 3 * height * width).view(2, 3, height, width)


@pytest.mark.parametrize("folder", ["ijepa", "stop"])
def test_a_published_checkpoint_goes_on_with_its_predictor_and_its_convention(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, vectors = reference_checkpoint(folder), reference_vectors(folder)
    positions = {"kind": "stochastic" if folder == "stop" else "sincos"}
    plan, model = started(path, model_options={"num_heads": 2}, positions=positions)
    if folder == "stop":
        assert plan.recipe.positions.convention == "released"
        drawn = vectors["noise"].flatten(1) / 0.25
        monkeypatch.setattr(randomness, "normal", lambda keys, count: drawn[keys].clone())
    keys = torch.arange(len(vectors["context"])).unsqueeze(1)
    result = model(vectors["images"], vectors["context"].unsqueeze(1), vectors["targets"].unsqueeze(1), keys)
    torch.testing.assert_close(result.predictions, vectors["predictions"], **CLOSE)
    torch.testing.assert_close(result.loss, vectors["loss"], **CLOSE)


def test_the_papers_convention_predicts_the_same_from_a_stop_checkpoint_without_noise() -> None:
    path, vectors = reference_checkpoint("stop"), reference_vectors("stop")
    options = {"model_options": {"num_heads": 2}}
    context, targets = vectors["context"], vectors["targets"]
    predictions = []
    for positions in ({}, {"convention": "paper"}, {"kind": "sincos"}):
        _, model = started(path, positions=positions, **options)
        model.eval()
        with torch.no_grad():
            predictions.append(model.predictor(vectors["context_features"], context, targets))
    torch.testing.assert_close(predictions[1], predictions[0], **CLOSE)
    torch.testing.assert_close(predictions[2], predictions[0], **CLOSE)


def test_a_run_that_starts_from_a_published_checkpoint_trains_and_resumes(tmp_path: Path) -> None:
    path = reference_checkpoint("stop")
    data = write_pictures(tmp_path / "pictures")
    fields = {**RECIPE, "init_from": str(path), "epochs": 1, "predictor": {}, "patch_size": None, "image_size": None}
    del fields["model"]
    fields["model_options"] = {"num_heads": 2}
    pretrain(data, tmp_path / "run", **fields)
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["positions"]["convention"] == "released"
    assert config["predictor"] == {"dim": 24, "depth": 2, "heads": 2} and config["image_size"] == "32x32"
    pretrain(out=tmp_path / "run", resume=True)  # nothing is left to do, and nothing contradicts the recipe


@pytest.mark.parametrize("name", ["timm", "hf", "file"])
def test_encoders_of_others_become_both_encoders(name: str, tmp_path: Path) -> None:
    if name == "hf":
        model = unsettled(
            transformers.Dinov2Model(
                transformers.Dinov2Config(
                    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8
                )
            )
        )
        model.save_pretrained(tmp_path / "dinov2")
        source, prefix = f"hf:{tmp_path}/dinov2", 1
        with torch.no_grad():
            expected = model(pixels()).last_hidden_state[:, prefix:]
    else:
        vit = unsettled(timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=0))
        torch.save(vit.state_dict(), tmp_path / "dino.pth")
        source = str(tmp_path / "dino.pth")
        with torch.no_grad():
            expected = vit.forward_features(pixels())[:, 1:]
    if name == "timm":
        plan, trained = started("timm:vit_tiny_patch16_224,pretrained=no")
        assert plan.recipe.patch_size == 16 and plan.recipe.image_size == "128x128"
        assert plan.recipe.encoder_positions == "learned" and plan.recipe.class_token
        return
    _, trained = started(source, model_options={} if name == "hf" else {"num_heads": 3})
    for encoder in (trained.context_encoder, trained.target_encoder):
        with torch.no_grad():
            torch.testing.assert_close(encoder.eval()(pixels()), expected, **CLOSE)


def test_other_statistics_of_pixels_are_put_into_the_embedding(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8
    )
    model = unsettled(transformers.ViTModel(config, add_pooling_layer=False))
    model.save_pretrained(tmp_path)
    transformers.ViTImageProcessor(image_mean=[0.5] * 3, image_std=[0.5, 0.4, 0.3]).save_pretrained(tmp_path)
    _, trained = started(tmp_path)
    images = randomness.uniform(sample_keys(1, torch.arange(2)), 3 * 32 * 32).view(2, 3, 32, 32)
    ours = (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    theirs = (images - 0.5) / torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)
    with torch.no_grad():
        expected = model(theirs).last_hidden_state[:, 1:]
        torch.testing.assert_close(trained.context_encoder.eval()(ours), expected, atol=2e-5, rtol=2e-5)


def test_a_masked_autoencoder_goes_on_with_its_decoder(tmp_path: Path) -> None:
    config = transformers.ViTMAEConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        decoder_hidden_size=16,
        decoder_num_hidden_layers=2,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=64,
        norm_pix_loss=True,
        mask_ratio=0.75,
    )
    theirs = unsettled(transformers.ViTMAEForPreTraining(config))
    for positions in (theirs.vit.embeddings.position_embeddings, theirs.decoder.decoder_pos_embed):
        # As it always is in the files; some versions of the library build it as zeros.
        positions.data[0, 1:] = sincos_positions((4, 4), positions.shape[2])
    theirs.save_pretrained(tmp_path)
    plan, ours = started(tmp_path, method="mae", positions={"kind": "sincos"})
    assert plan.recipe.predictor.dim == 16 and plan.recipe.predictor.heads == 2
    noise = randomness.uniform(sample_keys(2, torch.arange(2)), 16)
    order = noise.argsort(dim=1)
    with torch.no_grad():
        expected = theirs(pixels(), noise=noise).loss
        found = ours.eval()(pixels(), order[:, None, :4], order[:, None, None, 4:]).loss
    torch.testing.assert_close(found, expected, **CLOSE)
    # Another method has no use for a decoder: its predictor is new.
    _, jepa = started(tmp_path)
    assert jepa.predictor.output.weight.shape[0] == 32


def test_a_run_at_another_resolution_gets_positions_of_its_grid(tmp_path: Path) -> None:
    for kind in ("learned", "sincos"):
        run = tmp_path / kind
        pretrain("scenes:16,size=32", run, **{**RECIPE, "epochs": 1, "positions": {"kind": kind}})
        _, model = started(run, image_size="24x40", positions={"kind": kind}, data="scenes:16,size=40")
        with torch.no_grad():
            expected = read_encoder(run).encoder(pixels(24, 40))
            torch.testing.assert_close(model.target_encoder.eval()(pixels(24, 40)), expected, **CLOSE)


@pytest.mark.parametrize("standardize", ["feature", "position"])
def test_statistics_of_targets_come_along_together_or_not_at_all(standardize: str, tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "pictures")
    short = {**RECIPE, "epochs": 1, "targets": {"standardize": "feature"}}
    pretrain(str(pictures), tmp_path / "run", **short)
    _, model = started(tmp_path / "run", targets={"standardize": standardize})
    come = [bool(buffer.any()) for buffer in model.standardization.buffers()]
    assert come == 3 * [standardize == "feature"]


def test_a_class_token_that_the_weights_lack_is_refused(tmp_path: Path) -> None:
    pictures = write_pictures(tmp_path / "pictures")
    pretrain(str(pictures), tmp_path / "run", **{**RECIPE, "epochs": 1 / 6})
    with pytest.raises(UserError, match=r"class_token=True, but .* has no class token"):
        started(tmp_path / "run", class_token=True)


def test_a_runs_architecture_need_not_be_said_again(tmp_path: Path) -> None:
    pretrain("scenes:16,size=32", tmp_path / "first", **{**RECIPE, "epochs": 1})
    fields = {name: RECIPE[name] for name in ("batch_size", "accelerator", "devices")}
    pretrain("scenes:16,size=32", tmp_path / "second", **fields, epochs=0.5, init_from=str(tmp_path / "first"))
    configs = [yaml.safe_load((tmp_path / run / "config.yaml").read_text()) for run in ("first", "second")]
    for name in ("model", "model_options", "patch_size", "image_size", "predictor", "encoder_positions"):
        assert configs[0][name] == configs[1][name], name
    _, model = started(tmp_path / "first")
    saved = load_file(tmp_path / "first" / "checkpoints" / "last" / "model.safetensors")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, saved[name]), name
    # The encoder alone, without the predictor.
    _, encoder_only = started(tmp_path / "first" / "encoder.safetensors", predictor={"dim": 16, "depth": 1})
    assert torch.equal(encoder_only.context_encoder.vit.norm.weight, saved["target_encoder.vit.norm.weight"])


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    pretrain("scenes:16,size=32", tmp_path / "run", **{**RECIPE, "epochs": 1})
    with pytest.raises(UserError, match=r"predictor.*does not fit.*encoder\.safetensors"):
        started(tmp_path / "run", predictor={"dim": 24, "heads": 2})
    with pytest.raises(UserError, match=r"2 attention heads.*has 3.*Leave model"):
        started(tmp_path / "run", model="vit_tiny_patch16_224", patch_size=4)
    with pytest.raises(UserError, match=r"do not fit the encoder of the recipe.*Leave model"):
        started(tmp_path / "run", model="vit_tiny_patch16_224", patch_size=4, model_options={"num_heads": 2})
    with pytest.raises(UserError, match=r"embedding_scale=2 is for new.*are trained\. Leave it out"):
        started(tmp_path / "run", embedding_scale=2.0)
    with pytest.raises(UserError, match="There is no encoder"):
        started(tmp_path / "nowhere")


def test_learned_positions_stay_learned_whatever_else_the_recipe_names(tmp_path: Path) -> None:
    vit = unsettled(timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, num_classes=0))
    torch.save(vit.state_dict(), tmp_path / "x.pth")
    named: dict[str, Any] = {"model": "vit_tiny_patch16_224", "patch_size": 8, "class_token": True}
    plan, model = started(tmp_path / "x.pth", **named)
    assert plan.recipe.encoder_positions == "learned" and model.context_encoder.vit.pos_embed.requires_grad
    with pytest.raises(UserError, match="has learned positions"):
        started(tmp_path / "x.pth", **named, encoder_positions="sincos")
    with pytest.raises(UserError, match=r"6 attention heads.*has 3"):
        started(f"{tmp_path}/x.pth,heads=6", **named)


def test_an_image_is_one_vector_in_the_same_way_before_and_after(tmp_path: Path) -> None:
    """Otherwise a probe of both would compare class token and mean, not the encoders."""
    small = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 0}
    vit = unsettled(timm.create_model("vit_tiny_patch16_224", **small))
    torch.save(vit.state_dict(), tmp_path / "x.pth")
    before = flexpredict.load(f"{tmp_path}/x.pth,heads=2")
    fields = {name: RECIPE[name] for name in ("batch_size", "accelerator", "devices")}
    still = {**fields, "epochs": 0.5, "optimizer": {"encoder_lr": 0.0}}
    pretrain("scenes:16,size=32", tmp_path / "on", **still, init_from=f"{tmp_path}/x.pth,heads=2")
    pretrain("scenes:16,size=32", tmp_path / "further", **still, init_from=str(tmp_path / "on"))
    images = pixels(32, 32)
    assert before.pooling == "class"
    for run in ("on", "further"):
        after = flexpredict.load(tmp_path / run)
        assert after.pooling == "class", run
        torch.testing.assert_close(after.pooled(images), before.pooled(images), **CLOSE)
    with_own_class_token = {**RECIPE, "epochs": 1, "class_token": True}
    pretrain("scenes:16,size=32", tmp_path / "new", **with_own_class_token)
    assert flexpredict.load(tmp_path / "new").pooling == "mean", "nothing has trained its class token"


def test_what_a_checkpoint_does_not_tell_can_be_said_after_its_name(tmp_path: Path) -> None:
    small = {"img_size": (16, 64), "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 0}
    vit = unsettled(timm.create_model("vit_tiny_patch16_224", class_token=False, global_pool="avg", **small))
    torch.save(
        {name: tensor for name, tensor in vit.state_dict().items() if "fc_norm" not in name}
        | {"norm.weight": torch.ones(24), "norm.bias": torch.zeros(24)},
        tmp_path / "x.pth",
    )
    plan, model = started(f"{tmp_path}/x.pth,heads=2,grid=2x8")
    assert plan.image_size == (16, 64) and model.context_encoder.vit.blocks[0].attn.num_heads == 2
    with pytest.raises(UserError, match=r"'haeds' in .*haeds=2.*heads"):
        started(f"{tmp_path}/x.pth,haeds=2")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("timm:resnet10t,pretrained=no", "not a plain vision transformer"),
        ("timm:vit_base_patch32_clip_224,pretrained=no", "patch embedding has no bias"),
    ],
)
def test_models_of_timm_that_cannot_go_on_are_refused_in_words(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        started(name)


@pytest.mark.parametrize(
    ("side", "expected"), [(32, "112x112"), (160, "154x154"), (224, "224x224"), (640, "224x224")]
)
def test_small_images_are_not_blown_up_to_the_size_of_the_weights(side: int, expected: str, tmp_path: Path) -> None:
    small = {"img_size": 518, "patch_size": 14, "embed_dim": 24, "depth": 1, "num_heads": 2, "num_classes": 0}
    vit = unsettled(timm.create_model("vit_tiny_patch16_224", **small))
    torch.save(vit.state_dict(), tmp_path / "x.pth")
    recipe = make_recipe({"init_from": f"{tmp_path}/x.pth,heads=2"})
    initial = initial_weights(recipe)
    images = ArraySource("images", torch.zeros(1, side, side + 40, 3, dtype=torch.uint8).expand(8, -1, -1, -1))
    assert adopted(recipe, initial, images).image_size == expected
    assert adopted(recipe, initial).image_size == "518x518"


def test_a_new_predictor_learns_alone_first_and_one_that_comes_along_does_not_wait(tmp_path: Path) -> None:
    pretrain(
        "scenes:16,size=32", tmp_path / "first", **{**RECIPE, "epochs": 1, "targets": {"standardize": "position"}}
    )
    fields: dict[str, Any] = {name: RECIPE[name] for name in ("batch_size", "accelerator", "devices")}
    encoder = tmp_path / "first" / "encoder.safetensors"
    alone = {"predictor_warmup_epochs": 2}
    pretrain("scenes:16,size=32", tmp_path / "alone", **fields, epochs=2, init_from=str(encoder), optimizer=alone)
    trained = load_file(tmp_path / "alone" / "checkpoints" / "last" / "model.safetensors")
    for name, tensor in load_file(encoder).items():
        assert torch.equal(trained[f"context_encoder.vit.{name}"], tensor), name
        assert torch.equal(trained[f"target_encoder.vit.{name}"], tensor), name
    plan, model = started(encoder)
    assert plan.recipe.scale == "continued" and plan.predictor_warmup_steps == round(plan.steps / 4)
    assert plan.encoder_rate(plan.predictor_warmup_steps - 1) == 0.0
    assert plan.encoder_rate(plan.predictor_warmup_steps) == plan.recipe.optimizer.encoder_lr < 1
    assert not torch.equal(model.predictor.output.weight, trained["predictor.output.weight"])
    plan, _ = started(tmp_path / "first")
    assert plan.predictor_warmup_steps == 0 and plan.recipe.targets.standardize == "position"
    with pytest.raises(UserError, match=r"predictor_warmup_epochs=3 is longer than the run of 2 epochs"):
        started(encoder, epochs=2, optimizer={"predictor_warmup_epochs": 3})


def test_a_plan_is_that_of_the_weights_it_starts_from(tmp_path: Path) -> None:
    pretrain("scenes:16,size=32", tmp_path / "first", **{**RECIPE, "epochs": 1})
    values: dict[str, Any] = {"batch_size": 4, "epochs": 1, "accelerator": "cpu", "measure": False}
    known = flexpredict.plan("scenes:16,size=32", init_from=str(tmp_path / "first"), **values).to_dict()
    tensors = load_file(tmp_path / "first" / "encoder.safetensors").values()
    assert known["parts"]["context encoder"]["parameters"] == sum(tensor.numel() for tensor in tensors)
