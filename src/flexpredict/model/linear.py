"""Linear layers by the faster of the two matrix libraries in torch's CPU build.

torch multiplies float32 matrices by MKL, which has AVX-512 code for Intel processors only. oneDNN, which torch uses
for bfloat16, has it for others too: on an AMD Zen 5 it is 2.2 times as fast. Everywhere else, and whenever torch
traces, compiles, counts or casts, these layers are torch's own.

Within `bfloat16_products` these layers round factors to bfloat16, for CPUs that have instructions for that.
"""

import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_WORTH_A_CALL = 128  # shortest side of a matrix: at 96 both libraries take the same time, at 192 oneDNN takes half
_rounding = [False]  # a list, because torch.compile cannot look into variables of contexts or threads


@contextmanager
def bfloat16_products(rounding: bool = True) -> Iterator[None]:
    """Linear layers round both factors and the product to bfloat16; sums and all else stay in float32."""
    before, _rounding[0] = _rounding[0], rounding
    try:
        yield
    finally:
        _rounding[0] = before


def as_in_forward() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts for torch.utils.checkpoint: recomputation in the backward pass rounds as the forward pass did."""
    return nullcontext(), bfloat16_products(_rounding[0])


def bfloat16_is_faster() -> bool:
    """Whether this CPU multiplies bfloat16 itself."""
    return torch.backends.mkldnn.is_available() and (
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear`, rounded differently where oneDNN is faster. ... K, N K, N -> ... N"""
    if _rounding[0] and x.dtype == weight.dtype == torch.float32:
        product = F.linear(x.bfloat16(), weight.bfloat16()).float()
        return product if bias is None else product.add_(bias)
    if _for_onednn(x, weight):
        return _OneDNN.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]
    return F.linear(x, weight, bias)


def products(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right` of M matrices, one by one if oneDNN saves more time than the calls take.

    M R K, M K C -> M R C, without gradients
    """
    if min(*left.shape[1:], right.shape[2]) >= _WORTH_A_CALL and _for_onednn(left, right):
        return torch.stack([_product(one, other.T) for one, other in zip(left, right, strict=True)])
    return left @ right


class Linear(nn.Linear):
    """nn.Linear by the faster library; names, weights and meaning are the same."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def use_faster_linear(network: nn.Module) -> None:
    """Turn the plain linear layers of a network into `Linear`, in place."""
    for module in network.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear


@cache
def onednn_is_faster() -> bool:
    """Decided by the processor and never measured, so that two starts of a run round alike."""
    return (
        torch.backends.mkl.is_available()
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and "AuthenticAMD" in _processor()
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.read_text(encoding="utf-8") if cpuinfo.is_file() else platform.processor()


def _for_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        not torch.compiler.is_compiling()  # first, as what follows cannot be traced
        and onednn_is_faster()
        and x.device.type == weight.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        # Tools that inspect each operation (exports, counters of operations) need torch's standard ones.
        and not torch._C._len_torch_dispatch_stack()
    )


class _OneDNN(torch.autograd.Function):
    """x Wᵀ + b and its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        flat = gradient.flatten(0, -2)
        return (
            _product(gradient, weight.T) if needs_x else None,
            _weight_gradient(flat, x.flatten(0, -2)) if needs_weight else None,
            flat.sum(dim=0) if needs_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def _weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """gradientᵀ x, in the order that is faster with oneDNN. T N, T K -> N K"""
    if gradient.shape[1] > x.shape[1]:
        return _product(x.T, gradient.T).T
    return _product(gradient.T, x.T)
