"""Precision: how bfloat16 is used on the hardware of a run, and whether it is the default."""

from contextlib import AbstractContextManager
from typing import Any

import torch

from flexpredict.model.linear import bfloat16_is_faster, bfloat16_products
from flexpredict.settings.recipe import Precision


def low_precision(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """The context in which a forward pass runs.

    On a CPU bfloat16 is for linear layers only: torch.autocast also uses it in attention, for which CPUs have no fast
    code, and a step of a small encoder takes 1.5 times as long.
    """
    if device.type == "cpu" and precision == "bf16-mixed":
        return bfloat16_products()
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed")


def default_precision(accelerator: str) -> Precision:
    """bf16-mixed if the hardware multiplies bfloat16 faster, else 32-true."""
    if is_cuda(accelerator):
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "32-true"
    return "bf16-mixed" if is_cpu(accelerator) and bfloat16_is_faster() else "32-true"


def is_cuda(accelerator: str) -> bool:
    """Whether this setting means a CUDA device here."""
    return accelerator in ("auto", "cuda", "gpu") and torch.cuda.is_available()


def is_cpu(accelerator: str) -> bool:
    """Whether this setting means the CPU here."""
    return accelerator == "cpu" or (
        accelerator == "auto" and not torch.cuda.is_available() and not torch.backends.mps.is_available()
    )
