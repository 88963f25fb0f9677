"""All converters by the names of their operators."""

from __future__ import annotations

from tvm_xengine.frontends.torch.aten import (
    antialiased,
    arithmetic,
    bags,
    convolutions,
    creation,
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
    shapes,
    unpooling,
    windows,
)
from tvm_xengine.frontends.torch.aten.converter import Converter

_GROUPS = (
    antialiased,
    arithmetic,
    bags,
    convolutions,
    creation,
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
    shapes,
    unpooling,
    windows,
)

CONVERTERS: dict[str, Converter] = {
    name: convert for group in _GROUPS for name, convert in group.CONVERTERS.items()
}
