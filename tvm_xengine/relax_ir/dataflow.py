"""Read and rebuild the one dataflow block of a function."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import tvm
from tvm import relax

from tvm_xengine.errors import UnsupportedModuleError


def single_block(func: relax.Function) -> relax.DataflowBlock:
    """Return the only block of `func`, which must be a dataflow block.

    Raises
    ------
    UnsupportedModuleError
        When the body has another shape.
    """
    blocks = func.body.blocks if isinstance(func.body, relax.SeqExpr) else []
    if len(blocks) != 1 or not isinstance(blocks[0], relax.DataflowBlock):
        found = [type(block).__name__ for block in blocks]
        raise UnsupportedModuleError(
            f"expected a function of one dataflow block, found {found}; "
            "run relax.transform.ConvertToDataflow first"
        )
    return blocks[0]


def with_bindings(
    func: relax.Function,
    bindings: Sequence[relax.Binding],
    params: Sequence[relax.Var] | None = None,
) -> relax.Function:
    """Return `func` with other bindings in its block, and with other parameters unless None.

    The result's new expressions have no types until ``relax.transform.Normalize`` ran.
    """
    body = relax.SeqExpr([relax.DataflowBlock(list(bindings))], func.body.body)
    new_params = func.params if params is None else list(params)
    return relax.Function(new_params, body, func.ret_ty, func.is_pure, func.attrs)


def with_results(
    func: relax.Function, bindings: Sequence[relax.Binding], results: Sequence[relax.Expr]
) -> relax.Function:
    """Return `func` with other bindings in its block, and a tuple of `results` as what it returns.

    The result's new expressions have no types until ``relax.transform.Normalize`` ran.
    """
    taken = {var.name for var in (*func.params, *(binding.var for binding in bindings))}
    name = next(name for k in count() if (name := f"results_{k}" if k else "results") not in taken)
    result = relax.Var(name, relax.TupleType([one.ty for one in results]))
    block = relax.DataflowBlock([*bindings, relax.VarBinding(result, relax.Tuple(list(results)))])
    body = relax.SeqExpr([block], result)
    return relax.Function(func.params, body, result.ty, func.is_pure, func.attrs)


def step_function(mod: tvm.IRModule, func_name: str) -> relax.Function:
    """The Relax function `func_name`, checked to be a single dataflow block."""
    names = [gvar.name_hint for gvar, f in mod.functions.items() if isinstance(f, relax.Function)]
    if func_name not in names:
        raise UnsupportedModuleError(
            f"expected a Relax function {func_name!r}, the module has {sorted(names)}"
        )
    func = mod[func_name]
    single_block(func)
    return func


def returned_fields(func: relax.Function) -> tuple[relax.Expr, ...]:
    """The expressions that the function returns, a tuple taken apart."""
    result = func.body.body
    if isinstance(result, relax.Tuple):
        return tuple(result.fields)
    for binding in single_block(func).bindings:
        if binding.var.same_as(result) and isinstance(binding.value, relax.Tuple):
            return tuple(binding.value.fields)
    return (result,)
