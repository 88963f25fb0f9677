"""All converters by the names of their operators: the tables of the modules in this folder.

Another package adds the converter of an operator by an entry point with the operator type's name::

    [project.entry-points."tvm_xengine.onnx_operators"]
    MyOperator = "my_package.operators:my_operator"
"""

from __future__ import annotations

from tvm_xengine.extensions.extended import Extended, extended, joined
from tvm_xengine.frontends.onnx.node import Converter

CONVERTERS: dict[str, Converter] = joined("tvm_xengine.frontends.onnx.converters", "CONVERTERS")


def converters() -> Extended[Converter]:
    """The converters of this package and of installed extensions."""
    return extended("tvm_xengine.onnx_operators", CONVERTERS)
