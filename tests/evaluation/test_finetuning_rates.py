"""Learning rates of fine-tuning fall from layer to layer as in MAE and timm; what has no layers is refused."""

import pytest
from small_finetuning import tiny_encoder

from flexpredict.encoders.hugging_face_encoder import HuggingFaceEncoder
from flexpredict.encoders.timm_encoder import TimmEncoder
from flexpredict.errors import UserError
from flexpredict.evaluation.finetuning.classifier import Classifier, layer_of, layered_groups
from flexpredict.model.timm_parts import timm


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
