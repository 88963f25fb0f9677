"""Constant tensors of a function as parameters with values."""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import relax

from tvm_xengine.relax_ir.forward_ops import ForwardOps
from tvm_xengine.relax_ir.types import Array


def lift_constants(source: ForwardOps) -> tuple[ForwardOps, dict[str, Array]]:
    """The same function with every constant that is not a scalar as a last parameter.

    So is every constant that is written into a buffer. Returns the function and the values of the
    new parameters, by name, in order.
    """
    taken = {param.name for param in source.params}
    lifted: dict[relax.Expr, relax.Var] = {}
    values: dict[str, Array] = {}
    of_ops = [(op.name, read) for op in source.ops for read in op.operands if read.ty.ndim]
    for user, value in [*of_ops, *((param.name, new) for param, new in source.writes)]:
        if not isinstance(value, tvm.ir.GenericConst) or value in lifted:
            continue
        name = f"{user}_constant"
        while name in taken:
            name = f"{name}_{len(lifted)}"
        taken.add(name)
        lifted[value] = relax.Var(name, value.ty)
        values[name] = value.value.numpy()
    ops = tuple(
        replace(op, operands=tuple(lifted.get(operand, operand) for operand in op.operands))
        for op in source.ops
    )
    count = len(source.outputs)
    returned = [*source.outputs, *(lifted.get(one, one) for one in source.returned[count:])]
    params = (*source.params, *lifted.values())
    return replace(source, params=params, ops=ops).returning(returned), values
