"""Write new state over the bytes of the state that it replaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import tvm
from tvm import ir, relax, te, tirx

from tvm_xengine.kernels.inplace import num_outputs, why_not_inplace
from tvm_xengine.kernels.te.inplace import writes_over
from tvm_xengine.passes.lowering.name_bindings_by_kernel import unused_name
from tvm_xengine.relax_ir.dataflow import returned_fields, single_block, with_results
from tvm_xengine.relax_ir.kernel_attributes import (
    INPLACE_ATTR,
    KERNEL_ATTR,
    OPTIONS_ATTR,
    PARTS_ATTR,
    inplace_pairs,
)
from tvm_xengine.relax_ir.kernel_calls import KernelCall, kernel_call, same_bytes
from tvm_xengine.relax_ir.signature import StepSignature
from tvm_xengine.relax_ir.types import static_tensor
from tvm_xengine.training.emitter import Kernel, kernel_function

_OF_LIBRARIES = (KERNEL_ATTR, OPTIONS_ATTR, PARTS_ATTR)
"""What says to libraries which calls of theirs compute the same; those may read what they wrote."""


@writes_over((0, 0))
def replaced(old: te.Tensor, new: te.Tensor) -> te.Tensor:
    """The elements of `new`, in the place of `old`."""
    return te.compute(old.shape, lambda *i: new(*i), name="replaced")


def copied(value: te.Tensor) -> te.Tensor:
    """The same elements."""
    return te.compute(value.shape, lambda *i: value(*i), name="copied")


@tvm.transform.module_pass(opt_level=0, name="WriteOverState")
class WriteOverState:
    """Mark the kernels that make new state as writing it over the old, or add one that does.

    .. code-block:: python

        g = R.call_tir(gradient, (x, w), ...)
        w_new = R.call_tir(subtract, (w, g), ...)
        v_new = R.call_tir(matmul, (v, m), ...)

    becomes, where ``w_new`` replaces ``w`` and ``v_new`` replaces ``v``,

    .. code-block:: python

        g = R.call_tir(gradient, (x, w), ...)
        w_new = R.call_tir(subtract, (w, g), ...)        # with tvm_xengine.inplace
        v_new = R.call_tir(matmul, (v, m), ...)
        v_replaced = R.call_tir(replaced, (v, v_new), ...)

    A kernel may write over the state if it reads each element before it writes it, and no other
    reader of the old state has to wait for it. New state that is an input, or a view of one, is
    copied first. Kernels that are marked already stay, where their calls replace the state that they
    write over; other calls of them get a kernel without the mark. Runs after `LowerToKernels`.
    """

    def __init__(self, func_name: str = "train_step") -> None:
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        mod = _without_false_marks(mod, self.func_name)
        step = _Step.read(mod, self.func_name)
        unmarked = [update for update in step.updates() if not step.is_marked(update)]
        if not unmarked:
            return mod
        rewriting = _Rewriting(mod.clone(), self.func_name, step)
        for update in unmarked:
            rewriting.write(update)
        return rewriting.finished()


@dataclass(frozen=True)
class _Update:
    """New state at a position of the results, and the parameter that it replaces."""

    position: int
    new: relax.Expr
    state: relax.Var


@dataclass(frozen=True)
class _Step:
    """A function of kernel calls, and what replaces its state."""

    mod: tvm.IRModule
    func: relax.Function
    calls: Mapping[relax.Var, KernelCall]
    base: Mapping[relax.Expr, relax.Var]

    @classmethod
    def read(cls, mod: tvm.IRModule, func_name: str) -> _Step:
        func = mod[func_name]
        bindings = single_block(func).bindings
        found = (kernel_call(at, binding) for at, binding in enumerate(bindings))
        return cls(mod, func, {c.var: c for c in found if c is not None}, same_bytes(bindings))

    @cached_property
    def items(self) -> Mapping[relax.Expr, relax.TupleGetItem]:
        """What takes one of several results out."""
        bindings = single_block(self.func).bindings
        return {b.var: b.value for b in bindings if isinstance(b.value, relax.TupleGetItem)}

    @cached_property
    def reads(self) -> Mapping[relax.Var, Set[relax.Expr]]:
        """The memory that each binding reads."""
        return {
            binding.var: {self.base.get(v, v) for v in relax.analysis.free_vars(binding.value)}
            for binding in single_block(self.func).bindings
        }

    @cached_property
    def users(self) -> Mapping[relax.Expr, Sequence[relax.Var]]:
        """The bindings that read each memory."""
        found: dict[relax.Expr, list[relax.Var]] = {}
        for user, read in self.reads.items():
            for memory in read:
                found.setdefault(memory, []).append(user)
        return found

    def updates(self) -> list[_Update]:
        """The results that replace state by something else."""
        signature = StepSignature.read(self.func)
        fields = returned_fields(self.func)
        states = zip(signature.updates, range(signature.num_results, len(fields)), strict=True)
        made = [_Update(at, fields[at], self.func.params[state]) for state, at in states]
        return [update for update in made if not update.new.same_as(update.state)]

    def is_marked(self, update: _Update) -> bool:
        """Whether the kernel that makes the new state says that it writes over the old."""
        call, output = self.maker(update.new)
        return call is not None and any(
            pair.output == output and call.args[pair.input].same_as(update.state)
            for pair in inplace_pairs(self.mod[call.kernel])
        )

    def falsely_marked(self) -> list[KernelCall]:
        """Calls whose kernels write over what is no state that they replace."""
        true: dict[relax.Var, int] = {}
        for update in self.updates():
            if self.is_marked(update) and (call := self.maker(update.new)[0]) is not None:
                true[call.var] = true.get(call.var, 0) + 1
        return [
            call
            for var, call in self.calls.items()
            if len(inplace_pairs(self.mod[call.kernel])) > true.get(var, 0)
        ]

    def maker(self, value: relax.Expr) -> tuple[KernelCall | None, int]:
        """The call that makes a value, and as which of its results."""
        value = self.items.get(value, value)
        if isinstance(value, relax.TupleGetItem):
            return self.calls.get(value.tuple_value), int(value.index)
        return self.calls.get(value), 0

    def input_to_write_over(
        self, update: _Update, waiting: Mapping[relax.Var, relax.Var]
    ) -> int | None:
        """Which input the kernel of an update may write over; None where it may not.

        Parameters
        ----------
        waiting
            For each state that is written over already, the call that does, which waits until all
            others have read the old state.
        """
        call, _ = self.maker(update.new)
        fields = [field for field in returned_fields(self.func) if field.same_as(update.new)]
        if call is None or len(call.outputs) != 1 or len(fields) != 1:
            return None
        kernel = self.mod[call.kernel]
        at = next((k for k, arg in enumerate(call.args) if arg.same_as(update.state)), None)
        if at is None or INPLACE_ATTR in (kernel.attrs or {}) or num_outputs(kernel) != 1:
            return None
        if self._would_wait_for_itself(call.var, update.state, waiting):
            return None
        return at if why_not_inplace(kernel, at, len(call.args)) is None else None

    def _would_wait_for_itself(
        self, writer: relax.Var, state: relax.Var, waiting: Mapping[relax.Var, relax.Var]
    ) -> bool:
        """Whether a reader of the old state runs only after the call that would write over it."""
        behind, next_ones = {writer}, [writer]
        while next_ones:
            var = next_ones.pop()
            later = set(self.users.get(var, ()))
            later |= {other for old, other in waiting.items() if old in self.reads[var]}
            next_ones += later - behind
            behind |= later
        return any(state in self.reads[var] for var in behind - {writer})


def _without_false_marks(mod: tvm.IRModule, func_name: str) -> tvm.IRModule:
    """The module in which kernels are marked only where they replace state.

    A batch norm that is called twice updates the statistics that its first call has made.
    """
    step = _Step.read(mod, func_name)
    if not (calls := step.falsely_marked()):
        return mod
    rewriting = _Rewriting(mod.clone(), func_name, step)
    for call in calls:
        rewriting.rebind(call, mod[call.kernel].without_attr(INPLACE_ATTR))
    return rewriting.finished()


class _Rewriting:
    """Changes calls of a function and adds others at its end."""

    def __init__(self, mod: tvm.IRModule, func_name: str, step: _Step) -> None:
        self.builder = relax.BlockBuilder(mod)
        self.func_name = func_name
        self.step = step
        self.bindings = list(single_block(step.func).bindings)
        self.fields = list(returned_fields(step.func))
        self.taken = {var.name for var in (*step.func.params, *(b.var for b in self.bindings))}
        self.waiting = {
            update.state: maker.var
            for update in step.updates()
            if step.is_marked(update) and (maker := step.maker(update.new)[0]) is not None
        }
        self.copies: list[relax.Binding] = []
        self.last: list[relax.Binding] = []

    def write(self, update: _Update) -> None:
        """Let the new state of an update be written over the old."""
        call, _ = self.step.maker(update.new)
        at = self.step.input_to_write_over(update, self.waiting)
        if call is not None and at is not None:
            self.waiting[update.state] = call.var
            kernel = self.step.mod[call.kernel].with_attr(INPLACE_ATTR, [0, at])
            for name in (*_OF_LIBRARIES, "tirx.noalias"):
                kernel = kernel.without_attr(name)
            self.rebind(call, kernel)
            return
        new = update.new
        if self.step.base.get(new, new) in set(self.step.func.params):
            new = self._call(copied, [new], f"{update.state.name}_copied", self.copies)
        name = f"{update.state.name}_replaced"
        self.fields[update.position] = self._call(replaced, [update.state, new], name, self.last)

    def finished(self) -> tvm.IRModule:
        """The module with the function rewritten."""
        mod = self.builder.get()
        bindings = [*self.bindings, *self.copies, *self.last]
        mod[self.func_name] = with_results(self.step.func, bindings, self.fields)
        return relax.transform.DeadCodeElimination([self.func_name])(
            relax.transform.Normalize()(mod)
        )

    def rebind(self, call: KernelCall, kernel: tirx.PrimFunc) -> None:
        """Let a call run another kernel."""
        private = kernel.without_attr("global_symbol")  # the module has the symbol already
        symbol = self.builder.add_func(private, call.kernel.name_hint)
        outputs = list(call.outputs) if len(call.outputs) > 1 else call.outputs[0]
        made = relax.call_tir(symbol, relax.Tuple(list(call.args)), outputs)
        self.bindings[call.position] = relax.VarBinding(call.var, made)

    def _call(
        self, kernel: Kernel, inputs: list[relax.Expr], name: str, into: list[relax.Binding]
    ) -> relax.Var:
        shapes = tuple(static_tensor(name, value.ty) for value in inputs)
        func, types = kernel_function(kernel, shapes, {})
        symbol: ir.GlobalVar = self.builder.add_func(func, kernel.__name__)
        name = unused_name(name, self.taken)
        self.taken.add(name)
        var = relax.DataflowVar(name, types[0])
        into.append(relax.VarBinding(var, relax.call_tir(symbol, relax.Tuple(inputs), types[0])))
        return var
