"""The live bytes of a function of kernel calls at each of its bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from tvm import ir, relax, tirx

from tvm_xengine.relax_ir.dataflow import returned_fields
from tvm_xengine.relax_ir.identity import identity
from tvm_xengine.relax_ir.kernel_calls import same_bytes
from tvm_xengine.scheduling.sizes import tensor_bytes

Reads = Mapping[int, Sequence[int]]
"""For each variable those that its binding reads, in order; all by `identity`."""


def reads_of(bindings: Iterable[relax.Binding]) -> Reads:
    """What each binding reads."""
    return {identity(b.var): [*map(identity, variables_read(b.value))] for b in bindings}


def live_bytes(
    func: relax.Function, bindings: Sequence[relax.Binding], reads: Reads | None = None
) -> list[int]:
    """For each binding the sum of bytes that were made and are still read.

    Parameters
    ----------
    bindings
        Those of `func` in an order that they may have, or others that return the same variables.
        What the function returns does not count: new state lies where the old one was. Neither do
        its parameters.
    reads
        What `reads_of` says of the bindings, where it is known.
    """
    reads = reads_of(bindings) if reads is None else reads
    base = {identity(var): identity(of) for var, of in same_bytes(bindings).items()}
    made_at: dict[int, int] = {}
    read_at: dict[int, int] = {}
    size: dict[int, int] = {}
    for at, binding in enumerate(bindings):
        made = binding.var
        var = identity(made)
        for read in reads[var]:
            read_at[base.get(read, read)] = at
        if isinstance(binding.value, relax.TupleGetItem):
            (of_all,) = reads[var]
            made_at[var] = made_at.get(of_all, at)
        elif var not in base:
            made_at[var] = at
        if var in made_at and not isinstance(made.ty, relax.TupleType):
            size[var] = size_bytes(made)
    for field in map(identity, returned_fields(func)):
        size.pop(base.get(field, field), None)
    change = [0] * (len(bindings) + 1)
    for var, made_bytes in size.items():
        at = made_at[var]
        change[at] += made_bytes
        change[read_at.get(var, at) + 1] -= made_bytes
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
