"""All converters by the names of their operators.

Another package adds the converter of an operator by an entry point with the operator type's name::

    [project.entry-points."tvm_xengine.onnx_operators"]
    MyOperator = "my_package.operators:my_operator"
"""

from __future__ import annotations

from tvm_xengine.extensions.extended import Extended, extended
from tvm_xengine.frontends.onnx.converters import (
    bounds,
    casts,
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
    casts,
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


def converters() -> Extended[Converter]:
    """The converters of this package and of installed extensions."""
    return extended("tvm_xengine.onnx_operators", CONVERTERS)
