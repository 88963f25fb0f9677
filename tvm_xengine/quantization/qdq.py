"""Scales that a model brings along: pairs of quantize and dequantize around its tensors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tvm import relax

from tvm_xengine.quantization.affine import HIGHEST, LOWEST, Affine
from tvm_xengine.relax_ir import integer_ops as ops
from tvm_xengine.relax_ir.forward_ops import ForwardOp, ForwardOps
from tvm_xengine.relax_ir.matrix_ops import VALUE_AND_CHANGE
from tvm_xengine.relax_ir.own_ops import options_of

CLIP = "relax.clip"


@dataclass(frozen=True)
class Quantized:
    """A forward function whose pairs are clips to what their elements can stand for.

    Attributes
    ----------
    affines
        Scales of what is quantized: of the result of each pair, and of its operand where nothing else
        reads that. uint8 became int8: element and zero point less 128 stand for the same number.
    pairs
        The results of pairs.
    """

    source: ForwardOps
    affines: dict[relax.Var, Affine] = field(default_factory=dict)
    pairs: frozenset[relax.Var] = frozenset()


def read_pairs(
    source: ForwardOps, inputs: Collection[relax.Var], trained: Collection[relax.Var]
) -> Quantized:
    """Find the pairs of a function.

    Pairs around trained parameters go. Those around other parameters stay, and so do a quantize and a
    dequantize with different scales.
    """
    affines: dict[relax.Var, Affine] = {}
    quantized: dict[relax.Expr, tuple[relax.Var, Affine]] = {}
    pairs: dict[relax.Var, relax.Var] = {}
    real: dict[relax.Expr, relax.Expr] = {}
    kept: list[ForwardOp] = []
    computed, learning = set(inputs), set(trained)
    for old in source.ops:
        if old.op == VALUE_AND_CHANGE and (old.operands[0] in real or old.operands[0] in pairs):
            real[old.results[0]] = real.get(old.operands[0], old.operands[0])
            continue
        operands = tuple(real.get(one, one) for one in old.operands)
        op = replace(old, call=old.rebuild(operands), operands=operands)
        computed.update(op.results if not computed.isdisjoint(operands) else ())
        learning.update(op.results if not learning.isdisjoint(operands) else ())
        if op.op == ops.QUANTIZE and not (computed | learning).isdisjoint(operands):
            quantized[op.results[0]] = operands[0], _affine(op)
        if op.op == ops.DEQUANTIZE and operands[0] in (computed | learning):
            (made,), affine = op.results, _affine(op)
            affines[made] = affine
            x, given = quantized.get(operands[0], (None, None))
            if given == affine and x in computed:
                op = _clip(op, x, affine)
                pairs[made] = x
            elif given == affine:
                real[made] = x
                continue
        kept.append(op)
    returned = [real.get(one, one) for one in source.returned]
    found = replace(source, ops=tuple(kept)).returning(returned).live()
    _add_operands(found, pairs, affines)
    return Quantized(found, affines, frozenset(pairs))


def _affine(op: ForwardOp) -> Affine:
    scale, zero = options_of(op.call)[:2]
    whole = op.results[0] if op.op == ops.QUANTIZE else op.operands[0]
    return Affine(scale, int(zero) + (LOWEST if str(whole.ty.dtype) == "uint8" else 0))


def _clip(pair: ForwardOp, x: relax.Var, affine: Affine) -> ForwardOp:
    low, high = (affine.scale * (bound - affine.zero) for bound in (LOWEST, HIGHEST))
    return replace(pair, op=CLIP, call=relax.op.clip(x, low, high), operands=(x,))


def _add_operands(
    source: ForwardOps, pairs: dict[relax.Var, relax.Var], affines: dict[relax.Var, Affine]
) -> None:
    """Give what only pairs of one scale read that scale."""
    wanted: dict[relax.Var, list[Affine]] = {}
    for op in source.ops:
        if op.results[0] in pairs:
            wanted.setdefault(op.operands[0], []).append(affines[op.results[0]])
    readers = source.consumers()
    for x, scales in wanted.items():
        if readers[x] == len(scales) and len(set(scales)) == 1:
            affines.setdefault(x, scales[0])
