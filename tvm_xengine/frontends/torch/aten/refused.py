"""Operators that cannot be imported, each with what to do instead."""

from __future__ import annotations

from functools import partial

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Converter, Expr


def refuse(reason: str, *arguments: object) -> Expr:
    """Say why, and what to do."""
    raise UnsupportedModelError(reason)


_LDL = "factors of symmetric matrices; use torch.linalg.cholesky, or lu_factor and lu_solve"
_BY_VALUES = "the shape of the result depends on the values"
_REASONS = {
    "as_strided_scatter.default": "PyTorch's gradient of it is not that of its values; use slice_scatter"
    " or index_put",
    "embedding_renorm.default": "max_norm shortens rows of the weight in every forward pass; leave it"
    " out, and shorten them with torch.renorm between steps",
    "hash_tensor.default": "it reads the bits of the elements; compute it outside of the model",
    "igamma.default": "PyTorch has no gradient of its first operand; compute it outside of the model",
    "igammac.default": "PyTorch has no gradient of its first operand; compute it outside of the model",
    "linalg_ldl_factor.default": _LDL,
    "linalg_ldl_factor_ex.default": _LDL,
    "linalg_ldl_solve.default": _LDL,
    "masked_select.default": f"{_BY_VALUES}; use torch.where, whose shapes are known",
    "nextafter.default": "it reads the bits of the elements; compute it outside of the model",
    "nonzero.default": f"{_BY_VALUES}; use torch.nonzero_static or torch.where, whose shapes are known",
    "repeat_interleave.Tensor": f"{_BY_VALUES}; give the repeats as a number, or pick rows by an index"
    " that is computed outside of the model",
    "special_airy_ai.default": "it has no gradient in PyTorch; compute it outside of the model",
    "unique_consecutive.default": f"{_BY_VALUES}; sort, and compare neighbours",
    "unique_dim.default": f"{_BY_VALUES}; sort, and compare neighbours",
    "_unique2.default": f"{_BY_VALUES}; sort, and compare neighbours",
}

CONVERTERS: dict[str, Converter] = {
    name: partial(refuse, reason) for name, reason in _REASONS.items()
}
