"""Turn hints on devices and checkpoints into pinned and repeated calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import tvm
import tvm_ffi
from tvm import ir, relax

from tvm_xengine.passes.lowering.name_bindings_by_kernel import is_anonymous, unused_name
from tvm_xengine.passes.repeat_for_later_use import RepeatForLaterUse
from tvm_xengine.relax_ir.dataflow import single_block, with_bindings
from tvm_xengine.relax_ir.hints import (
    END_CHECKPOINT,
    HINT_ON_DEVICE,
    HintedDevice,
    hint_of,
    write_places,
)


@tvm.transform.module_pass(opt_level=0, name="ResolveHints")
class ResolveHints:
    """Replace hints by their effects.

    .. code-block:: python

        a = R.matmul(x, w)
        b = R.hint_on_device(a, R.device(1, 1))
        c = R.grad.start_checkpoint(b)
        d = R.exp(c)
        e = R.grad.end_checkpoint(d)
        loss = R.sum(e)
        w_grad = R.matmul(y, d)

    becomes

    .. code-block:: python

        a = R.matmul(x, w)          # the function's attribute says: on device (1, 1)
        d = R.exp(a)
        loss = R.sum(d)
        d_recomputed = R.exp(a)
        w_grad = R.matmul(y, d_recomputed)

    ``R.hint_on_device`` gives a place to the call that makes a value, or, where the value is an
    input, to the calls that read what the hint returns. What lies between ``start_checkpoint`` and
    ``end_checkpoint`` is computed again for its uses after the first result of the function, the
    loss. Nothing may merge equal expressions afterwards.
    """

    def __init__(self, func_name: str) -> None:
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        name = self.func_name
        if not any(hint_of(binding.value) for binding in single_block(mod[name]).bindings):
            return mod
        clean = [
            relax.transform.CanonicalizeBindings(),
            relax.transform.DeadCodeElimination([name]),
        ]
        mod = tvm.transform.Sequential(clean)(mod).clone()
        removal = _Removal(mod[name])
        mod[name] = removal.run()
        again = RepeatForLaterUse(name, removal.repeated)
        return tvm.transform.Sequential([again])(relax.transform.Normalize()(mod))


class _Removal:
    """Removes the hints of a function, and gives names of their own to the calls they speak of.

    Attributes
    ----------
    repeated
        Names of the calls between the starts and the ends of checkpoints.
    """

    def __init__(self, func: relax.Function) -> None:
        self.func = func
        self.bindings = single_block(func).bindings
        self.value = {binding.var: binding.value for binding in self.bindings}
        self.repeated: frozenset[str] = frozenset()

    def run(self) -> relax.Function:
        """The function without hints, with the places that they gave."""
        places = {
            var: HintedDevice(int(binding.value.attrs.device_type), int(binding.value.attrs.index))
            for binding in self.bindings
            if hint_of(binding.value) == HINT_ON_DEVICE
            for var in self._calls_meant(binding)
        }
        ends = [b.value.args[0] for b in self.bindings if hint_of(b.value) == END_CHECKPOINT]
        inside = self._inside(ends)
        names = self._names([*places, *inside])
        self.repeated = frozenset(names[var] for var in inside)
        func = self._rewritten(names)
        return write_places(func, {names[var]: place for var, place in places.items()})

    def _calls_meant(self, hint: relax.Binding) -> list[relax.Var]:
        """The call that makes the hinted value; of an input, the calls that read it by this hint."""
        maker = self._call_of(hint.value.args[0])
        if maker is not None:
            return [maker]
        return [
            binding.var
            for binding in self.bindings
            if self._is_call(binding.var)
            and any(self._hinted_by(read, hint.var) for read in _used(binding.value))
        ]

    def _call_of(self, value: relax.Expr) -> relax.Var | None:
        """The variable of the call that makes a value, through hints, items and other names."""
        while value in self.value and not self._is_call(value):
            made = self.value[value]
            if isinstance(made, relax.TupleGetItem):
                value = made.tuple_value
            else:
                value = made.args[0] if isinstance(made, relax.Call) else made
        return value if value in self.value else None

    def _hinted_by(self, read: relax.Var, hint: relax.Var) -> bool:
        """Whether a variable is the result of a hint, or of further hints on it."""
        while not read.same_as(hint) and read in self.value and hint_of(self.value[read]):
            read = self.value[read].args[0]
        return bool(read.same_as(hint))

    def _is_call(self, var: relax.Expr) -> bool:
        value = self.value.get(var)
        return isinstance(value, relax.Call) and hint_of(value) is None

    def _inside(self, ends: Sequence[relax.Expr]) -> list[relax.Var]:
        """The calls that lead to the ends of checkpoints, back to their starts."""
        found: dict[relax.Var, None] = {}
        waiting = list(ends)
        while waiting:
            var = waiting.pop()
            if var not in self.value or var in found:
                continue
            name = hint_of(self.value[var])
            if name is None or name == HINT_ON_DEVICE:
                found[var] = None
                waiting += _used(self.value[var])
        return [var for var in found if self._is_call(var)]

    def _names(self, wanted: Iterable[relax.Var]) -> dict[relax.Var, str]:
        """Names that are taken by nothing else and that lowering keeps."""
        taken = {var.name for var in (*self.func.params, *self.value)}
        names: dict[relax.Var, str] = {}
        for var in dict.fromkeys(wanted):
            same = sum(other.name == var.name for other in (*self.func.params, *self.value))
            if same == 1 and not is_anonymous(var.name):
                names[var] = var.name
                continue
            call = self.value[var]
            plain = call.op.name if isinstance(call.op, ir.Op) else str(call.op)
            if plain == "relax.call_tir":
                plain = call.args[0].name_hint
            names[var] = unused_name(f"{plain.rpartition('.')[2]}_hinted", taken)
            taken.add(names[var])
        return names

    def _rewritten(self, names: Mapping[relax.Var, str]) -> relax.Function:
        """The function with other names for some variables, and operands in place of hints."""
        now: dict[relax.Var, relax.Expr] = {}
        leaving = self._leaving()

        def newest(var: relax.Var) -> relax.Expr:
            return now.get(var, var)

        entries = [(ir.expr.Var, newest), (relax.DataflowVar, newest)]
        kept = []
        for binding in self.bindings:
            var, value = binding.var, tvm_ffi.structural_map(binding.value, entries)
            if hint_of(value):
                now[var] = value.args[0]
                continue
            if var in names or var in leaving:
                kind = relax.Var if var in leaving else type(var)
                now[var] = kind(names.get(var, var.name), var.ty)
            kept.append(relax.VarBinding(newest(var), value))
        body = tvm_ffi.structural_map(self.func.body.body, entries)
        func = with_bindings(self.func, kept)
        return relax.Function(
            func.params,
            relax.SeqExpr(func.body.blocks, body),
            func.ret_ty,
            func.is_pure,
            func.attrs,
        )

    def _leaving(self) -> set[relax.Expr]:
        """What hints return that the function returns, so that it must leave the block."""
        found = set()
        for binding in self.bindings:
            value = binding.var
            while value in self.value and hint_of(self.value[value]):
                value = self.value[value].args[0]
            if not isinstance(binding.var, relax.DataflowVar):
                found.add(value)
        return found


def _used(value: relax.Expr) -> list[relax.Var]:
    return list(relax.analysis.free_vars(value))
