"""PyTorch's tensors as numpy arrays and back; numpy has bfloat16 from ``ml_dtypes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from tvm_xengine.relax_ir.types import Array

if TYPE_CHECKING:
    import torch


def to_array(value: torch.Tensor) -> Array:
    """A tensor as an array, in its memory where that lies on this processor."""
    value = value.detach().cpu()
    if str(value.dtype) == "torch.bfloat16":
        import torch

        return np.asarray(value.view(torch.uint16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(value.numpy())


def to_tensor(array: Array) -> torch.Tensor:
    """A copy of an array as a tensor."""
    import torch

    copied = np.array(array)
    if copied.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(copied.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(copied)
