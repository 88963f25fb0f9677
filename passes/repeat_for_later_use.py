"""Compute chosen tensors a second time for their uses after the loss."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import tvm
import tvm_ffi
from tvm import ir, relax

from tvm_xengine.relax_ir.dataflow import returned_fields, single_block, with_bindings
from tvm_xengine.relax_ir.kernel_calls import is_view

_SUFFIX = "_recomputed"


@tvm.transform.module_pass(opt_level=0, name="RepeatForLaterUse")
class RepeatForLaterUse:
    """Repeat calls before the first use of their results that follows the loss.

    With ``a`` and ``b`` to be repeated, the block

    .. code-block:: python

        a = R.call_tir(f, (x,), ...)
        b = R.call_tir(g, (a,), ...)
        loss = R.call_tir(l, (b, labels), ...)
        d = R.call_tir(h, (b, labels), ...)
        e = R.call_tir(k, (a, d), ...)

    becomes

    .. code-block:: python

        a = R.call_tir(f, (x,), ...)
        b = R.call_tir(g, (a,), ...)
        loss = R.call_tir(l, (b, labels), ...)
        a_recomputed = R.call_tir(f, (x,), ...)
        b_recomputed = R.call_tir(g, (a_recomputed,), ...)
        d = R.call_tir(h, (b_recomputed, labels), ...)
        e = R.call_tir(k, (a_recomputed, d), ...)

    so that ``a`` and ``b`` need no memory while the loss is computed. Nothing may merge equal
    expressions afterwards. Calls of other operators are repeated in the same way.

    Parameters
    ----------
    names
        Of the calls; those that are not among `repeatable_calls` stay as they are.
    """

    def __init__(self, func_name: str, names: AbstractSet[str]) -> None:
        self.func_name = func_name
        self.names = names

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        mod = mod.clone()
        mod[self.func_name] = _Repetition(mod[self.func_name], self.names).run()
        return relax.transform.Normalize()(mod)


def repeatable_calls(
    func: relax.Function, wanted: AbstractSet[str] | None = None
) -> frozenset[str]:
    """Which of the calls `wanted` (None is all) a repetition of them would make again.

    Those before the loss whose results are used after it, or by another repetition, and are not
    returned: what the function returns stays in memory anyway.
    """
    bindings = single_block(func).bindings
    end = _loss_position(func)
    source = _sources(bindings)
    returned = {source.get(var, var) for var in map(_returned_var, returned_fields(func))}
    used_late: set[relax.Var] = set()
    names = set()
    for position in reversed(range(len(bindings))):
        var, value = bindings[position].var, bindings[position].value
        is_repeated = position <= end and var in used_late and _is_call(value)
        is_repeated &= var not in returned and (wanted is None or var.name in wanted)
        if is_repeated:
            names.add(var.name)
        if position > end or is_repeated:
            used_late |= {source.get(used, used) for used in _used(value)}
    return frozenset(names)


class _Repetition:
    """Emits a function's bindings, and repetitions before the first late use."""

    def __init__(self, func: relax.Function, names: AbstractSet[str]) -> None:
        self.func = func
        self.bindings = single_block(func).bindings
        source = _sources(self.bindings)
        names = repeatable_calls(func, names)
        self.end = _loss_position(func)
        self.early = {
            binding.var: binding
            for binding in self.bindings[: self.end + 1]
            if source.get(binding.var, binding.var).name in names
        }
        self.again: dict[relax.Var, relax.Var] = {}
        self.emitted: list[relax.Binding] = []

    def run(self) -> relax.Function:
        """The function with repetitions."""
        for position, binding in enumerate(self.bindings):
            value = binding.value if position <= self.end else self._with_repeated(binding.value)
            self.emitted.append(relax.VarBinding(binding.var, value))
        return with_bindings(self.func, self.emitted)

    def _with_repeated(self, value: relax.Expr) -> relax.Expr:
        for var in _used(value):
            if var in self.early and var not in self.again:
                repeated = self._with_repeated(self.early[var].value)
                self.again[var] = type(var)(f"{var.name}{_SUFFIX}", var.ty)
                self.emitted.append(relax.VarBinding(self.again[var], repeated))

        def newest(var: relax.Var) -> relax.Var:
            return self.again.get(var, var)

        return tvm_ffi.structural_map(value, [(ir.expr.Var, newest), (relax.DataflowVar, newest)])


def _loss_position(func: relax.Function) -> int:
    """Position of the call that makes the function's first result; -1 if it is an input."""
    bindings = single_block(func).bindings
    first = _returned_var(returned_fields(func)[0])
    var = _sources(bindings).get(first, first)
    return next((k for k, binding in enumerate(bindings) if binding.var.same_as(var)), -1)


def _sources(bindings: list[relax.Binding]) -> dict[relax.Var, relax.Var]:
    """For each item, view or other name of a call's result, the variable of that call."""
    source: dict[relax.Var, relax.Var] = {}
    calls: set[relax.Var] = set()
    for binding in bindings:
        if _is_call(binding.value):
            calls.add(binding.var)
            continue
        used = [source.get(var, var) for var in _used(binding.value)]
        if len(used) == 1 and used[0] in calls:
            source[binding.var] = used[0]
    return source


def _is_call(value: relax.Expr) -> bool:
    return isinstance(value, ir.Call) and not is_view(value)


def _returned_var(field: relax.Expr) -> relax.Var:
    return field.tuple_value if isinstance(field, relax.TupleGetItem) else field


def _used(value: relax.Expr) -> list[relax.Var]:
    """The variables of the function that an expression reads, each once."""
    return list(dict.fromkeys(relax.analysis.free_vars(value)))
