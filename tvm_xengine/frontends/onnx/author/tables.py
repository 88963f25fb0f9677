"""Detection of tensors whose values come from a formula, not from training."""

from __future__ import annotations

import re

import numpy as np

from tvm_xengine.relax_ir.types import Array

_MASKED = -1e4
"""What is added to a score that shall not count is at most this; exporters write -1e4, the least
number of the type or minus infinity."""

_LEAST_PLACES = 6
"""So many places of a table are needed to tell a formula from chance."""

_TOLERANCE = 1e-3
"""Of a table's largest value: what rounding to single precision leaves of a sine."""

_EXPORTED_NAME = re.compile(r"^(onnx::|val_|_|/|const|tensor_|lifted|scalar_|\d+$)|[Cc]onstant")
"""Names that exporters give to what they compute or find in the code."""


_PARAMETER_NAME = re.compile(r"(^|[._/])(weight|bias|gamma|beta)(:0)?$")
"""Names that frameworks give to what their layers learn, also in norms that an exporter took apart."""


def is_float(value: Array) -> bool:
    """Whether a tensor holds floating-point numbers, 16-bit ones included."""
    return value.dtype.kind == "f" or str(value.dtype) == "bfloat16"


def is_uniform(value: Array) -> bool:
    """Whether all elements are equal, as in fresh norms and biases."""
    flat = value.reshape(-1)
    return bool(flat.size) and bool((flat == flat[0]).all())


def named_by_exporter(name: str) -> bool:
    """Whether a name is not the author's."""
    return bool(_EXPORTED_NAME.search(name))


def named_as_parameter(name: str) -> bool:
    """Whether a name is that of a weight or bias of a layer."""
    return bool(_PARAMETER_NAME.search(name))


def is_mask(value: Array) -> bool:
    """Whether a tensor says what counts: zeros and one other number, or scores beyond all."""
    wide = value.astype(np.float64)
    if wide.ndim < 2 or is_uniform(value):
        return False
    others = np.unique(wide[wide != 0])
    two_valued = len(others) == 1 and bool((wide == 0).any())
    return two_valued and (others[0] == 1 or others[0] <= _MASKED)


def follows_formula(value: Array) -> bool:
    """Whether a tensor is a table of sines, or of numbers in equal steps, along one of its axes.

    Of both, ``f(t + 1) + f(t - 1)`` is the same multiple of ``f(t)`` at all places.
    """
    wide = np.squeeze(value.astype(np.float64))
    if not np.isfinite(wide).all() or is_uniform(value):
        return False
    for axis, extent in enumerate(wide.shape):
        if extent >= _LEAST_PLACES:
            columns = np.moveaxis(wide, axis, 0).reshape(extent, -1)
            middle, around = columns[1:-1], columns[2:] + columns[:-2]
            power = np.maximum((middle**2).sum(axis=0), np.finfo(np.float64).tiny)
            multiple = (around * middle).sum(axis=0) / power
            if np.abs(around - multiple * middle).max() <= _TOLERANCE * np.abs(wide).max():
                return True
    return False
