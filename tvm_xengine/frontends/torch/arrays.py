"""PyTorch's tensors as numpy arrays and back; numpy has bfloat16 from ``ml_dtypes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from tvm_xengine.relax_ir.types import Array

if TYPE_CHECKING:
    import torch
    import tvm


def to_array(value: torch.Tensor) -> Array:
    """A tensor as an array, in its memory where that lies on this processor.

    Raises
    ------
    TypeError
        If it has no elements in a row: sparse, quantized, or without memory.
    """
    if value.is_meta or value.is_quantized or str(value.layout) != "torch.strided":
        kind = "quantized" if value.is_quantized else str(value.layout).removeprefix("torch.")
        raise TypeError(
            f"expected a dense tensor, got one that is {'meta' if value.is_meta else kind}"
        )
    value = value.detach().cpu().resolve_conj().resolve_neg()
    if str(value.dtype) == "torch.bfloat16":
        import torch

        return np.asarray(value.view(torch.uint16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(value.numpy())


def to_tensor(array: Array) -> torch.Tensor:
    """A copy of an array as a tensor."""
    return as_tensor(np.array(array))


def as_tensor(array: Array) -> torch.Tensor:
    """A tensor in the memory of a writable array, which it keeps alive."""
    import torch

    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def shared_tensor(tensor: tvm.runtime.Tensor) -> torch.Tensor:
    """A tensor of PyTorch in the memory of one of TVM, which it keeps alive."""
    import torch

    return torch.from_dlpack(tensor)
