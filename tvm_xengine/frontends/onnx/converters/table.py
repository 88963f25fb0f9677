"""All converters by the names of their operators."""

from __future__ import annotations

from tvm_xengine.frontends.onnx.converters import (
    bounds,
    elementwise,
    frequencies,
    norms,
    optimizers,
    places,
    products,
    quantized,
    recurrent,
    reductions,
    resizing,
    scans,
    windows,
)
from tvm_xengine.frontends.onnx.node import Converter

_GROUPS = (
    bounds,
    elementwise,
    frequencies,
    norms,
    optimizers,
    places,
    products,
    quantized,
    recurrent,
    reductions,
    resizing,
    scans,
    windows,
)

CONVERTERS: dict[str, Converter] = {
    name: convert for group in _GROUPS for name, convert in group.CONVERTERS.items()
}
