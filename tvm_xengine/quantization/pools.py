"""Pools of a forward function as numbers of an integer operator."""

from __future__ import annotations

from math import prod

from tvm_xengine.relax_ir.forward_ops import ForwardOp
from tvm_xengine.relax_ir.types import static_shape

_RANKS = (1, 2, 3)
"""Numbers of axes that Relax pools over."""
MAX_POOLS = {f"relax.nn.max_pool{rank}d": rank for rank in _RANKS}
_AVG_POOLS = {f"relax.nn.avg_pool{rank}d": rank for rank in _RANKS}
_ADAPTIVE = {f"relax.nn.adaptive_avg_pool{rank}d": rank for rank in _RANKS}
_LAYOUTS = ("NCW", "NCHW", "NCDHW")


def max_pool_numbers(op: ForwardOp) -> tuple[int, ...] | None:
    """Extents of the result, window, strides, padding, dilation; None of other ops."""
    if op.op not in MAX_POOLS or str(op.call.attrs.layout) not in _LAYOUTS:
        return None
    attrs, space = op.call.attrs, static_shape(op.results[0].ty)[2:]
    dilation = _ints(attrs.dilation)
    padding = _reaching(op, dilation)
    return (*space, *_ints(attrs.pool_size), *_ints(attrs.strides), *padding, *dilation)


def mean_numbers(op: ForwardOp) -> tuple[int, ...] | None:
    """Extents, window, strides and padding of a mean of windows of one size; None of other ops."""
    data = static_shape(op.operands[0].ty) if op.operands else ()
    rank = len(data) - 2
    if rank not in _RANKS:
        return None
    if _is_global(op, data):
        return (*[1] * rank, *data[2:], *[1] * rank, *[0] * 2 * rank)
    attrs = op.call.attrs
    if op.op not in _AVG_POOLS or str(attrs.layout) not in _LAYOUTS:
        return None
    counts_padding = bool(attrs.count_include_pad) or not any(_ints(attrs.padding))
    dilation = _ints(attrs.dilation)
    if not counts_padding or bool(attrs.ceil_mode) or any(step != 1 for step in dilation):
        return None
    space = static_shape(op.results[0].ty)[2:]
    return (*space, *_ints(attrs.pool_size), *_ints(attrs.strides), *_ints(attrs.padding))


def _is_global(op: ForwardOp, data: tuple[int, ...]) -> bool:
    """Whether the op is the mean over all of the space."""
    if op.op in _ADAPTIVE and str(op.call.attrs.layout) in _LAYOUTS:
        return prod(static_shape(op.results[0].ty)[2:]) == 1
    if op.op != "relax.mean" or op.call.attrs.axis is None:
        return False
    return sorted(axis % len(data) for axis in _ints(op.call.attrs.axis)) == list(
        range(2, len(data))
    )


def _reaching(op: ForwardOp, dilation: tuple[int, ...]) -> tuple[int, ...]:
    """The padding, enlarged behind where windows of ``ceil_mode`` reach over it."""
    attrs = op.call.attrs
    data, space = static_shape(op.operands[0].ty)[2:], static_shape(op.results[0].ty)[2:]
    padding, rank = list(_ints(attrs.padding)), len(data)
    for a, (window, stride) in enumerate(
        zip(_ints(attrs.pool_size), _ints(attrs.strides), strict=True)
    ):
        last = (space[a] - 1) * stride + (window - 1) * dilation[a] - padding[a]
        padding[a + rank] = max(padding[a + rank], last - data[a] + 1, 0)
    return tuple(padding)


def _ints(values: object) -> tuple[int, ...]:
    return tuple(int(value) for value in values)  # type: ignore[attr-defined]
