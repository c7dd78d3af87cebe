"""The objective: what is predicted, from what, and who learns from it."""

import copy

import pytest
import torch
from torch.nn import functional as F

from flexpredict.errors import UserError
from flexpredict.masking import sample_masks
from flexpredict.methods.ijepa import IJEPA
from flexpredict.model.building import build_encoder
from flexpredict.model.predictor import Predictor
from flexpredict.randomness import sample_keys
from flexpredict.settings.masking import Masking
from flexpredict.settings.positions import Positions


def make(kind: str = "stochastic", **settings: object) -> IJEPA:
    options = {"embed_dim": 24, "depth": 2, "num_heads": 2}
    positions = "learned" if kind == "learned" else "sincos"
    encoder = build_encoder("vit_tiny_patch16_224", (32, 32), 4, positions, options=options)
    return IJEPA(encoder, Predictor(24, (8, 8), 16, 2, 2, Positions(kind, **settings)))  # type: ignore[arg-type]


def inputs(rows: int = 3, contexts: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    masks = sample_masks(Masking(contexts_per_image=contexts), (8, 8), 5, rows)
    keys = sample_keys(9, torch.arange(rows * contexts).view(rows, contexts))
    return torch.randn(rows, 3, 32, 32), masks.context, masks.targets, keys


def test_the_loss_is_that_of_the_paper_written_out_plainly() -> None:
    """Token by token, block by block, with whole blocks everywhere."""
    model = make("sincos")
    images, context, targets, keys = inputs()
    predictor, losses = model.predictor, []
    for row in range(len(images)):
        everything = model.target_encoder(images[row : row + 1])[0]
        wanted = F.layer_norm(everything, (24,))
        features = model.context_encoder(images[row : row + 1], keep=context[row])[0]
        visible = predictor.projection(features) + predictor.positions[context[row, 0]]
        for block in targets[row, 0]:
            masked = predictor.positions[block] + predictor.mask_token
            out = predictor.blocks(torch.cat((visible, masked))[None])[0, len(visible) :]
            losses.append(F.smooth_l1_loss(predictor.output(predictor.norm(out)), wanted[block]))
    result = model(images, context, targets, keys)
    torch.testing.assert_close(result.loss, torch.stack(losses).mean())


def test_zero_noise_is_sincos_bit_for_bit() -> None:
    data = inputs()
    assert torch.equal(make("stochastic", noise_std=0.0)(*data).predictions, make("sincos")(*data).predictions)
    assert not torch.equal(make("stochastic")(*data).predictions, make("sincos")(*data).predictions)


def test_noise_of_a_row_depends_on_its_key_alone() -> None:
    model = make()
    images, context, targets, keys = inputs(4)
    together = model(images, context, targets, keys).predictions
    half = model(images[2:], context[2:], targets[2:], keys[2:]).predictions
    torch.testing.assert_close(together[2:], half)


def test_only_context_encoder_and_predictor_learn() -> None:
    model = make()
    model(*inputs()).loss.backward()
    assert all(parameter.grad is None for parameter in model.target_encoder.parameters())
    silent = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and (parameter.grad is None or not parameter.grad.any())
    ]
    assert silent == []


def test_several_contexts_of_an_image_equal_the_image_seen_several_times() -> None:
    model = make()
    images, context, targets, keys = inputs(2, contexts=3)
    together = model(images, context, targets, keys)
    flat = [part.flatten(0, 1).unsqueeze(1) for part in (context, targets, keys)]
    repeated = model(images.repeat_interleave(3, dim=0), *flat)
    torch.testing.assert_close(together.loss, repeated.loss)
    torch.testing.assert_close(together.predictions, repeated.predictions)
    torch.testing.assert_close(together.targets, repeated.targets)


def test_hidden_targets_cannot_be_seen_by_the_predictor() -> None:
    model = make("sincos")
    images, context, targets, keys = inputs(1)
    before = model(images, context, targets, keys).predictions
    hidden = sorted(set(range(64)) - set(context.flatten().tolist()))
    for patch in hidden:
        row, column = divmod(patch, 8)
        images[0, :, row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] = 7.0
    assert torch.equal(model(images, context, targets, keys).predictions, before)


def test_the_target_encoder_is_a_moving_average() -> None:
    model = make("learned")
    before = copy.deepcopy(model.target_encoder).state_dict()
    with torch.no_grad():
        for parameter in model.context_encoder.parameters():
            parameter.add_(torch.randn_like(parameter))
    model.update_target_encoder(0.9)
    after, source = model.target_encoder.state_dict(), model.context_encoder.state_dict()
    for name in before:
        torch.testing.assert_close(after[name], 0.9 * before[name] + 0.1 * source[name])


def test_initial_weights_do_not_depend_on_the_kind_of_positions() -> None:
    first, second = make("sincos").state_dict(), make("learned").state_dict()
    differ = {name for name in first if not torch.equal(first[name], second[name])}
    assert differ == {"context_encoder.vit.pos_embed", "target_encoder.vit.pos_embed"}
    assert set(second) - set(first) == {"predictor.positions"}


def test_learned_positions_of_the_predictor_are_trained() -> None:
    model = make("learned")
    model(*inputs()).loss.backward()
    assert model.predictor.positions.grad is not None and model.predictor.positions.grad.any()


def test_the_released_convention_leaves_the_mask_token_out() -> None:
    model = make(convention="released")
    model(*inputs()).loss.backward()
    assert model.predictor.mask_token.grad is None and not model.predictor.mask_token.requires_grad


def test_bf16_autocast_gives_nearly_the_same_loss() -> None:
    model, data = make(), inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(*data).loss
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, model(*data).loss, rtol=0.02, atol=0.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise_std": 0.2, "noise_to_signal": 0.1}, "given twice"),
        ({"noise_std": -0.2}, "noise_std=-0.2 is out of range: it must be at least 0"),
    ],
)
def test_contradictory_noise_levels_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        make(**settings)


def test_a_predictor_that_cannot_be_built_is_refused() -> None:
    with pytest.raises(UserError, match=r"Try predictor\.dim=24"):
        Predictor(24, (8, 8), dim=30, heads=3)
