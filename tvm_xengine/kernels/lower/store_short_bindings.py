"""Keep the values of bfloat16 that have names in memory of one element each, or widen them by their bits."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_xengine.kernels.lower.search import any_part


@tirx.transform.prim_func_pass(opt_level=0, name="StoreShortBindings")
class StoreShortBindings:
    """Store what a variable is bound to where bfloat16 is part of it.

    .. code-block:: python

        v: T.let[T.bfloat16] = T.max(y[0], x[i])

    becomes

    .. code-block:: python

        v = T.alloc_buffer((1,), "bfloat16")
        v[0] = T.max(y[0], x[i])

    ``tirx.BF16ComputeLegalize``, which runs next, rewrites what is stored and passes over what is
    bound: the bits of bound bfloat16 elements would be compared and converted as integers. In the
    value of a let, which is an expression, conversions to float32 are written as that pass does:

    .. code-block:: python

        T.let(v, T.exp(T.Cast("float32", x[i])), v / (v + 2.0))

    becomes

    .. code-block:: python

        bits = T.Cast("uint32", T.reinterpret("uint16", x[i])) << 16
        T.let(v, T.exp(T.reinterpret("float32", bits)), v / (v + 2.0))

    Parameters
    ----------
    scope
        Where the elements lie: ``local`` in the threads of a GPU, ``global`` on a processor, which
        has the stack for them.
    """

    def __init__(self, scope: str) -> None:
        self.scope = scope

    def transform_function(
        self, func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        return func.with_body(_stored(func.body, self.scope))


def _stored(body: tirx.Stmt, scope: str) -> tirx.Stmt:
    loads: dict[ir.Var, ir.Expr] = {}

    def store(bind: tirx.Bind) -> tirx.Stmt:
        if not any_part(bind.value, _is_bfloat16):
            return bind
        place = tirx.decl_buffer((1,), str(bind.var.ty.dtype), name=bind.var.name, scope=scope)
        loads[bind.var] = place[0]
        return tirx.SeqStmt([tirx.AllocBuffer(place), tirx.BufferStore(place, bind.value, [0])])

    changed = tvm_ffi.structural_map(body, [(tirx.Bind, store), (tirx.Let, _let_of_bits)])
    return tvm_ffi.structural_map(changed, (ir.Var, lambda var: loads.get(var, var)))


def _let_of_bits(let: tirx.Let) -> tirx.Let:
    value = tvm_ffi.structural_map(let.value, (tirx.Cast, _widened))
    return tirx.Let(let.var, value, let.body, let.span)


def _widened(cast: tirx.Cast) -> ir.Expr:
    if str(cast.value.ty.dtype) != "bfloat16" or str(cast.ty.dtype) != "float32":
        return cast
    bits = tirx.reinterpret("uint16", cast.value).astype("uint32")
    return tirx.reinterpret("float32", bits << tirx.const(16, "uint32"))


def _is_bfloat16(part: object) -> bool:
    return isinstance(part, ir.Expr) and "bfloat16" in str(part.ty)
