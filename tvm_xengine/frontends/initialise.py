"""Random initialisation of a model's parameters."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import prod, sqrt

import numpy as np
from tvm import relax

from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.relax_ir.batch_norms import BATCH_NORM, running_statistics
from tvm_xengine.relax_ir.forward_ops import ForwardOps, read_forward_ops
from tvm_xengine.relax_ir.types import Array

_MOVES = ("relax.reshape", "relax.expand_dims", "relax.broadcast_to", "relax.squeeze")
_SCALED_NORMS = (
    BATCH_NORM,
    "relax.nn.layer_norm",
    "relax.nn.group_norm",
    "relax.nn.instance_norm",
    "relax.nn.rms_norm",
)


def initialised(model: ForwardModel, seed: int) -> ForwardModel:
    """The same model with weights drawn from He's normal distribution (He et al. 2015).

    Tensors with several axes are weights; of those with one axis, what multiplies starts at one
    and what is added at zero. Running means start at zero, running variances at one; other buffers
    that the model writes start as they are.
    """
    random = np.random.default_rng(seed)
    source = read_forward_ops(model.main)
    scales = _scales(source)
    variances = _running_variances(source)
    drawn: dict[str, Array] = {}
    for name, value in model.parameters.items():
        if value.ndim > 1:
            deviation = sqrt(2 / max(prod(value.shape[1:]), 1))
            drawn[name] = (random.standard_normal(value.shape) * deviation).astype(value.dtype)
        else:
            drawn[name] = np.full(value.shape, float(name in scales), value.dtype)
    averages = {var.name for var in running_statistics(source)}
    statistics = {
        name: np.full(value.shape, float(name in variances), value.dtype)
        if name in averages
        else value
        for name, value in model.statistics.items()
    }
    return replace(model, parameters=drawn, statistics=statistics)


def _scales(source: ForwardOps) -> Collection[str]:
    """Names of the parameters that multiply, reshaped or not."""
    scales: set[str] = set()
    origin: dict[relax.Var, relax.Var] = {param: param for param in source.params}
    for op in source.ops:
        if op.op in _MOVES and op.operands[0] in origin:
            origin[op.results[0]] = origin[op.operands[0]]
        elif op.op == "relax.multiply":
            scales.update(origin[read].name for read in op.operands if read in origin)
        elif op.op in _SCALED_NORMS and op.operands[1] in origin:
            scales.add(origin[op.operands[1]].name)
    return scales


def _running_variances(source: ForwardOps) -> Collection[str]:
    return {
        op.operands[4].name
        for op in source.ops
        if op.op == BATCH_NORM and isinstance(op.operands[4], relax.Var)
    }
