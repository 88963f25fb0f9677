"""Products of tensors."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.frontends.onnx.node import Converter, OnnxNode


def einsum(node: OnnxNode) -> relax.Expr:
    """Products summed as the equation says."""
    operands = tuple(node.input(k) for k in range(len(node.inputs)))
    return node.emit(relax.op.einsum(operands, node.text("equation", "")))


CONVERTERS: dict[str, Converter] = {"Einsum": einsum}
