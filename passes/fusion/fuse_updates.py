"""Apply the update of a parameter where its gradient is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import ir, relax, tirx

from tvm_xengine.passes.fusion.merged_kernel import merged_kernel
from tvm_xengine.relax_ir.dataflow import returned_fields, single_block, with_bindings
from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR
from tvm_xengine.relax_ir.kernel_calls import KernelCall, kernel_call, same_bytes
from tvm_xengine.relax_ir.types import static_tensor
from tvm_xengine.scheduling.sizes import tensor_bytes


@tvm.transform.module_pass(opt_level=0, name="FuseUpdates")
class FuseUpdates:
    """Merge each kernel that makes a gradient with the update that alone reads it.

    .. code-block:: python

        dw = R.call_tir(conv_weight_gradient, (x, dy), ...)
        dx = R.call_tir(conv_data_gradient, (dy, w), ...)
        w_new = R.call_tir(sgd_update, (w, dw, lr), ...)

    becomes

    .. code-block:: python

        dx = R.call_tir(conv_data_gradient, (dy, w), ...)
        w_new = R.call_tir(conv_weight_gradient_sgd_update, (x, dy, w, lr), ...)

    so that the gradient takes no memory. The merged kernel still waits for every other reader of
    the old `w`, and what it reads must be kept until then: where that is more than the gradient,
    the two stay apart, and so do gradients that something else reads, such as a norm for clipping. An
    update may have several results, as those of momentum and Adam. Runs after `LowerToKernels`.

    Parameters
    ----------
    is_better
        Asked about a merged kernel and that of the gradient alone; None takes all.
    """

    def __init__(
        self,
        func_name: str = "train_step",
        is_better: Callable[[tirx.PrimFunc, tirx.PrimFunc], bool] | None = None,
    ) -> None:
        self.func_name = func_name
        self.is_better = is_better

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        mod = mod.clone()
        step = _Step.read(mod, self.func_name)
        if not (pairs := step.pairs()):
            return mod
        builder = relax.BlockBuilder(mod)
        bindings = list(single_block(mod[self.func_name]).bindings)
        known: dict[tuple[str, ...], ir.GlobalVar | None] = {}
        gone: set[int] = set()
        for gradient, update in pairs:
            merged = self._merged(mod, builder, known, gradient, update)
            if merged is not None:
                bindings[update.position] = relax.VarBinding(update.var, merged)
                gone.add(gradient.position)
        mod = builder.get()
        kept = [binding for position, binding in enumerate(bindings) if position not in gone]
        mod[self.func_name] = with_bindings(mod[self.func_name], kept)
        return relax.transform.Normalize()(mod)

    def _merged(
        self,
        mod: tvm.IRModule,
        builder: relax.BlockBuilder,
        known: dict[tuple[str, ...], ir.GlobalVar | None],
        gradient: KernelCall,
        update: KernelCall,
    ) -> ir.Call | None:
        """The call that does both, its kernel added to `builder`; None where that is no better."""
        at = next(k for k, arg in enumerate(update.args) if arg.same_as(gradient.var))
        key = (gradient.kernel.name_hint, update.kernel.name_hint, str(at))
        if key not in known:
            func = _merged_kernel(mod, gradient, update, at)
            is_taken = self.is_better is None or self.is_better(func, mod[gradient.kernel])
            known[key] = builder.add_func(func, f"{key[0]}_{key[1]}") if is_taken else None
        kernel = known[key]
        if kernel is None:
            return None
        args = [*gradient.args, *update.args[:at], *update.args[at + 1 :]]
        return relax.call_tir(kernel, relax.Tuple(args), _made(update))


def _merged_kernel(
    mod: tvm.IRModule, gradient: KernelCall, update: KernelCall, at: int
) -> tirx.PrimFunc:
    """One kernel for a gradient and the update whose input number `at` it is."""
    count = len(gradient.args)
    own = [*update.args[:at], *update.args[at + 1 :]]

    def body(
        inner: relax.BlockBuilder,
        called: Mapping[str, ir.GlobalVar],
        inputs: Sequence[relax.Var],
    ) -> relax.Expr:
        first, rest = relax.Tuple(list(inputs[:count])), list(inputs[count:])
        made = inner.emit(relax.call_tir(called["gradient"], first, gradient.outputs[0]))
        second = relax.Tuple([*rest[:at], made, *rest[at:]])
        return inner.emit(relax.call_tir(called["update"], second, _made(update)))

    pairs = [int(k) for k in mod[update.kernel].attrs[INPLACE_ATTR]]
    places = [count + old - (at < old) for old in pairs[1::2]]
    inplace = [k for pair in zip(pairs[::2], places, strict=True) for k in pair]
    kernels = {"gradient": mod[gradient.kernel], "update": mod[update.kernel]}
    types = [arg.ty for arg in (*gradient.args, *own)]
    return merged_kernel(kernels, types, body, inplace)


def _made(call: KernelCall) -> relax.Type | list[relax.Type]:
    """Types of the results, as ``call_tir`` takes them."""
    return call.outputs[0] if len(call.outputs) == 1 else list(call.outputs)


@dataclass(frozen=True)
class _Step:
    """The calls of a function, and who reads what.

    Attributes
    ----------
    base
        For each view the variable whose bytes it shows.
    readers
        Positions of the calls that read each variable or a view of it.
    made_at
        Position of the binding of each variable.
    params, returned
        Variables that the function is given and returns.
    items
        For each variable with several results the names of these.
    """

    mod: tvm.IRModule
    calls: Mapping[relax.Var, KernelCall]
    base: Mapping[relax.Var, relax.Var]
    readers: Mapping[relax.Var, Sequence[int]]
    made_at: Mapping[relax.Var, int]
    params: frozenset[relax.Var]
    returned: frozenset[relax.Var]
    items: Mapping[relax.Var, frozenset[relax.Var]]

    @classmethod
    def read(cls, mod: tvm.IRModule, func_name: str) -> _Step:
        bindings = single_block(mod[func_name]).bindings
        found = (kernel_call(k, binding) for k, binding in enumerate(bindings))
        calls = {call.var: call for call in found if call is not None}
        base = same_bytes(bindings)
        readers: dict[relax.Var, list[int]] = {}
        for call in calls.values():
            for arg in call.args:
                readers.setdefault(base.get(arg, arg), []).append(call.position)
        returned = frozenset(base.get(field, field) for field in returned_fields(mod[func_name]))
        params = frozenset(mod[func_name].params)
        made_at = {binding.var: k for k, binding in enumerate(bindings)}
        items: dict[relax.Var, frozenset[relax.Var]] = {}
        for binding in bindings:
            if isinstance(binding.value, relax.TupleGetItem):
                whole = binding.value.tuple_value
                items[whole] = items.get(whole, frozenset()) | {binding.var}
        return cls(mod, calls, base, readers, made_at, params, returned, items)

    def pairs(self) -> list[tuple[KernelCall, KernelCall]]:
        """Gradients and updates that are worth merging."""
        found = []
        for update in self.calls.values():
            pairs = self._inplace(update)
            if pairs[::2] != [*range(len(update.outputs))] or not self._is_returned(update):
                continue
            old = [update.args[at] for at in pairs[1::2]]
            for arg in update.args:
                gradient = self.calls.get(arg)
                if gradient is not None and self._may_merge(gradient, update, old):
                    found.append((gradient, update))
                    break
        return found

    def _inplace(self, call: KernelCall) -> list[int]:
        attrs = self.mod[call.kernel].attrs
        return [int(k) for k in attrs.get(INPLACE_ATTR, ())] if attrs else []

    def _is_returned(self, update: KernelCall) -> bool:
        """Whether all that it makes is new state."""
        return self.items.get(update.var, {update.var}) <= self.returned

    def _may_merge(
        self, gradient: KernelCall, update: KernelCall, old: Sequence[relax.Expr]
    ) -> bool:
        var = gradient.var
        if len(gradient.outputs) != 1 or self._inplace(gradient) or var in self.returned:
            return False
        if list(self.readers[var]) != [update.position] or var in self.base.values():
            return False
        if any(_shape(var.ty) != _shape(ty) for ty in update.outputs):
            return False
        return self._kept_longer_bytes(gradient, update, old) <= _bytes(var)

    def _kept_longer_bytes(
        self, gradient: KernelCall, update: KernelCall, old: Sequence[relax.Expr]
    ) -> int:
        """Bytes that the gradient's kernel reads and nothing else needs as long as the old values."""
        args = {self.base.get(arg, arg) for arg in gradient.args}
        ready = max([self.made_at.get(arg, -1) for arg in args])
        own = (gradient.position, update.position)
        readers = {at for value in old for at in self._readers_of(value)}
        later = [at for at in readers if at > ready and at not in own]
        total = 0
        for arg in args - self.params if later else ():
            others = [at for at in self._readers_of(arg) if at != gradient.position]
            if max(others, default=-1) < max(later):
                total += _bytes(arg)
        return total

    def _readers_of(self, var: relax.Var) -> Sequence[int]:
        return self.readers[self.base.get(var, var)]


def _bytes(var: relax.Var) -> int:
    return tensor_bytes(*static_tensor(var.name, var.ty))


def _shape(ty: relax.Type) -> tuple[int, ...]:
    return static_tensor("a result", ty)[0]
