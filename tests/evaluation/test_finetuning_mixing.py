"""Mixup and drop path in fine-tuning: drawn by key, of the right distributions, the same on any ranks."""

import pytest
import torch
import torch.nn.functional as F
from small_finetuning import scenes, tiny_encoder

from flexpredict.data.augmentation import draw_crops
from flexpredict.evaluation.finetuning.classifier import Classifier, DropPath
from flexpredict.evaluation.finetuning.loop import mix_images, mix_labels, own_shares, symmetric_beta
from flexpredict.randomness import sample_keys, stream_key, uniform
from flexpredict.settings.augmentation import PRESETS


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
