"""Batch norms in a forward function, and their running statistics."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.relax_ir.forward_ops import ForwardOps

BATCH_NORM = "relax.nn.batch_norm"
BATCH_NORM_RELU = "tvm_xengine.batch_norm_relu"
BATCH_NORM_ADD_RELU = "tvm_xengine.batch_norm_add_relu"
BATCH_NORMS = (BATCH_NORM, BATCH_NORM_RELU, BATCH_NORM_ADD_RELU)


def running_statistics(source: ForwardOps) -> set[relax.Var]:
    """The parameters that batch norms keep their running means and variances in."""
    return {
        statistic
        for op in source.ops
        if op.op in BATCH_NORMS
        for statistic in op.operands[3:5]
        if isinstance(statistic, relax.Var)
    }


def updated_statistics(source: ForwardOps) -> set[relax.Var]:
    """Those of them that the function replaces: a frozen norm only reads its own."""
    return {
        statistic
        for op in source.ops
        if op.op in BATCH_NORMS and bool(op.call.attrs.training)
        for statistic in op.operands[3:5]
        if isinstance(statistic, relax.Var)
    }
