"""Detects a loss that is not a number or explodes, without waiting for the device at each step.

The run then stops, or goes back to the last checkpoint and leaves out the batch that caused it.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from flexpredict.errors import UserError
from flexpredict.training.engine import gather

_EXPLODED = 100.0  # times the mean of the last line of metrics
_SMALL = 0.01  # smaller losses count as this one
_MOST_LEFT_OUT = 10


class BadStep(NamedTuple):
    """The first step after which a run must not continue, and why."""

    step: int
    loss: float | None = None  # None: the weights are not numbers

    @property
    def description(self) -> str:
        if self.loss is None:
            return f"The weights are not numbers after step {self.step}"
        if math.isnan(self.loss):
            return f"The loss of step {self.step} is not a number"
        return f"The loss of step {self.step} exploded to {self.loss:.3g}"


class LossGuard:
    """Remembers the first step whose loss is bad, and the steps whose batches are left out."""

    def __init__(self, fabric: Fabric, state: Mapping[str, Any]) -> None:
        self._fabric = fabric
        self.left_out: set[int] = set()
        self._careful_until = -1
        self.rewind(state)

    def rewind(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint with this state."""
        self.left_out |= set(state.get("left_out", ()))
        self._usual: float = state.get("usual_loss", math.inf)
        # On the device, so that no step waits: the first bad step (-1: none) and its loss.
        self._bad = torch.tensor([-1.0, 0.0], device=self._fabric.device)

    def state(self) -> dict[str, Any]:
        usual = {} if math.isinf(self._usual) else {"usual_loss": self._usual}
        return {"left_out": sorted(self.left_out), **usual}

    def expect(self, loss: float | None) -> None:
        """loss: the mean of the last line of metrics."""
        self._usual = self._usual if loss is None else loss

    def look(self, step: int, loss: Tensor) -> None:
        bad = ~(loss <= self._limit) | ~torch.isfinite(loss)
        here = torch.stack([torch.full_like(loss, step), loss])
        self._bad = torch.where(bad & (self._bad[0] < 0), here, self._bad)

    def bad_step(self, step: int, parameters: Iterable[Tensor] = ()) -> BadStep | None:
        """The first step with a bad loss on any rank; None if all is well up to this step.

        parameters: of a model about to be saved; if they are broken, the loss shows it only in the next step.
        """
        found = [BadStep(int(bad), loss) for bad, loss in gather(self._fabric, self._bad.tolist()) if bad >= 0]
        if found:
            return min(found, key=lambda bad: bad.step)
        broken = any(not bool(torch.isfinite(_own_part(parameter)).all()) for parameter in parameters)
        return BadStep(step) if any(gather(self._fabric, broken)) else None

    def be_careful(self, until: int) -> None:
        """Check every step up to this one before it is applied."""
        self._careful_until = until

    def leaves_out(self, step: int, loss: Tensor, model: nn.Module) -> bool:
        """Whether the update of this step must not be applied. Cheap if there was no trouble."""
        if step in self.left_out:
            return True
        if step > self._careful_until:
            return False
        value = float(loss)
        bad = not math.isfinite(value) or value > self._limit
        bad = bad or not math.isfinite(float(gradient_norm(model)))
        if any(gather(self._fabric, bad)):
            self.left_out.add(step)
            if len(self.left_out) > _MOST_LEFT_OUT:
                raise UserError(
                    f"{_MOST_LEFT_OUT} batches were left out because the loss was not a number or exploded, and step "
                    f"{step} would be another, so training stopped. {REMEDY}"
                )
        return step in self.left_out

    @property
    def _limit(self) -> float:
        return _EXPLODED * max(self._usual, _SMALL)


REMEDY = "Try a lower optimizer.lr, a longer warm-up, optimizer.clip_grad 1.0, or precision 32-true, in a new run."


def gradient_norm(model: nn.Module) -> Tensor:
    """The norm of all gradients together, on the device."""
    norm = torch.nn.utils.get_total_norm(
        [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    )
    whole: Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    return whole


def clip_gradients(model: nn.Module, most: float, norm: Tensor) -> None:
    """Scale the gradients of all optimizers by one factor. norm: from `gradient_norm`."""
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), most, norm)


def _own_part(tensor: Tensor) -> Tensor:
    local: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local
