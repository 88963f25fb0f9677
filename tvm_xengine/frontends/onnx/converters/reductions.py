"""Reductions that TVM's importer or its kernels lack."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from tvm import relax

from tvm_xengine.frontends.onnx.node import Converter, OnnxNode, literal


def _extreme(
    operator: Callable[..., relax.Expr], node: OnnxNode, *, largest: bool
) -> relax.Expr | None:
    """Extremes of booleans as those of small integers, and of no elements at all.

    Others are left to TVM.
    """
    axes = node.integers(1, "axes")
    if not axes and node.integer("noop_with_empty_axes", 0):
        return node.input(0)
    reduced = [axis % len(node.shape()) for axis in axes or range(len(node.shape()))]
    if not all(node.shape()[axis] for axis in reduced):
        keeps = bool(node.integer("keepdims", 1))
        kept = [1 if k in reduced else n for k, n in enumerate(node.shape())]
        shape = kept if keeps else [n for k, n in enumerate(kept) if k not in reduced]
        nothing = _of_nothing(node.dtype(), largest=largest)
        return node.emit(relax.op.full(shape, literal(nothing, node.dtype()), node.dtype()))
    if node.dtype() != "bool":
        return None
    wide = relax.op.astype(node.input(0), "int8")
    made = operator(wide, axes or None, keepdims=bool(node.integer("keepdims", 1)))
    return node.emit(relax.op.astype(made, "bool"))


def _of_nothing(dtype: str, *, largest: bool) -> float | int | bool:
    """What any element exceeds, or falls below."""
    if dtype == "bool":
        return not largest
    if "float" in dtype:
        return -np.inf if largest else np.inf
    return int(np.iinfo(dtype).min if largest else np.iinfo(dtype).max)


def maximum(node: OnnxNode) -> relax.Expr | None:
    """The largest element; of booleans, whether any is true."""
    return _extreme(relax.op.max, node, largest=True)


def minimum(node: OnnxNode) -> relax.Expr | None:
    """The least element; of booleans, whether all are true."""
    return _extreme(relax.op.min, node, largest=False)


def _elements(formula: Callable[[relax.Expr], relax.Expr], node: OnnxNode) -> relax.Expr | None:
    """What a reduction does with each element, where it is over no axes; others are left to TVM."""
    if node.integers(1, "axes") or not node.integer("noop_with_empty_axes", 0):
        return None
    return node.emit(formula(node.input(0)))


CONVERTERS: dict[str, Converter] = {
    "ReduceL1": partial(_elements, relax.op.abs),
    "ReduceL2": partial(_elements, relax.op.abs),
    "ReduceLogSum": partial(_elements, relax.op.log),
    "ReduceMax": maximum,
    "ReduceMin": minimum,
    "ReduceSumSquare": partial(_elements, relax.op.square),
}
