"""Values of the variables that depend on no input."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from tvm import relax

from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.quantization.layers import SAME_VALUES
from tvm_xengine.quantization.observe import observer
from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps
from tvm_xengine.relax_ir.types import Array, static_shape


def constant_values(
    model: ForwardModel, source: ForwardOps, varying: Collection[relax.Var]
) -> dict[relax.Var, Array]:
    """Parameters of the forward function and what is computed from them alone.

    Parameters
    ----------
    varying
        Parameters that a training step changes.
    """
    inputs = source.params[: len(model.input_names)]
    state = model.state
    params = {p: state[p.name] for p in source.params if p not in inputs and p not in varying}
    constant, computed = set(params), []
    for op in source.ops:
        read = [one for one in op.operands if isinstance(one, relax.Var)]
        if not all(one in constant for one in read):
            continue
        constant.update(op.results)
        if op.op not in SAME_VALUES or not read:
            computed += [one for one in op.results if isinstance(one.ty, relax.TensorType)]
    batch = {p.name: np.zeros(static_shape(p.ty), str(p.ty.dtype)) for p in inputs}
    return moved_along(source, {**params, **observer(model, source, computed)(batch)})


def moved_along(source: ForwardOps, values: Mapping[relax.Var, Array]) -> dict[relax.Var, Array]:
    """The arrays, and what operators make of them that only move elements."""
    known = dict(values)
    for op in source.ops:
        if op.op in SAME_VALUES and op.operands[0] in known:
            known[op.results[0]] = _moved(op, known[op.operands[0]])
    return known


def _moved(op: ForwardOp, value: Array) -> Array:
    if op.op == "relax.permute_dims":
        axes = op.call.attrs.axes
        value = value.transpose(None if axes is None else [int(axis) for axis in axes])
    moved: Array = value.reshape(static_shape(op.results[0].ty))
    return moved
