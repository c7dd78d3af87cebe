"""StochasticPositions in somebody else's model: the decoder of Hugging Face's ViTMAEForPreTraining."""

import pytest
import torch

from flexpredict import StochasticPositions
from flexpredict.torchvision_repair import repair

repair()
transformers = pytest.importorskip("transformers")


def make() -> torch.nn.Module:
    config = transformers.ViTMAEConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8,
        decoder_hidden_size=24, decoder_num_hidden_layers=2, decoder_num_attention_heads=2,
        decoder_intermediate_size=48,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.ViTMAEForPreTraining(config)


def add_stochastic_positions(model: torch.nn.Module, noise_std: float) -> None:
    """Hooks, because the model is not ours; in a model of one's own these are three lines of its forward."""
    decoder = model.decoder
    stochastic = decoder.stochastic = StochasticPositions(decoder.decoder_embed, noise_std)
    hidden = torch.empty(0)

    def remember_what_is_hidden(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        nonlocal hidden
        features, order = inputs[:2]
        patches = order >= features.shape[1] - 1
        hidden = torch.cat((torch.zeros_like(patches[:, :1]), patches), dim=1).unsqueeze(-1)

    def blur(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        tokens = inputs[0]  # with ψ and, where masked, m̃
        return (torch.where(hidden, stochastic(tokens), tokens), *inputs[1:])

    decoder.register_forward_pre_hook(remember_what_is_hidden)
    decoder.decoder_layers[0].register_forward_pre_hook(blur)


def loss(model: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    noise = torch.linspace(0, 1, 16).expand(len(images), -1)
    return model(images, noise=noise).loss


def test_without_noise_it_is_the_same_model() -> None:
    images = torch.randn(2, 3, 32, 32)
    plain, ours = make(), make()
    add_stochastic_positions(ours, 0.0)
    torch.testing.assert_close(loss(ours, images), loss(plain, images))
    assert plain.state_dict().keys() == ours.state_dict().keys()


def test_it_is_noisy_in_training_and_not_in_evaluation() -> None:
    images = torch.randn(2, 3, 32, 32)
    model = make()
    add_stochastic_positions(model, 5.0)
    assert not torch.equal(loss(model.train(), images), loss(model, images))
    assert torch.equal(loss(model.eval(), images), loss(model, images))


def test_it_trains() -> None:
    torch.manual_seed(0)
    images = torch.nn.functional.interpolate(torch.randn(8, 3, 2, 2), size=32, mode="bilinear")
    model = make().train()
    add_stochastic_positions(model, 0.25)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        value = loss(model, images)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert sum(losses[-5:]) < 0.85 * sum(losses[:5])
