"""Tensors for a user: PyTorch's where the model was a module, else arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tvm_xengine.frontends.torch.arrays import as_tensor, shared_tensor
from tvm_xengine.model.source import Source
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.storage import shared_array

if TYPE_CHECKING:
    import tvm


def handed_over(source: Source, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Arrays that nobody else holds."""
    if not source.is_torch:
        return dict(arrays)
    return {name: as_tensor(value) for name, value in arrays.items()}


def shared(source: Source, views: Mapping[str, tvm.runtime.Tensor]) -> dict[str, Any]:
    """The same memory as the views."""
    share = shared_tensor if source.is_torch else shared_array
    return {name: share(view) for name, view in views.items()}
