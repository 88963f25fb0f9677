"""The layers of a forward function that may become integer: products with what follows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
from tvm import relax

from tvm_xengine.quantization.affine import MOST_TERMS, Filters, Reals
from tvm_xengine.relax_ir.batch_norms import BATCH_NORM
from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps
from tvm_xengine.relax_ir.own_ops import PREFIX, options_of
from tvm_xengine.relax_ir.types import Array, constant_value, static_shape

CONVOLUTIONS = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
}
MATMUL = "relax.matmul"
DROPOUT = "relax.nn.dropout"
SAME_VALUES = (
    *("relax.reshape", "relax.flatten", "relax.squeeze", "relax.expand_dims"),
    "relax.permute_dims",
)
"""Operators that move elements and change none."""


UNBOUNDED = (-inf, inf)


@dataclass(frozen=True)
class Frozen:
    """What of a forward function no training changes.

    Attributes
    ----------
    values
        Of variables that depend on no input.
    active
        Variables that depend on a trained parameter.
    grids
        The scale of each element of a weight where the model gives it.
    """

    source: ForwardOps
    values: Mapping[relax.Var, Array]
    active: Collection[relax.Var]
    grids: Mapping[relax.Var, Array] = field(default_factory=dict)

    def value(self, operand: relax.Expr) -> Array | None:
        """The numbers of what depends on no input; None of everything else."""
        return (
            self.values.get(operand) if isinstance(operand, relax.Var) else constant_value(operand)
        )

    def computed(self, op: ForwardOp) -> list[relax.Var]:
        """The operands that depend on an input."""
        return [one for one in op.operands if self.value(one) is None]

    def readers(self) -> dict[relax.Var, list[ForwardOp | None]]:
        """The ops that read each variable; None stands for what the function returns."""
        readers: dict[relax.Var, list[ForwardOp | None]] = {}
        for op in self.source.ops:
            for operand in op.operands:
                if isinstance(operand, relax.Var):
                    readers.setdefault(operand, []).append(op)
        for value in self.source.returned:
            if isinstance(value, relax.Var):
                readers.setdefault(value, []).append(None)
        return readers


@dataclass(frozen=True)
class Layer:
    """A product with bias, norm and activation, or a sum with its activation.

    Attributes
    ----------
    op
        The product or the sum.
    absorbed
        The ops behind it that it computes, too.
    result
        What the last of them makes.
    bounds
        Least and greatest value of the result.
    filters
        Weights of a product; None of a sum.
    """

    op: ForwardOp
    absorbed: tuple[ForwardOp, ...] = ()
    bounds: tuple[float, float] = UNBOUNDED
    filters: Filters | None = None

    @property
    def result(self) -> relax.Var:
        return (self.absorbed[-1] if self.absorbed else self.op).results[0]

    @property
    def name(self) -> str:
        """Name of the layer in the model."""
        return self.op.name


def read_product(frozen: Frozen, op: ForwardOp) -> Layer | str | None:
    """A convolution or dense layer with constant weights; else why not, or None of other ops."""
    if op.op not in CONVOLUTIONS and op.op != MATMUL:
        return None
    weight = frozen.value(op.operands[1])
    if weight is None:
        return None if op.op == MATMUL else "its weights are computed"
    if str(op.operands[0].ty.dtype) != "float32" or str(op.results[0].ty.dtype) != "float32":
        return f"it computes in {op.results[0].ty.dtype}"
    grid = frozen.grids.get(op.operands[1])
    if op.op == MATMUL:
        if weight.ndim != 2 or len(static_shape(op.operands[0].ty)) < 2:
            return "it is no product with one matrix of weights"
        weight, grid = weight.T, None if grid is None else grid.T
    else:
        attrs = op.call.attrs
        if (str(attrs.data_layout), str(attrs.kernel_layout)) != CONVOLUTIONS[op.op]:
            return f"it has the layout {attrs.data_layout}"
    if weight[0].size > MOST_TERMS:
        return f"it adds up {weight[0].size} products, which int32 may not hold"
    bias = np.zeros(len(weight), "float32")
    rows = np.asarray(weight, "float32")
    return Layer(op, filters=Filters(rows, bias, None if grid is None else _by_row(grid)))


def _by_row(grid: Array) -> Reals | None:
    """One scale for each output channel; None where they differ within one."""
    rows = grid.reshape(len(grid), -1)
    return rows[:, 0].astype("float32") if (rows == rows[:, :1]).all() else None


def with_followers(
    frozen: Frozen,
    layer: Layer,
    readers: Mapping[relax.Var, Sequence[ForwardOp | None]],
    stops: Collection[relax.Var] = (),
) -> Layer:
    """A layer with the bias, norm, dropout and activation that alone read its result.

    Parameters
    ----------
    stops
        Variables behind which nothing is absorbed.
    """
    while layer.result not in stops:
        op = _only_reader(readers.get(layer.result, ()))
        if op is None or op.results[0] in frozen.active:
            return layer
        bounds, filters = activation_bounds(op), layer.filters
        if bounds is None and op.op != DROPOUT:
            filters = _absorbed(frozen, layer, op) if layer.bounds == UNBOUNDED else None
            if filters is None:
                return layer
        low, high = bounds or UNBOUNDED
        least, most = (min(max(bound, low), high) for bound in layer.bounds)
        absorbed = (*layer.absorbed, op)
        layer = replace(layer, absorbed=absorbed, bounds=(least, most), filters=filters)
    return layer


def _only_reader(readers: Sequence[ForwardOp | None]) -> ForwardOp | None:
    return readers[0] if len(readers) == 1 else None


def _absorbed(frozen: Frozen, layer: Layer, op: ForwardOp) -> Filters | None:
    """The weights of a product that computes `op`, too; None where it cannot."""
    filters = layer.filters
    if filters is None or op.results[0].ty.ndim != layer.op.results[0].ty.ndim:
        return None
    axis = 1 if layer.op.op in CONVOLUTIONS else op.results[0].ty.ndim - 1
    if op.op == BATCH_NORM:
        values = [frozen.value(one) for one in op.operands[1:5]]
        if int(op.call.attrs.axis) != axis or any(one is None for one in values):
            return None
        gamma, beta, mean, variance = (np.asarray(one, "float64") for one in values)
        factor = gamma / np.sqrt(variance + float(op.call.attrs.epsilon))
        scaled = filters.times(factor.astype("float32"))
        return scaled.plus((beta - mean * factor).astype("float32"))
    if op.op not in ("relax.add", "relax.subtract", "relax.multiply"):
        return None
    at = 1 if op.operands[0] is layer.result else 0
    other = frozen.value(op.operands[at])
    if other is None or (op.op == "relax.subtract" and at == 0):
        return None
    numbers = _by_channel(other, op, axis, len(filters.weight))
    if numbers is None:
        return None
    if op.op == "relax.multiply":
        return filters.times(numbers)
    return filters.plus(numbers if op.op == "relax.add" else -numbers)


def _by_channel(value: Array, op: ForwardOp, axis: int, channels: int) -> Reals | None:
    """One number for each channel; None where they differ within one."""
    rank = op.results[0].ty.ndim
    if value.ndim > rank:
        return None
    shape = (*[1] * (rank - value.ndim), *value.shape)
    if any(extent != 1 for a, extent in enumerate(shape) if a != axis):
        return None
    return np.broadcast_to(value.reshape(-1).astype("float32"), (channels,)).copy()


def activation_bounds(op: ForwardOp) -> tuple[float, float] | None:
    """Least and greatest value of what only bounds its operand; None of other ops."""
    if op.op == "relax.nn.relu":
        return 0.0, inf
    if op.op == "relax.nn.relu6":
        return 0.0, 6.0
    if op.op == "relax.clip":
        low, high = (float(argument.value) for argument in op.call.args[1:3])
        return low, high
    numbers = options_of(op.call) if op.op.startswith(PREFIX) else ()
    if op.op in (PREFIX + "hardtanh", PREFIX + "clamp"):
        return numbers[0], numbers[1]
    if op.op == PREFIX + "clamp_min":
        return numbers[0], inf
    if op.op == PREFIX + "clamp_max":
        return -inf, numbers[0]
    return None
