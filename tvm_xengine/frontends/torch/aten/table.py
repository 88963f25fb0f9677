"""All converters by the names of their operators."""

from __future__ import annotations

from tvm_xengine.frontends.torch.aten import (
    antialiased,
    bags,
    convolutions,
    distances,
    elementwise,
    embeddings,
    grids,
    norms,
    order,
    places,
    pooling,
    products,
    randomness,
    reductions,
    resizing,
    unpooling,
    windows,
)
from tvm_xengine.frontends.torch.aten.converter import Converter

_GROUPS = (
    antialiased,
    bags,
    convolutions,
    distances,
    elementwise,
    embeddings,
    grids,
    norms,
    order,
    places,
    pooling,
    products,
    randomness,
    reductions,
    resizing,
    unpooling,
    windows,
)

CONVERTERS: dict[str, Converter] = {
    name: convert for group in _GROUPS for name, convert in group.CONVERTERS.items()
}

DECOMPOSED_BY_TORCH = frozenset(
    {
        "cross_entropy_loss.default",  # TVM's importer leaves out reduction and smoothing
        "gru.input",
        "lstm.input",
        "rnn_relu.input",
        "rnn_tanh.input",
    }
)
