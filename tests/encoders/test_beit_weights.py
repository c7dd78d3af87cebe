"""Weights of BEiT and data2vec-vision give what timm and transformers give, under all their names."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from foreign_models import unsettled
from safetensors.torch import save_file
from small_weights import SIZES, close, features, last_hidden_state, pixels

import flexpredict
from flexpredict.encoders.checkpoints.reading import read_checkpoint
from flexpredict.errors import UserError
from flexpredict.model.building import set_norm_eps
from flexpredict.model.timm_parts import timm


def beit(**options: Any) -> Any:
    sizes: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
    return unsettled(
        timm.create_model("beit_base_patch16_224", num_classes=0, **{**sizes, "global_pool": "", **options})
    )


SHARED_TABLE: dict[str, Any] = {"use_rel_pos_bias": False, "use_shared_rel_pos_bias": True}
BEITS: dict[str, dict[str, Any]] = {
    "pre-trained": SHARED_TABLE,
    "fine-tuned": {"global_pool": "avg"},
    "absolute positions": {"use_abs_pos_emb": True, "init_values": None},
    "no bias": {"qkv_bias": False, "mlp_ratio": 2.7},
}


@pytest.mark.parametrize("kind", BEITS)
@pytest.mark.parametrize("wrapping", ["", "model", "module"])
def test_checkpoints_of_beit_and_data2vec_are_read(kind: str, wrapping: str, tmp_path: Path) -> None:
    model = beit(**BEITS[kind])
    index = {name: tensor for name, tensor in model.named_buffers() if name.endswith("relative_position_index")}
    besides = {"mask_token": torch.ones(1, 1, 32), "lm_head.weight": torch.ones(5, 32), "lm_head.bias": torch.ones(5)}
    state = {**model.state_dict(), **index, **besides}
    torch.save({wrapping: state, "epoch": 3} if wrapping else state, tmp_path / "x.pth")
    encoder = flexpredict.load(tmp_path / "x.pth")
    found, token = features(encoder, pixels())
    with torch.no_grad():
        expected = model.forward_features(pixels())
    close(found, expected[:, 1:])
    close(token, expected[:, 0])
    assert encoder.details[0].startswith("checkpoint of data2vec-vision or BEiT, encoder: 2 layers of 32, 4 heads")
    assert "4x4), relative positions" in encoder.details[0]
    assert f"lm_head (2), mask_token (1), relative_position_index ({len(index)})" in encoder.details[1]
    assert ("fc_norm (2)" in encoder.details[1]) == (kind == "fine-tuned")
    assert "how pixels were normalized" in encoder.details[2]


def test_what_beits_own_head_pools_is_known(tmp_path: Path) -> None:
    for global_pool, pooling in (("", "class"), ("avg", "mean")):
        torch.save(beit(global_pool=global_pool).state_dict(), tmp_path / "x.pth")
        assert read_checkpoint(tmp_path / "x.pth").pooling == pooling


@pytest.mark.parametrize("library", ["Beit", "Data2VecVision"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("head", ["Model", "ForImageClassification"])
def test_beit_and_data2vec_of_hugging_face_are_read_under_all_their_names(
    library: str, shared: bool, head: str, tmp_path: Path
) -> None:
    tables = {"use_relative_position_bias": not shared, "use_shared_relative_position_bias": shared}
    config = getattr(transformers, f"{library}Config")(**SIZES, **tables, use_mask_token=True, use_mean_pooling=False)
    model = unsettled(getattr(transformers, library + head)(config))
    inner = getattr(model, model.base_model_prefix, model)
    model.save_pretrained(tmp_path / "folder")
    save_file(model.state_dict(), tmp_path / "renamed.safetensors")
    for path in (tmp_path / "folder", tmp_path / "renamed.safetensors"):
        encoder = flexpredict.load(path)
        set_norm_eps(encoder, 1e-12)  # which a file by itself does not tell
        found, token = features(encoder, pixels())
        expected = last_hidden_state(inner, pixels())
        close(found, expected[:, 1:])
        close(token, expected[:, 0])
        assert "4 heads" in encoder.details[0] and "mask_token (1)" in encoder.details[1]
    assert library + head in flexpredict.load(tmp_path / "folder").details[0]


def test_a_folder_of_timms_beit_is_read_by_its_config(tmp_path: Path) -> None:
    model = beit(global_pool="avg")
    sizes = {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 4}
    timm.models.save_for_hf(model, tmp_path, model_args=sizes)
    encoder = flexpredict.load(tmp_path)
    with torch.no_grad():
        close(features(encoder, pixels())[0], model.forward_features(pixels())[:, 1:])
    assert "timm's beit_base_patch16_224" in encoder.details[0] and encoder.mean == (0.5, 0.5, 0.5)


def test_a_rectangle_of_relative_positions_is_told_by_its_grid(tmp_path: Path) -> None:
    model = beit(img_size=(24, 56), **SHARED_TABLE)
    torch.save(model.state_dict(), tmp_path / "x.pth")
    with pytest.raises(UserError, match="grid=4x16"):
        flexpredict.load(tmp_path / "x.pth")
    encoder = flexpredict.load(tmp_path / "x.pth", grid=(3, 7))
    with torch.no_grad():
        close(features(encoder, pixels(24, 56))[0], model.forward_features(pixels(24, 56))[:, 1:])


def test_what_is_not_wholly_a_beit_is_refused(tmp_path: Path) -> None:
    state, table = beit().state_dict(), "blocks.0.attn.relative_position_bias_table"
    cases: dict[str, tuple[Any, str]] = {
        "no norm": ({name: state[name] for name in state if not name.startswith("norm.")}, "norm.weight"),
        "no class token": ({name: state[name] for name in state if name != "cls_token"}, "cls_token"),
        "no table in a block": ({name: state[name] for name in state if name != table.replace("0", "1")}, "blocks.1"),
        "a flat table": (state | {table: torch.ones(52)}, "displacements times heads"),
        "other heads": (state | {table.replace("0", "1"): torch.ones(52, 2)}, "is 52x2, not 52x4"),
        "left over": (state | {"blocks.0.attn.k_bias": torch.ones(32)}, "1 tensors are left over"),
    }
    for name, (content, message) in cases.items():
        torch.save(content, tmp_path / name)
        with pytest.raises(UserError, match=message):
            flexpredict.load(tmp_path / name)
    torch.save(state, tmp_path / "whole")
    with pytest.raises(UserError, match="52x4, not 52x2"):
        flexpredict.load(tmp_path / "whole", heads=2)
