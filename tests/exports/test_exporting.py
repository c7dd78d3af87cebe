"""Exported encoders: the libraries they were made for give the same features, or there is no export."""

import json
import shutil
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
import transformers
from foreign_models import HUGGING_FACE, SMALL, saved_model, timm_encoder
from safetensors.torch import load_file
from small_encoders import BEIT, KINDS, MEAN, RELATIVE, STD, small
from tiny import RECIPE
from torch import Tensor

import flexpredict
from flexpredict import pretrain
from flexpredict.cli import main
from flexpredict.encoders.checkpoints.predictors import published_predictor
from flexpredict.encoders.opening import open_encoder
from flexpredict.encoders.vit_encoder import ViTEncoder
from flexpredict.errors import UserError
from flexpredict.exports import export, programs, verification
from flexpredict.exports.format import outputs_of
from flexpredict.model.timm_parts import timm
from flexpredict.randomness import sample_keys, uniform

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


def pictures(count: int = 4, size: tuple[int, int] = (32, 32)) -> Tensor:
    keys = sample_keys(3, torch.arange(count))
    return uniform(keys, 3 * size[0] * size[1]).mul(256).byte().view(count, 3, *size)


def normalized(images: Tensor, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> Tensor:
    return (images / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)


@torch.no_grad()
def same(encoder: ViTEncoder, tokens: Tensor, pooled: Tensor, size: tuple[int, int] = (32, 32)) -> None:
    """tokens: of the last layer, prefix tokens first."""
    (layer,) = encoder.tokens(pictures(size=size))
    close = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(tokens[:, -layer.patches.shape[1] :], layer.patches, **close)
    torch.testing.assert_close(pooled, encoder.pooled(pictures(size=size)), **close)


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


@pytest.mark.parametrize("form", ["onnx", "torch-export"])
def test_a_traced_beit_gives_the_same_features_on_a_rectangle(form: str, tmp_path: Path) -> None:
    options = {"use_shared_rel_pos_bias": True, "use_abs_pos_emb": True, "depth": 1}
    encoder = small(**BEIT, options=options, image_size=(16, 24))
    out = export(encoder, form, tmp_path / ("x.onnx" if form == "onnx" else "x.pt2")).out
    inputs = normalized(pictures(5, (16, 24)))
    if form == "onnx":
        session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
        found = [torch.from_numpy(array) for array in session.run(None, {"pixel_values": inputs.numpy()})]
    else:
        found = torch.export.load(out).module()(inputs)
    with torch.no_grad():
        tokens = encoder.encoder.vit.forward_features(inputs)  # timm's own
    for one, other in zip(found, (tokens[:, 1:], tokens[:, 1:].mean(dim=1)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


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


def published(file: Path, part: str, size: tuple[int, int] = (32, 32), patch: int = 8, dim: int = 32) -> Any:
    saved = torch.load(file, weights_only=True)[part]
    assert all(name.startswith("module.") for name in saved)
    model = timm.models.VisionTransformer(
        size, patch, embed_dim=dim, depth=2, num_heads=2, class_token=False, global_pool="", num_classes=0
    )
    model.load_state_dict({name[len("module.") :]: tensor for name, tensor in saved.items()})
    return model.eval()


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


def test_an_encoder_alone_is_both_encoders_of_a_published_file(tmp_path: Path) -> None:
    encoder = small()
    made = export(encoder, "official", tmp_path / "x.pth.tar")
    saved = torch.load(made.out, weights_only=True)
    assert set(saved) == {
        "encoder", "target_encoder", "epoch", "loss", "batch_size", "world_size", "lr", "opt", "scaler"
    }  # fmt: skip
    for part in ("encoder", "target_encoder"):
        tokens = published(made.out, part).forward_features(normalized(pictures())).detach()
        same(encoder, tokens, tokens.mean(dim=1))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By convention of the masked tokens."""
    folder = tmp_path_factory.mktemp("runs")
    for convention in ("paper", "released"):
        settings = RECIPE | {"epochs": 0.5, "positions": {"convention": convention}}
        pretrain("scenes:48,size=32", folder / convention, **settings)
    return {convention: folder / convention for convention in ("paper", "released")}


@pytest.mark.parametrize("convention", ["paper", "released"])
def test_a_published_file_of_a_run_holds_all_its_weights(
    convention: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    run = runs[convention]
    made = export(open_encoder(run), "official", tmp_path / "x.pth.tar")
    saved = torch.load(made.out, weights_only=True)
    trained = load_file(run / "checkpoints" / "last" / "model.safetensors")
    images = pictures()
    for part, which in (("encoder", "context"), ("target_encoder", "target")):
        encoder = open_encoder(run, which=which)
        inputs = normalized(images, encoder.mean, encoder.std)
        tokens = published(made.out, part, patch=4, dim=24).forward_features(inputs).detach()
        same(encoder, tokens, tokens.mean(dim=1))
    predictor = {name.removeprefix("module."): tensor for name, tensor in saved["predictor"].items()}
    order = ["mask_token", "predictor_pos_embed"]
    assert list(predictor)[:2] == (order if convention == "paper" else order[::-1])
    assert predictor["predictor_pos_embed"].shape == (1, 64, 16)
    torch.testing.assert_close(predictor["mask_token"], trained["predictor.mask_token"].view(1, 1, 16))
    pairs = {
        "predictor_embed.weight": "projection.weight",
        "predictor_blocks.1.attn.qkv.bias": "blocks.1.attn.qkv.bias",
        "predictor_norm.bias": "norm.bias",
        "predictor_proj.weight": "output.weight",
    }
    for theirs, ours in pairs.items():
        assert torch.equal(predictor[theirs], trained[f"predictor.{ours}"])
    read = published_predictor(
        {f"predictor.{name}": tensor for name, tensor in saved["predictor"].items()}, (8, 8), ""
    )
    assert read is not None and read.convention == convention
    for name, tensor in read.tensors.items():
        assert torch.equal(tensor, trained[f"predictor.{name}"])
    assert len(predictor) == 1 + sum(name.startswith("predictor.") for name in trained)
    assert (saved["batch_size"], saved["world_size"], saved["opt"], saved["scaler"]) == (8, 1, {}, None)
    assert saved["epoch"] == 0 and saved["loss"] > 0 and saved["lr"] > 0
    reader = {"paper": "I-JEPA's published code", "released": "StoP's published code"}[convention]
    assert any(f"read right by {reader}" in note for note in made.notes)


def test_a_predictor_that_the_published_code_would_misread_is_left_out(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["paper"], run, symlinks=True)
    config = (run / "config.yaml").read_text()
    assert "method: ijepa" in config
    (run / "config.yaml").write_text(config.replace("method: ijepa", "method: mae"))
    made = export(open_encoder(run), "official", tmp_path / "x.pth")
    assert "predictor" not in torch.load(made.out, weights_only=True)
    assert any("left out" in note and "mae" in note for note in made.notes)
    shutil.rmtree(run / "checkpoints")
    made = export(open_encoder(run), "official", tmp_path / "x.pth", overwrite=True)
    assert any("there is no predictor" in note for note in made.notes)


def test_a_published_file_of_a_run_at_another_size_has_positions_for_it(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    out = export(open_encoder(runs["paper"]), "official", tmp_path / "x.pth", image_size=(16, 40)).out
    saved = torch.load(out, weights_only=True)
    assert saved["predictor"]["module.predictor_pos_embed"].shape == (1, 40, 16)
    encoder = open_encoder(runs["paper"], which="context")
    inputs = normalized(pictures(size=(16, 40)), encoder.mean, encoder.std)
    tokens = published(out, "encoder", (16, 40), 4, 24).forward_features(inputs).detach()
    same(encoder, tokens, tokens.mean(dim=1), (16, 40))


@pytest.fixture(scope="module")
def onnx(tmp_path_factory: pytest.TempPathFactory) -> tuple[ViTEncoder, Path]:
    encoder = small(image_size=(16, 32), class_token=True, pooling="class")
    return encoder, export(encoder, "onnx", tmp_path_factory.mktemp("onnx") / "x.onnx").out


def test_onnxruntime_gives_the_same_features_for_other_numbers_of_images(onnx: tuple[ViTEncoder, Path]) -> None:
    encoder, file = onnx
    assert sorted(path.name for path in file.parent.iterdir()) == ["x.onnx", "x.onnx.README.md"]
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    facts = {name: json.loads(text) for name, text in session.get_modelmeta().custom_metadata_map.items()}
    assert (facts["mean"], facts["std"], facts["image_size"]) == (list(MEAN), list(STD), [16, 32])
    for count in (1, 5):
        images = pictures(count, (16, 32))
        patches, pooled = session.run(["patch_features", "pooled"], {"pixel_values": normalized(images).numpy()})
        wanted = outputs_of(encoder, images)
        torch.testing.assert_close(torch.from_numpy(patches), wanted.patches.detach(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(torch.from_numpy(pooled), wanted.pooled.detach(), atol=1e-5, rtol=1e-5)


def test_without_onnxruntime_the_reference_evaluator_reads_the_file(
    onnx: tuple[ViTEncoder, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_has_runtime", lambda: False)
    difference = verification.verify(onnx[0], programs.ONNX.read(*onnx), "an export")
    assert difference.relative < 1e-5


def test_a_torch_program_gives_the_same_features_for_other_numbers_of_images(tmp_path: Path) -> None:
    encoder = small(**KINDS["registers"])
    made = export(encoder, "torch-export", tmp_path / "x.pt2", image_size=(32, 16))
    program = torch.export.load(made.out).module()
    for count in (1, 5):
        patches, pooled = program(normalized(pictures(count, (32, 16))))
        wanted = outputs_of(encoder, pictures(count, (32, 16)))
        torch.testing.assert_close(patches, wanted.patches, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(pooled, wanted.pooled, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("form", "name"), [("timm", "x"), ("hf", "x"), ("official", "x.pth")])
@pytest.mark.parametrize("earlier", [False, True])
def test_an_export_that_does_not_agree_leaves_nothing(
    form: str, name: str, earlier: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / name
    if earlier:
        export(small(), form, out)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    module = {"timm": "timm_folder", "hf": "hugging_face_weights", "official": "official"}[form]

    def damaged(encoder: ViTEncoder) -> dict[str, Tensor]:
        weights = {name: tensor.clone() for name, tensor in encoder.encoder.vit.state_dict().items()}
        weights["blocks.1.mlp.fc2.bias"][3] += 0.01
        return weights

    def incomplete(encoder: ViTEncoder) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in damaged(encoder).items() if name != "norm.bias"}

    monkeypatch.setattr(f"flexpredict.exports.{module}.weights_of", damaged)
    with pytest.raises(UserError, match="would give other features: the largest difference is"):
        export(small(), form, out, overwrite=True)
    if form != "hf":
        monkeypatch.setattr(f"flexpredict.exports.{module}.weights_of", incomplete)
        with pytest.raises(UserError, match=r"could not be read back .*norm\.bias"):
            export(small(), form, out, overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_features_that_are_not_numbers_do_not_pass() -> None:
    encoder = small()

    def broken(images: Tensor) -> Any:
        return type(wanted)(wanted.patches * float("nan"), wanted.pooled)

    wanted = outputs_of(encoder, verification.shown_images((32, 32)))
    with pytest.raises(UserError, match="other features"):
        verification.verify(encoder, broken, "an export")
    with torch.no_grad():
        encoder.encoder.vit.norm.bias[0] = float("nan")
    with pytest.raises(UserError, match="not numbers"):
        verification.verify(encoder, lambda images: wanted, "an export")


@pytest.mark.parametrize(
    ("form", "options", "words"),
    [
        ("hf", {"options": {"qk_norm": True}}, "IJepaModel, which has no place for blocks.attn.k_norm"),
        ("hf", {"options": {"pre_norm": True}}, "no place for norm_pre"),
        ("hf", {"options": {"init_values": 0.1}}, "layer scales and no class token"),
        ("hf", {"options": {"act_layer": "relu"}}, "activation ReLU"),
        ("hf", KINDS["registers"] | {"image_size": (32, 48)}, "not square"),
        (
            "hf",
            BEIT | {"image_size": (32, 48)},
            "BeitModel, which .* not square .* use format=onnx or torch-export",
        ),
        ("hf", BEIT | {"options": {"scale_mlp": True}}, "BeitModel, which has no place for blocks.mlp.norm"),
        ("timm", BEIT | {"image_size": (32, 48)}, "timm's Beit, which .* not square"),
        ("official", BEIT, "no place for blocks.attn.q_bias"),
        ("official", {"class_token": True}, "no place for cls_token"),
        ("official", {"options": {"init_values": 0.1}}, "blocks.ls1.gamma"),
        ("official", {"options": {"qkv_bias": False}}, "needs blocks.attn.qkv.bias, which it lacks"),
    ],
)
def test_what_a_format_has_no_place_for_is_refused(
    form: str, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        export(small(**options), form, tmp_path / "x.pth")
    assert not list(tmp_path.iterdir())


def test_an_encoder_that_does_not_say_how_it_was_built_is_refused_for_timm(tmp_path: Path) -> None:
    encoder = small()
    encoder.spec = None
    with pytest.raises(UserError, match="does not say from which timm model"):
        export(encoder, "timm", tmp_path / "x")


def test_places_that_hold_something_are_left_alone(tmp_path: Path) -> None:
    folder, file = tmp_path / "x", tmp_path / "x.pt2"
    export(small(), "timm", folder)
    with pytest.raises(UserError, match=r"exists already\. Replace it with overwrite=true"):
        export(small(), "timm", folder)
    export(small(), "timm", folder, overwrite=True, license="mit")
    assert "license: mit" in (folder / "README.md").read_text()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes\.txt"):
        export(small(), "timm", folder, overwrite=True)
    with pytest.raises(UserError, match=r"ends in .pt2. Use out=.*x/encoder.pt2"):
        export(small(), "torch-export", folder, overwrite=True)
    with pytest.raises(UserError, match=r"Use out=.*model.onnx"):
        export(small(), "onnx", tmp_path / "model")
    file.write_text("mine")
    with pytest.raises(UserError, match=r"is a file\. Name a folder"):
        export(small(), "hf", file, overwrite=True)
    with pytest.raises(UserError, match=r"format=time does not work: it takes .* Did you mean 'timm'"):
        export(small(), "time", tmp_path / "y")
    with pytest.raises(UserError, match="does not divide"):
        export(small(), "timm", tmp_path / "y", image_size=(30, 32))


def test_a_place_that_will_not_do_is_refused_before_the_encoder_is_opened(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Use out=.*model\.onnx"):
        flexpredict.export("nowhere", "onnx", tmp_path / "model")


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


def test_models_of_other_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a plain vision transformer"):
        export(open_encoder("timm:resnet10t,pretrained=no"), "torch-export", tmp_path / "x.pt2")


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


def test_a_model_that_would_be_taken_for_another_is_refused(tmp_path: Path) -> None:
    encoder = timm_encoder("vit_tiny_patch16_224", **SMALL, patch_size=8, act_layer="relu")
    with pytest.raises(UserError, match=r"As a plain vision transformer, .* would give other features"):
        export(encoder, "timm", tmp_path / "x")
    averaged = timm_encoder("vit_tiny_patch16_224", **SMALL, patch_size=8, global_pool="avg")
    with pytest.raises(UserError, match=r"not built as the vision transformers here are: norm\.weight is missing"):
        export(averaged, "timm", tmp_path / "x")
    saved_model(tmp_path / "clip", "clip")
    with pytest.raises(UserError, match=r"CLIPVisionModel .* not a plain vision transformer"):
        export(open_encoder(f"hf:{tmp_path / 'clip'}"), "timm", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_the_command_takes_names_of_timm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x"
    assert main(["export", "timm:test_vit,pretrained=no", "--format", "hf", "--out", str(out)]) == 0
    assert "Its class is ViTModel" in capsys.readouterr().out
    assert "Bar, Amir" not in (out / "README.md").read_text()
