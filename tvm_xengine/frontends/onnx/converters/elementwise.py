"""Functions of single elements."""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.node import Converter, OnnxNode, literal
from tvm_xengine.frontends.torch.aten.arithmetic import own, shift
from tvm_xengine.frontends.torch.aten.elementwise import elu
from tvm_xengine.relax_ir.own_ops import pointwise
from tvm_xengine.relax_ir.types import constant_value


def exponential(node: OnnxNode, *, is_continuous: bool) -> relax.Expr:
    """x above 0, alpha * (exp(x) - 1) below, or of x / alpha, whose slope at 0 is 1 as well."""
    alpha = node.number("alpha", 1.0)
    return elu(node.builder, node.input(0), alpha, 1.0, 1 / alpha if is_continuous else 1.0)


def is_inf(node: OnnxNode) -> relax.Expr:
    """Whether elements are infinite, of the signs that are asked for."""
    x, dtype = node.input(0), node.dtype()
    wanted = [
        literal(sign * np.inf, dtype)
        for sign, name in ((1, "detect_positive"), (-1, "detect_negative"))
        if node.integer(name, 1)
    ]
    found = [node.emit(relax.op.equal(x, one)) for one in wanted]
    if not found:
        return node.emit(relax.op.zeros(node.shape(), "bool"))
    return found[0] if len(found) == 1 else node.emit(relax.op.logical_or(*found))


def bit_shift(node: OnnxNode) -> relax.Expr:
    """Shifts of integers; what is shifted by the width or more is 0, or -1 if it is negative."""
    is_left = node.text("direction", "") == "LEFT"
    operator = relax.op.left_shift if is_left else relax.op.right_shift
    return shift(operator, node.builder, node.input(0), node.input(1))


def modulo(node: OnnxNode) -> relax.Expr:
    """The remainder with the sign of the divisor, or of the dividend with the attribute fmod."""
    name = "fmod" if node.integer("fmod", 0) else "remainder"
    return own(name, node.builder, node.input(0), node.input(1))


def power(node: OnnxNode) -> relax.Expr:
    """Powers in the type of the base; whole powers of integers by multiplication."""
    x, dtype, y = node.input(0), node.dtype(), node.input(1)
    if "int" in dtype and "float" not in node.dtype(1):
        exponent = constant_value(y)
        if exponent is None or exponent.size != 1:
            return _integer_power(node)
        return _repeated_product(node, x, int(exponent.reshape(())))
    computed_in = "float64" if "int" in dtype else dtype
    if dtype != computed_in:
        x = relax.op.astype(x, computed_in)
    if node.dtype(1) != computed_in:
        y = relax.op.astype(y, computed_in)
    made = relax.op.power(x, y)
    return node.emit(made if dtype == computed_in else relax.op.astype(made, dtype))


def _integer_power(node: OnnxNode) -> relax.Expr:
    """x ** y for tensors of integers, exponents bit by bit; exact up to overflow."""
    x, dtype, y = node.input(0), node.dtype(), node.input(1)
    y = node.emit(y if node.dtype(1) == dtype else relax.op.astype(y, dtype))
    one = literal(1, dtype)
    bits = int(np.iinfo(dtype).bits).bit_length()
    made: relax.Expr = node.emit(relax.op.where(_bit(y, 0, dtype), x, one))
    for k in range(1, bits):
        x = node.emit(relax.op.multiply(x, x))
        made = node.emit(relax.op.multiply(made, relax.op.where(_bit(y, k, dtype), x, one)))
    return made


def _bit(y: relax.Expr, k: int, dtype: str) -> relax.Expr:
    shifted = relax.op.right_shift(y, literal(k, dtype))
    return relax.op.equal(relax.op.bitwise_and(shifted, literal(1, dtype)), literal(1, dtype))


def _repeated_product(node: OnnxNode, x: relax.Expr, exponent: int) -> relax.Expr:
    if exponent < 0:
        raise UnsupportedModelError(f"an integer to the power {exponent}; only 0 and above")
    made: relax.Expr | None = None
    while exponent:
        if exponent % 2:
            made = x if made is None else node.emit(relax.op.multiply(made, x))
        exponent //= 2
        if exponent:
            x = node.emit(relax.op.multiply(x, x))
    return node.emit(relax.op.ones(node.shape(), node.dtype())) if made is None else made


def parametric_relu(node: OnnxNode) -> None:
    """Left to TVM, which does not look whether the slopes fit the tensor."""
    shape, slopes = node.shape(), node.shape(1)
    missing = (1,) * (len(shape) - len(slopes))
    if len(slopes) > len(shape) or any(
        one not in (1, extent) for one, extent in zip((*missing, *slopes), shape, strict=True)
    ):
        raise UnsupportedModelError(f"slopes of shape {slopes} do not broadcast to {shape}")


def dropout(node: OnnxNode) -> relax.Expr:
    """Dropout as a training step does it (`set_modes` has removed others); the mask is that of
    inference, which keeps all."""
    x = node.input(0)
    ratio = node.value(1, "the ratio")
    rate = node.number("ratio", 0.5) if ratio is None else float(ratio.reshape(()))
    training = node.value(2, "the training mode")
    if node.output_count > 1 and training is not None and training.reshape(()) and rate:
        raise UnsupportedModelError(
            "the mask of a dropout in training mode; only its first output is known"
        )
    kept = node.emit(relax.op.full(node.shape(), literal(True, "bool"), "bool"))
    if not rate:
        return relax.Tuple([x, kept])
    made = node.emit(relax.op.nn.dropout(x, rate))
    return relax.Tuple([node.emit(relax.TupleGetItem(made, 0)), kept])


CONVERTERS: dict[str, Converter] = {
    "BitShift": bit_shift,
    "Celu": partial(exponential, is_continuous=True),
    "Dropout": dropout,
    "Elu": partial(exponential, is_continuous=False),
    "IsInf": is_inf,
    "Mish": lambda node: node.emit(pointwise("mish", node.input(0))),
    "Mod": modulo,
    "PRelu": parametric_relu,
    "Pow": power,
}
