"""Linear layers by oneDNN are those of torch, but for rounding."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from flexpredict.model import linear as layers
from flexpredict.model.blocks import recompute_in_backward
from flexpredict.model.linear import Linear, bfloat16_products, linear, use_faster_linear


@pytest.fixture(autouse=True)
def _onednn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever the processor is: only its speed depends on that."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without oneDNN")
    monkeypatch.setattr(layers, "onednn_is_faster", lambda: True)
    yield


@pytest.mark.parametrize("shape", [(7, 24), (3, 5, 24), (2, 3, 5, 24), (1, 1, 24)])
@pytest.mark.parametrize("features", [8, 24, 70])
@pytest.mark.parametrize("with_bias", [True, False])
def test_products_and_gradients_are_those_of_torch(shape: tuple[int, ...], features: int, with_bias: bool) -> None:
    torch.manual_seed(0)
    given = [torch.randn(shape), torch.randn(features, 24), *([torch.randn(features)] if with_bias else [])]
    ours, theirs = ([tensor.clone().requires_grad_() for tensor in given] for _ in range(2))
    found, expected = linear(*ours), F.linear(*theirs)
    direction = torch.randn_like(expected)
    found.backward(direction)
    expected.backward(direction)
    assert found.grad_fn is not None and "OneDNN" in type(found.grad_fn).__name__
    torch.testing.assert_close(found, expected)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-5)


def test_inputs_need_not_be_contiguous() -> None:
    x, weight = torch.randn(5, 4, 24).transpose(0, 1), torch.randn(24, 8).T.requires_grad_()
    linear(x, weight).sum().backward()
    torch.testing.assert_close(linear(x, weight), F.linear(x, weight))
    torch.testing.assert_close(weight.grad, x.sum(dim=(0, 1)).expand(8, -1), rtol=1e-5, atol=1e-5)


def test_only_what_needs_a_gradient_gets_one() -> None:
    x, weight = torch.randn(6, 24), torch.randn(8, 24, requires_grad=True)
    linear(x, weight).sum().backward()
    assert x.grad is None and weight.grad is not None


def test_a_network_keeps_its_weights_names_and_outputs_when_its_layers_are_turned() -> None:
    network = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 8, bias=False))
    before = copy.deepcopy(network)
    use_faster_linear(network)
    assert all(type(network[layer]) is Linear for layer in (0, 2))
    assert list(network.state_dict()) == list(before.state_dict())
    x = torch.randn(5, 24)
    torch.testing.assert_close(network(x), before(x))
    torch.testing.assert_close(copy.deepcopy(network)(x), network(x), rtol=0, atol=0)


def test_whoever_counts_exports_or_casts_sees_the_operations_of_torch() -> None:
    layer, x = Linear(24, 8), torch.randn(5, 24)
    with FlopCounterMode(display=False) as counter:
        layer(x)
    assert counter.get_total_flops() == 2 * 5 * 24 * 8
    graph = str(torch.export.export(layer, (x,)).graph)
    assert "aten.linear" in graph and "mkldnn" not in graph
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16


@pytest.mark.parametrize("shape", [(7, 24), (2, 3, 5, 24), (0, 24)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_bfloat16_products_are_those_of_rounded_factors(shape: tuple[int, ...], with_bias: bool) -> None:
    torch.manual_seed(0)
    given = [torch.randn(shape), torch.randn(8, 24), *([torch.randn(8)] if with_bias else [])]
    ours, theirs = ([tensor.clone().requires_grad_() for tensor in given] for _ in range(2))
    with bfloat16_products():
        found = linear(*ours)
    x, weight, *bias = theirs
    expected = F.linear(x.bfloat16().float(), weight.bfloat16().float(), *bias)
    direction = torch.randn_like(expected).bfloat16().float()
    found.backward(direction)
    expected.backward(direction)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
    for one, other in zip(ours, theirs, strict=True):
        assert one.grad is not None and one.grad.dtype == torch.float32
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-2, atol=1e-2)


def test_products_are_rounded_within_their_block_and_nowhere_else() -> None:
    x, weight = torch.randn(64, 24), torch.randn(8, 24)
    exact = linear(x, weight)
    with bfloat16_products():
        rounded = linear(x, weight)
    assert not torch.equal(rounded, exact) and torch.equal(linear(x, weight), exact)


def test_what_is_computed_again_in_the_backward_pass_is_rounded_as_before() -> None:
    torch.manual_seed(0)
    block, x = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24)), torch.randn(5, 24)
    use_faster_linear(block)
    again = copy.deepcopy(block)
    recompute_in_backward([again])
    for network in (block, again):
        with bfloat16_products():
            loss = network(x).square().sum()
        loss.backward()  # outside, as in the loop
    for one, other in zip(block.parameters(), again.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_of_numbers_go_to_torch(dtype: torch.dtype) -> None:
    x, weight = torch.randn(5, 24, dtype=dtype), torch.randn(8, 24, dtype=dtype)
    assert torch.equal(linear(x, weight), F.linear(x, weight))


def test_an_empty_batch_gives_an_empty_product() -> None:
    assert linear(torch.empty(0, 24), torch.randn(8, 24)).shape == (0, 8)
