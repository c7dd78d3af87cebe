"""Tensors of which each rank has a part, as FSDP makes them: whole for files, and back."""

from typing import Any

from torch import Tensor


def whole(tensor: Tensor) -> Tensor:
    """The tensor with all its parts. If ranks share it, all of them must call this."""
    gather = getattr(tensor, "full_tensor", None)
    result: Tensor = tensor if gather is None else gather()
    return result


def shared_like(tensor: Tensor, other: Any) -> Tensor:
    """This rank's part of a whole tensor, if `other`, of the same shape, is shared."""
    if not hasattr(other, "full_tensor") or tensor.shape != other.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Every rank has the same whole tensor, so nothing needs to be sent.
    part: Tensor = distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None)
    return part
