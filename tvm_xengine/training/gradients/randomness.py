"""Ops that draw random numbers."""

from __future__ import annotations

from tvm_xengine.training.forward_ops import ForwardOps

DROPOUT = "relax.nn.dropout"


def draws_random_numbers(source: ForwardOps) -> bool:
    """Whether a step of this model needs a seed."""
    return any(op.op == DROPOUT and float(op.call.attrs.rate) > 0 for op in source.ops)
