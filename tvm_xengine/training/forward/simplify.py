"""Simplification of a forward function before it is differentiated."""

from __future__ import annotations

from dataclasses import replace

import tvm_ffi
from tvm import relax

from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps
from tvm_xengine.training.composites import expand_composites
from tvm_xengine.training.gradients.elements.randomness import DROPOUT
from tvm_xengine.training.gradients.normalisation import merge_batch_norm_relu
from tvm_xengine.training.gradients.products.linear import merge_transposed_matmul

_COUNTED = (DROPOUT, "relax.nn.batch_norm")
"""Operators of which each call counts: for other random numbers, and in running statistics."""


def simplified(source: ForwardOps, *, residuals_apart: bool = False) -> ForwardOps:
    """Equal ops merged, composite ops decomposed, patterns with a kernel of their own combined.

    `residuals_apart` is that of :class:`tvm_xengine.training.recipe.Recipe`.
    """
    source = merge_transposed_matmul(merge_equal_ops(expand_composites(source)))
    return merge_batch_norm_relu(source, residuals_apart=residuals_apart)


def merge_equal_ops(source: ForwardOps) -> ForwardOps:
    """The function without ops that compute once more what an earlier op has computed.

    A model that writes ``sigmoid(x)`` in two places has such ops. Relax's own pass of that kind does
    not know that dropout draws other numbers in each call, and that a batch norm counts each call.
    """
    same: dict[relax.Expr, relax.Expr] = {}
    first: dict[tvm_ffi.StructuralKey, ForwardOp] = {}
    kept = []
    for old in source.ops:
        operands = tuple(same.get(operand, operand) for operand in old.operands)
        op = replace(old, call=old.rebuild(operands), operands=operands)
        earlier = op
        if op.op not in _COUNTED:
            earlier = first.setdefault(tvm_ffi.StructuralKey(op.call), op)
        if earlier is op:
            kept.append(op)
        else:
            same |= dict(zip(op.results, earlier.results, strict=True))
    returned = [same.get(value, value) for value in source.returned]
    return replace(source, ops=tuple(kept)).returning(returned)
