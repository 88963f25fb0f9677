"""Numbers on the grid of a quantized type, with gradients as if they were left alone."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr, scalar
from tvm_xengine.relax_ir.matrix_ops import value_and_change
from tvm_xengine.relax_ir.types import static_shape


def by_tensor(
    builder: Builder, x: Expr, scale: float, zero_point: int, least: int, most: int
) -> list[Expr]:
    """With one step and one zero point, and where numbers are on the grid."""
    step = np.float32(scale)
    inverse = relax.const(np.float32(1) / step, "float32")
    return _on_grid(
        builder, x, (relax.const(step), inverse), relax.const(zero_point), (least, most)
    )


def by_channel(
    builder: Builder, x: Expr, scale: Expr, zero_point: Expr, axis: int, least: int, most: int
) -> list[Expr]:
    """With a step and a zero point for each place along an axis."""
    shape = [1] * len(static_shape(x.ty))
    shape[axis] = -1
    steps = _steps(builder, builder.emit(relax.op.reshape(scale, shape)))
    points = builder.emit(relax.op.reshape(zero_point, shape))
    return _on_grid(builder, x, steps, _points(points), (least, most))


def by_tensors(
    builder: Builder,
    x: Expr,
    scale: Expr,
    zero_point: Expr,
    enabled: Expr,
    least: int,
    most: int,
) -> list[Expr]:
    """With one step and one zero point, which are tensors; what is not enabled leaves numbers alone."""
    one = [relax.op.reshape(each, ()) for each in (scale, zero_point, enabled)]
    step, point, switch = (builder.emit(each) for each in one)
    made, inside = _on_grid(builder, x, _steps(builder, step), _points(point), (least, most))
    is_on = builder.emit(relax.op.astype(switch, "bool"))
    kept = builder.emit(relax.op.logical_or(inside, relax.op.logical_not(is_on)))
    return [builder.emit(relax.op.where(is_on, made, x)), kept]


def _steps(builder: Builder, step: Expr) -> tuple[Expr, Expr]:
    """The steps and their inverses, of which PyTorch takes products."""
    narrow = builder.emit(relax.op.astype(step, "float32"))
    return narrow, builder.emit(relax.op.divide(relax.const(1.0, "float32"), narrow))


def _points(zero_point: Expr) -> Expr:
    if "int" not in str(zero_point.ty.dtype):
        raise UnsupportedModelError(
            "fake_quantize with zero points that are no whole numbers; give them as int32"
        )
    return zero_point


def _on_grid(
    builder: Builder,
    x: Expr,
    steps: tuple[Expr, Expr],
    zero_point: Expr,
    bounds: tuple[int, int],
) -> list[Expr]:
    """(round(x / step) + zero point, within bounds, back), and what was within them; NaN is below.

    As in PyTorch, numbers on the grid are those of float32.
    """
    dtype = str(x.ty.dtype)
    step, inverse = steps
    fixed = builder.emit(relax.op.grad.no_grad(x))
    if dtype != "float64":
        fixed = builder.emit(relax.op.astype(fixed, "float32"))
    scaled = relax.op.multiply(fixed, relax.op.astype(inverse, str(fixed.ty.dtype)))
    point = builder.emit(relax.op.astype(zero_point, str(fixed.ty.dtype)))
    whole = builder.emit(relax.op.add(relax.op.round(scaled), point))
    low, high = (scalar(bound, fixed) for bound in bounds)
    is_above = builder.emit(relax.op.greater_equal(whole, low))
    inside = builder.emit(relax.op.logical_and(is_above, relax.op.less_equal(whole, high)))
    kept = relax.op.where(is_above, relax.op.minimum(whole, high), low)
    narrow = relax.op.astype(relax.op.subtract(kept, point), "float32")
    value = builder.emit(relax.op.astype(relax.op.multiply(narrow, step), dtype))
    change = builder.emit(relax.op.multiply(x, relax.op.astype(inside, dtype)))
    return [builder.emit(value_and_change(value, change)), inside]


CONVERTERS: dict[str, Converter] = {
    "fake_quantize_per_channel_affine_cachemask.default": by_channel,
    "fake_quantize_per_tensor_affine_cachemask.default": by_tensor,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default": by_tensors,
}
