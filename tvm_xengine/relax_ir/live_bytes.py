"""The live bytes of a function of kernel calls at each of its bindings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from tvm import ir, relax, tirx

from tvm_xengine.relax_ir.dataflow import returned_fields
from tvm_xengine.relax_ir.kernel_calls import same_bytes
from tvm_xengine.scheduling.sizes import tensor_bytes


def live_bytes(func: relax.Function, bindings: Sequence[relax.Binding]) -> list[int]:
    """For each binding the sum of bytes that were made and are still read.

    Parameters
    ----------
    bindings
        Those of `func` in an order that they may have, or others that return the same variables.
        What the function returns does not count: new state lies where the old one was. Neither do
        its parameters.
    """
    base = same_bytes(bindings)
    made_at: dict[relax.Var, int] = {}
    read_at: dict[relax.Var, int] = {}
    for at, binding in enumerate(bindings):
        for var in variables_read(binding.value):
            read_at[base.get(var, var)] = at
        if isinstance(binding.value, relax.TupleGetItem):
            made_at[binding.var] = made_at.get(binding.value.tuple_value, at)
        elif binding.var not in base:
            made_at[binding.var] = at
    returned = {base.get(field, field) for field in returned_fields(func)}
    change = [0] * (len(bindings) + 1)
    for var, at in made_at.items():
        if var not in returned and not isinstance(var.ty, relax.TupleType):
            change[at] += size_bytes(var)
            change[read_at.get(var, at) + 1] -= size_bytes(var)
    return list(accumulate(change))[: len(bindings)]


def size_bytes(var: relax.Var) -> int:
    """Bytes of a tensor; 0 where its shape is not static, which `extract_graph` refuses."""
    shape = var.ty.shape.values if isinstance(var.ty.shape, relax.ShapeExpr) else []
    if not shape or not all(isinstance(extent, tirx.IntImm) for extent in shape):
        return 0
    return tensor_bytes([int(extent) for extent in shape], str(var.ty.dtype))


def variables_read(value: relax.Expr) -> Iterator[relax.Expr]:
    """The variables that an expression reads, in order."""
    if isinstance(value, ir.Call):
        for arg in value.args:
            yield from variables_read(arg)
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from variables_read(field)
    elif isinstance(value, relax.TupleGetItem):
        yield from variables_read(value.tuple_value)
    elif isinstance(value, relax.Var):
        yield value
