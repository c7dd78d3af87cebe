"""Agreement with numbers that the authors' own code gave, within 1e-5."""

import pytest
import torch
from reference_vectors import reference_checkpoint, reference_sizes, reference_vectors

from flexpredict import randomness
from flexpredict.methods.ijepa import IJEPA
from flexpredict.model.building import build_encoder
from flexpredict.model.predictor import Predictor
from flexpredict.settings.positions import Positions

PREDICTOR_NAMES = {
    "predictor_embed": "projection",
    "predictor_blocks": "blocks",
    "predictor_norm": "norm",
    "predictor_proj": "output",
}


def load(folder: str) -> tuple[IJEPA, dict[str, torch.Tensor], dict[str, dict[str, torch.Tensor]]]:
    sizes = reference_sizes(folder)
    saved = torch.load(reference_checkpoint(folder), weights_only=True)
    options = {name: sizes[name] for name in ("embed_dim", "depth", "num_heads")}
    encoder = build_encoder(
        "vit_tiny_patch16_224", (sizes["img_size"],) * 2, patch_size=sizes["patch_size"], options=options
    )
    settings = (
        Positions("stochastic", noise_std=0.25, convention="released") if folder == "stop" else Positions("sincos")
    )
    predictor = Predictor(
        sizes["embed_dim"],
        encoder.grid,
        sizes["predictor_dim"],
        sizes["predictor_depth"],
        sizes["num_heads"],
        settings,
    )
    model = IJEPA(encoder, predictor)
    model.context_encoder.vit.load_state_dict(strip(saved["encoder"]))
    model.target_encoder.vit.load_state_dict(strip(saved["target_encoder"]))
    weights = {}
    for name, tensor in strip(saved["predictor"]).items():
        head, _, rest = name.partition(".")
        if name == "mask_token":
            weights[name] = tensor.flatten()
        elif name != "predictor_pos_embed":
            weights[f"{PREDICTOR_NAMES[head]}.{rest}"] = tensor
    predictor.load_state_dict(weights)
    return model, reference_vectors(folder), saved


def strip(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix("module."): tensor for name, tensor in state.items()}


@pytest.mark.parametrize("folder", ["ijepa", "stop"])
def test_positions_equal_the_published_ones(folder: str) -> None:
    model, _, saved = load(folder)
    published = strip(saved["predictor"])["predictor_pos_embed"][0]
    torch.testing.assert_close(model.predictor.positions, published, atol=1e-6, rtol=0)
    rebuilt = build_encoder(
        "vit_tiny_patch16_224", (32, 32), 4, options={"embed_dim": 32, "depth": 3, "num_heads": 2}
    )
    torch.testing.assert_close(rebuilt.vit.pos_embed, strip(saved["encoder"])["pos_embed"], atol=1e-6, rtol=0)


@pytest.mark.parametrize("folder", ["ijepa", "stop"])
def test_features_predictions_loss_and_gradients_equal_the_published_ones(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, vectors, _ = load(folder)
    context, targets = vectors["context"], vectors["targets"]
    if folder == "stop":
        drawn = vectors["noise"].flatten(1) / 0.25
        monkeypatch.setattr(randomness, "normal", lambda keys, count: drawn[keys].clone())
    close = {"atol": 1e-5, "rtol": 1e-5}

    torch.testing.assert_close(
        model.context_encoder(vectors["images"], keep=context), vectors["context_features"], **close
    )
    torch.testing.assert_close(
        model.target_encoder(vectors["images"]), vectors["full_features_target_encoder"], **close
    )
    keys = torch.arange(len(context)).unsqueeze(1)
    result = model(vectors["images"], context.unsqueeze(1), targets.unsqueeze(1), keys)
    torch.testing.assert_close(result.targets, vectors["normalised_targets"], **close)
    torch.testing.assert_close(result.predictions, vectors["predictions"], **close)
    torch.testing.assert_close(result.loss, vectors["loss"], **close)
    result.loss.backward()
    for part, name in ((model.context_encoder, "grad_norm_encoder"), (model.predictor, "grad_norm_predictor")):
        gradients = [p.grad.flatten() for p in part.parameters() if p.grad is not None]
        torch.testing.assert_close(torch.cat(gradients).norm(), vectors[name], **close)
