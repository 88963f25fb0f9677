"""Constant tensors of a function as parameters with values."""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import relax

from tvm_xengine.relax_ir.forward_ops import ForwardOps
from tvm_xengine.relax_ir.types import Array


def lift_constants(source: ForwardOps) -> tuple[ForwardOps, dict[str, Array]]:
    """The same function with every constant that is not a scalar as a last parameter.

    Returns the function and the values of the new parameters, by name, in order.
    """
    taken = {param.name for param in source.params}
    lifted: dict[relax.Expr, relax.Var] = {}
    values: dict[str, Array] = {}
    for op in source.ops:
        for operand in op.operands:
            if not isinstance(operand, tvm.ir.GenericConst) or not operand.ty.ndim:
                continue
            if operand not in lifted:
                name = f"{op.name}_constant"
                while name in taken:
                    name = f"{name}_{len(lifted)}"
                taken.add(name)
                lifted[operand] = relax.Var(name, operand.ty)
                values[name] = operand.value.numpy()
    ops = tuple(
        replace(op, operands=tuple(lifted.get(operand, operand) for operand in op.operands))
        for op in source.ops
    )
    return replace(source, params=(*source.params, *lifted.values()), ops=ops), values
