"""Scales that a model brings along: pairs of quantize and dequantize around its tensors."""

from __future__ import annotations

from dataclasses import replace

from tvm import relax

from tvm_xengine.quantization.affine import LOWEST, Affine
from tvm_xengine.relax_ir import integer_ops as ops
from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps
from tvm_xengine.relax_ir.matrix_ops import VALUE_AND_CHANGE
from tvm_xengine.relax_ir.own_ops import options_of


def without_pairs(source: ForwardOps) -> tuple[ForwardOps, dict[relax.Var, Affine]]:
    """The function in real numbers, and the scales of the tensors that were quantized in it.

    A tensor that is quantized twice keeps its first scale. uint8 becomes int8: element and zero point
    less 128 stand for the same number.
    """
    affines: dict[relax.Var, Affine] = {}
    quantized: dict[relax.Expr, relax.Expr] = {}
    real: dict[relax.Expr, relax.Expr] = {}
    kept: list[ForwardOp] = []
    for old in source.ops:
        if old.op == VALUE_AND_CHANGE and old.operands[0] in real:  # a pair with its gradient
            real[old.results[0]] = real[old.operands[0]]
            continue
        operands = tuple(real.get(one, one) for one in old.operands)
        op = replace(old, call=old.rebuild(operands), operands=operands)
        if op.op == ops.QUANTIZE:
            quantized[op.results[0]] = operands[0]
            affines.setdefault(operands[0], _affine(op))
        if op.op == ops.DEQUANTIZE and operands[0] in quantized:
            real[op.results[0]] = quantized[operands[0]]
        else:
            kept.append(op)
    returned = [real.get(one, one) for one in source.returned]
    return replace(source, ops=tuple(kept)).returning(returned).live(), affines


def _affine(op: ForwardOp) -> Affine:
    scale, zero, *signed = options_of(op.call)
    return Affine(scale, int(zero) + (LOWEST if signed == [0.0] else 0))
