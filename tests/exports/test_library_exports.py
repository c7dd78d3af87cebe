"""Encoders exported for timm and transformers: those libraries give the same features, at any size."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from foreign_models import HUGGING_FACE, SMALL, saved_model, timm_encoder
from safetensors.torch import load_file
from same_features import normalized, pictures, published, same
from small_encoders import BEIT, KINDS, MEAN, RELATIVE, STD, small

from flexpredict.cli import main
from flexpredict.encoders.opening import open_encoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.exports import export
from flexpredict.model.timm_parts import timm

ARCHITECTURES = {
    "plain": "IJepaModel",
    "learned positions": "IJepaModel",
    "no bias of queries": "IJepaModel",
    "another ε": "IJepaModel",
    "class token": "ViTModel",
    "class token, patches averaged": "ViTModel",
    "layer scales": "Dinov2Model",
    "registers": "Dinov2WithRegistersModel",
    "registers with positions": "Dinov2WithRegistersModel",
}


@pytest.mark.parametrize("kind", KINDS)
def test_timm_opens_the_folder_and_gives_the_same_features(kind: str, tmp_path: Path) -> None:
    encoder = small(**KINDS[kind])
    made = export(encoder, "timm", tmp_path / "out")
    assert sorted(path.name for path in made.out.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    model = timm.create_model(f"local-dir:{made.out}", pretrained=True).eval()
    facts = timm.data.resolve_model_data_config(model)
    assert [facts["mean"], facts["std"], facts["input_size"]] == [list(MEAN), list(STD), [3, 32, 32]]
    with torch.no_grad():
        inputs = normalized(pictures())
        same(encoder, model.forward_features(inputs), model(inputs))
    assert any("1e-12" in note for note in made.notes) == (kind == "another ε")


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_opens_the_folder_and_gives_the_same_features(kind: str, tmp_path: Path) -> None:
    encoder = small(**KINDS[kind])
    made = export(encoder, "hf", tmp_path / "out")
    config = json.loads((made.out / "config.json").read_text())
    assert config["architectures"] == [ARCHITECTURES[kind]]
    assert config["layer_norm_eps"] == (1e-12 if kind == "another ε" else 1e-6)
    model = getattr(transformers, ARCHITECTURES[kind]).from_pretrained(made.out).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(made.out)
    assert (tuple(processor.image_mean), tuple(processor.image_std)) == (MEAN, STD)
    with torch.no_grad():
        tokens = model(pixel_values=normalized(pictures())).last_hidden_state
    pooled = tokens[:, 0] if encoder.pooling == "class" else tokens[:, -16:].mean(dim=1)
    same(encoder, tokens, pooled)


@pytest.mark.parametrize("kind", RELATIVE)
def test_timm_opens_a_beit_and_gives_the_same_features(kind: str, tmp_path: Path) -> None:
    """At another size, where its tables are resized."""
    encoder, size = small(**BEIT | RELATIVE[kind]), (48, 48)
    made = export(encoder, "timm", tmp_path / "out", image_size=size)
    model = timm.create_model(f"local-dir:{made.out}", pretrained=True).eval()
    assert type(model) is timm.models.beit.Beit
    with torch.no_grad():
        inputs = normalized(pictures(size=size))
        tokens = model.forward_features(inputs)
        pooled = tokens[:, 1:].mean(dim=1)
        if encoder.pooling == "class":
            pooled = tokens[:, 0] if "no final norm" in kind else model(inputs)
        same(encoder, tokens, pooled, size)
    assert any("was not trained" in note for note in made.notes) == ("no final norm" in kind)


@pytest.mark.parametrize("kind", RELATIVE)
def test_transformers_opens_a_beit_and_gives_the_same_features(kind: str, tmp_path: Path) -> None:
    encoder = small(**BEIT | RELATIVE[kind])
    out = export(encoder, "hf", tmp_path / "out").out
    model = transformers.BeitModel.from_pretrained(out, add_pooling_layer=False).eval()
    with torch.no_grad():
        tokens = model(pixel_values=normalized(pictures())).last_hidden_state
    same(encoder, tokens, tokens[:, 0] if encoder.pooling == "class" else tokens[:, 1:].mean(dim=1))
    model.save_pretrained(tmp_path / "again")
    written, again = (load_file(folder / "model.safetensors") for folder in (out, tmp_path / "again"))
    assert written.keys() == again.keys(), "names of its own files"


@pytest.mark.parametrize("kind", ["plain", "learned positions", "class token"])
def test_weights_of_a_transformers_folder_have_the_names_of_its_own_files(kind: str, tmp_path: Path) -> None:
    """So that versions which do not rename them can read them too."""
    out = export(small(**KINDS[kind]), "hf", tmp_path / "out").out
    model = getattr(transformers, ARCHITECTURES[kind]).from_pretrained(out, add_pooling_layer=False)
    model.save_pretrained(tmp_path / "again")
    written, again = (load_file(folder / "model.safetensors") for folder in (out, tmp_path / "again"))
    assert written.keys() == again.keys()
    assert all(torch.equal(written[name], again[name]) for name in written)


@pytest.mark.parametrize("positions", ["sincos", "learned"])
@pytest.mark.parametrize("form", ["timm", "hf", "official"])
def test_an_export_for_another_size_is_the_encoder_at_that_size(form: str, positions: str, tmp_path: Path) -> None:
    """Not a square, and compared with the encoder that was never resized."""
    encoder, size = small(positions=positions), (24, 48)
    out = export(encoder, form, tmp_path / ("x.pth" if form == "official" else "x"), image_size=size).out
    inputs = normalized(pictures(size=size))
    with torch.no_grad():
        if form == "timm":
            tokens = timm.create_model(f"local-dir:{out}", pretrained=True).eval().forward_features(inputs)
        elif form == "hf":
            model = transformers.IJepaModel.from_pretrained(out, add_pooling_layer=False).eval()
            tokens = model(pixel_values=inputs).last_hidden_state
        else:
            tokens = published(out, "target_encoder", size).forward_features(inputs)
    same(encoder, tokens, tokens.mean(dim=1), size)


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("timm", "registers"),
        ("hf", "class token"),
        ("official", "plain"),
        ("timm", "both tables"),
        ("hf", "both tables"),
        ("timm", "no final norm"),
        ("hf", "no final norm"),
    ],
)
def test_what_was_exported_can_be_opened_here_again(form: str, kind: str, tmp_path: Path) -> None:
    encoder = small(**KINDS[kind]) if kind in KINDS else small(**BEIT | RELATIVE[kind])
    out = export(encoder, form, tmp_path / "x.pth").out
    again = open_encoder(out, heads=2)
    assert isinstance(again, ViTEncoder)
    with torch.no_grad():
        (tokens,) = again.encoder.last_tokens(normalized(pictures()))
        (wanted,) = encoder.encoder.last_tokens(normalized(pictures()))
    torch.testing.assert_close(tokens, wanted, atol=1e-5, rtol=1e-5)


def test_the_command_says_what_was_found_and_written(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / 'deep "down"' / "x"
    assert main(["export", str(runs["paper"]), "--format", "timm", "--out", str(out), "--image_size", "16x24"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "target encoder of",
        f"Written: {out}",
        "Largest difference",
        "Load it: model =",
    ):
        assert words in printed
    load = printed.split("Load it: ")[1].split("\n")[0]
    names: dict[str, Any] = {"timm": timm}
    exec(load, names)
    assert names["model"].patch_embed.img_size == (16, 24)


# Of other libraries


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "a plain one": ("vit_tiny_patch16_224", {}),
    "patches averaged": ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg", "fc_norm": False}),
    "another activation and ε": ("vit_base_patch32_clip_quickgelu_224", {}),
    "registers": ("vit_small_patch14_reg4_dinov2", {}),
    "attention pooling": ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "map"}),
    "beit": ("beit_base_patch16_224", {}),
}


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_models_of_timm_can_be_handed_on(kind: str, tmp_path: Path) -> None:
    name, options = MODELS[kind]
    encoder = timm_encoder(name, **SMALL, patch_size=8, **options)
    images, count = pictures(), encoder.model.num_prefix_tokens
    inputs = normalized(images, encoder.mean, encoder.std)
    tokens = encoder.model.forward_features(inputs)
    made = export(encoder, "timm", tmp_path / "timm")
    again = timm.create_model(f"local-dir:{made.out}", pretrained=True).eval()
    torch.testing.assert_close(again.forward_features(inputs), tokens, atol=1e-5, rtol=1e-5)
    assert f"made from: `{encoder.fingerprint()}`" in made.card.read_text(), "by which evaluations know it"
    if kind != "another activation and ε":  # which comes with a norm that no model of transformers has
        out = export(encoder, "hf", tmp_path / "hf").out
        model = transformers.AutoModel.from_pretrained(out).eval()
        found = model(pixel_values=inputs).last_hidden_state
        torch.testing.assert_close(found[:, count:], tokens[:, count:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["ijepa", "vit", "dinov2", "dinov2 with registers", "beit, relative"])
@torch.no_grad()
def test_models_of_transformers_can_be_handed_on(kind: str, tmp_path: Path) -> None:
    model, prefix = saved_model(tmp_path / "theirs", kind), HUGGING_FACE[kind][2]
    encoder = open_encoder(f"hf:{tmp_path / 'theirs'}")
    inputs = normalized(pictures(), encoder.mean, encoder.std)
    tokens = model(pixel_values=inputs).last_hidden_state
    for form in ("timm", "hf"):
        made = export(encoder, form, tmp_path / form)
        assert f"made from: `{encoder.fingerprint()}`" in made.card.read_text()
        if form == "timm":
            found = timm.create_model(f"local-dir:{made.out}", pretrained=True).eval().forward_features(inputs)
        else:
            found = type(model).from_pretrained(made.out).eval()(pixel_values=inputs).last_hidden_state
        # ViTModel's ε of 1e-12 is timm's 1e-6 there
        torch.testing.assert_close(found[:, prefix:], tokens[:, prefix:], atol=5e-5, rtol=1e-5)


def test_the_command_takes_names_of_timm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x"
    assert main(["export", "timm:test_vit,pretrained=no", "--format", "hf", "--out", str(out)]) == 0
    assert "Its class is ViTModel" in capsys.readouterr().out
    assert "Bar, Amir" not in (out / "README.md").read_text()
