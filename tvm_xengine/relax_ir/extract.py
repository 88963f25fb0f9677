"""Reads the op graph out of a lowered training step: the last line that knows TVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.relax_ir.dataflow import returned_fields, single_block, step_function
from tvm_xengine.relax_ir.kernel_attributes import inplace_pairs, kernel_hash
from tvm_xengine.relax_ir.kernel_calls import VIEW_OP
from tvm_xengine.relax_ir.signature import StepSignature
from tvm_xengine.relax_ir.types import static_tensor
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.sizes import round_up, tensor_bytes


@dataclass(frozen=True)
class Extraction:
    """The op graph of a function, and the kernel that each op calls.

    Attributes
    ----------
    kernels
        Name of the PrimFunc that each op calls, by op name.
    """

    graph: OpGraph
    kernels: Mapping[str, str]


@dataclass(frozen=True)
class _Call:
    name: str
    kernel: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def extract_graph(
    mod: tvm.IRModule, func_name: str = "train_step", *, alignment_bytes: int = 64
) -> Extraction:
    """The op graph of a function that `LowerToKernels` has made.

    Every binding must be a `R.call_tir`, an item of its tuple, or a view. Ops keep the order of
    the bindings, but an op that updates state in place comes right after the last op it must
    wait for: its inputs' producers and every other reader of the old value.

    Raises
    ------
    UnsupportedModuleError
        If the function is missing, is no single dataflow block, contains another kind of
        binding or a symbolic shape; the binding is named.
    """
    func = step_function(mod, func_name)
    reader = _Reader(mod, alignment_bytes)
    signature = StepSignature.read(func)
    for param, role in zip(func.params, signature.roles, strict=True):
        reader.add_tensor(param, role)
    for binding in single_block(func).bindings:
        reader.read(binding)
    fields = [reader.tensor_of(field) for field in returned_fields(func)]
    num_results = signature.num_results
    updates = _updates(func, reader, signature.updates, fields[num_results:])
    ops = _with_updates_early(reader.graph_ops(mod, updates), reader.base)
    graph = OpGraph(tuple(reader.tensors.values()), ops, tuple(fields[:num_results]))
    return Extraction(graph, {call.name: call.kernel for call in reader.calls})


class _Reader:
    def __init__(self, mod: tvm.IRModule, alignment_bytes: int) -> None:
        self.mod = mod
        self.alignment_bytes = alignment_bytes
        self.tensors: dict[str, Tensor] = {}
        self.calls: list[_Call] = []
        self.of_var: dict[relax.Var, str] = {}
        self.tuple_of_var: dict[relax.Var, tuple[str, ...]] = {}

    def add_tensor(self, var: relax.Var, role: Role, *, alias_of: str | None = None) -> None:
        self._add(var.name, var.ty, role, alias_of)
        self.of_var[var] = var.name

    def tensor_of(self, expr: relax.Expr) -> str:
        if isinstance(expr, relax.Var) and expr in self.of_var:
            return str(self.of_var[expr])
        if isinstance(expr, relax.TupleGetItem) and expr.tuple_value in self.tuple_of_var:
            return str(self.tuple_of_var[expr.tuple_value][int(expr.index)])
        raise UnsupportedModuleError(
            f"expected a variable, found {type(expr).__name__} {expr}; lift constants to parameters"
            " (LowerToKernels does)"
        )

    @property
    def base(self) -> Mapping[str, str]:
        """For each tensor the one whose bytes it occupies."""
        base: dict[str, str] = {}
        for tensor in self.tensors.values():  # a view comes after what it shows
            base[tensor.name] = tensor.name if tensor.alias_of is None else base[tensor.alias_of]
        return base

    def read(self, binding: relax.Binding) -> None:
        var, value = binding.var, binding.value
        op_name = value.op.name if _is_op_call(value) else ""
        if op_name == "relax.call_tir":
            self._read_call(var, value)
        elif op_name == VIEW_OP:
            self.add_tensor(var, Role.INTERMEDIATE, alias_of=self.tensor_of(value.args[0]))
        elif isinstance(value, relax.TupleGetItem) and value.tuple_value in self.tuple_of_var:
            self.of_var[var] = self.tuple_of_var[value.tuple_value][value.index]
        elif isinstance(value, relax.Var) and value in self.of_var:
            self.of_var[var] = self.of_var[value]
        elif isinstance(value, relax.Var) and value in self.tuple_of_var:
            self.tuple_of_var[var] = self.tuple_of_var[value]
        elif isinstance(value, relax.Tuple):
            self.tuple_of_var[var] = tuple(self.tensor_of(field) for field in value.fields)
        else:
            raise UnsupportedModuleError(
                f"{var.name} = {value}: expected a kernel call (R.call_tir), an item of one, or a"
                " view; run LowerToKernels first"
            )

    def graph_ops(self, mod: tvm.IRModule, updates: Mapping[str, str]) -> tuple[Op, ...]:
        hashes = {name: kernel_hash(mod[name]) for name in {call.kernel for call in self.calls}}
        ops = []
        for call in self.calls:
            pairs = tuple((out, updates[out]) for out in call.outputs if out in updates)
            self._check_pairs(mod, call, pairs)
            ops.append(
                Op(
                    name=call.name,
                    kernel=hashes[call.kernel],
                    inputs=call.inputs,
                    outputs=call.outputs,
                    updates=pairs,
                    recomputable=not pairs,
                )
            )
        return tuple(ops)

    def _check_pairs(
        self, mod: tvm.IRModule, call: _Call, pairs: Sequence[tuple[str, str]]
    ) -> None:
        allowed = {(pair.output, pair.input) for pair in inplace_pairs(mod[call.kernel])}
        for output, state in pairs:
            position = call.outputs.index(output)
            if not any(o == position and call.inputs[j] == state for o, j in allowed):
                raise UnsupportedModuleError(
                    f"op {call.name} makes the new value of {state}, but its kernel {call.kernel} does"
                    " not declare (tvm_xengine.inplace) that it may write over it"
                )
        if len(allowed) > len(pairs):
            raise UnsupportedModuleError(
                f"the kernel {call.kernel} of op {call.name} declares (tvm_xengine.inplace) that it"
                " writes over an input that the op does not replace; run WriteOverState, or remove"
                " the attribute"
            )

    def _read_call(self, var: relax.Var, value: relax.Call) -> None:
        kernel = value.args[0].name_hint
        arguments = value.args[1]
        inputs = tuple(self.tensor_of(field) for field in arguments.fields)
        if isinstance(var.ty, relax.TupleType):
            outputs = tuple(f"{var.name}.{k}" for k in range(len(var.ty.fields)))
            for name, ty in zip(outputs, var.ty.fields, strict=True):
                self._add(name, ty, Role.INTERMEDIATE, None)
            self.tuple_of_var[var] = outputs
        else:
            outputs = (var.name,)
            self.add_tensor(var, Role.INTERMEDIATE)
        self.calls.append(_Call(var.name, kernel, inputs, outputs))

    def _add(self, name: str, ty: relax.Type, role: Role, alias_of: str | None) -> None:
        if name in self.tensors:
            raise UnsupportedModuleError(
                f"two variables are called {name!r}; names must be unique, because schedules use them"
            )
        shape, dtype = static_tensor(name, ty)
        size_bytes = round_up(tensor_bytes(shape, dtype), self.alignment_bytes)
        self.tensors[name] = Tensor(name, size_bytes, role, alias_of, shape, dtype)


def _is_op_call(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)


def _updates(
    func: relax.Function, reader: _Reader, positions: Sequence[int], fields: Sequence[str]
) -> dict[str, str]:
    """For each returned new state, the state tensor that it replaces."""
    updates = {}
    for field, position in zip(fields, positions, strict=True):
        state = reader.of_var[func.params[position]]
        if field != state:
            updates[field] = state
    return updates


def _with_updates_early(ops: Sequence[Op], base: Mapping[str, str]) -> tuple[Op, ...]:
    """The ops in the same order, each update moved to where it may run first.

    Where an op reads the result of an update, the given order is kept.
    """
    updates = [op for op in ops if op.updates]
    plain = [op for op in ops if not op.updates]
    made_by_update = {name for op in updates for name in op.outputs}
    if any(base[name] in made_by_update for op in ops for name in op.inputs):
        return tuple(ops)
    last_touch: dict[str, int] = {}
    for k, op in enumerate(plain):
        for name in (*op.inputs, *op.outputs):
            last_touch[base[name]] = k
    made_at = {name: k for k, op in enumerate(plain) for name in op.outputs}
    after: dict[int, list[Op]] = {}
    runs_at: dict[str, int] = {}  # position of the last update that reads each tensor
    for op in updates:
        written_over = {base[state] for _, state in op.updates}
        waits_for = [made_at.get(base[name], -1) for name in op.inputs]
        waits_for += [last_touch.get(state, -1) for state in written_over]
        # Other updates that read the old value (of a step counter, say) were given before this one.
        waits_for += [runs_at.get(state, -1) for state in written_over]
        position = max(waits_for)
        after.setdefault(position, []).append(op)
        for name in op.inputs:
            runs_at[base[name]] = max(runs_at.get(base[name], -1), position)
    ordered = list(after.get(-1, []))
    for k, op in enumerate(plain):
        ordered += [op, *after.get(k, [])]
    return tuple(ordered)
