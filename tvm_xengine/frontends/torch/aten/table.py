"""All converters by the names of their operators.

Another package adds the converter of an operator by an entry point with the overload's name::

    [project.entry-points."tvm_xengine.torch_operators"]
    "my_operator.default" = "my_package.operators:my_operator"
"""

from __future__ import annotations

from tvm_xengine.extensions.extended import Extended, extended
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


def converters() -> Extended[Converter]:
    """The converters of this package and of installed extensions."""
    return extended("tvm_xengine.torch_operators", CONVERTERS)
