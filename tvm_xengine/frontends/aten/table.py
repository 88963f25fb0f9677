"""All converters by the names of their operators."""

from __future__ import annotations

from tvm_xengine.frontends.aten import (
    bags,
    convolutions,
    distances,
    elementwise,
    grids,
    norms,
    places,
    pooling,
    products,
    reductions,
    resizing,
    unpooling,
    windows,
)
from tvm_xengine.frontends.aten.converter import Converter

_GROUPS = (
    bags,
    convolutions,
    distances,
    elementwise,
    grids,
    norms,
    places,
    pooling,
    products,
    reductions,
    resizing,
    unpooling,
    windows,
)

CONVERTERS: dict[str, Converter] = {
    name: convert for group in _GROUPS for name, convert in group.CONVERTERS.items()
}

DECOMPOSED_BY_TORCH = frozenset({"gru.input", "lstm.input", "rnn_relu.input", "rnn_tanh.input"})
