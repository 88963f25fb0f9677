"""Choose fusions and the order of kernels with regard to memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import ir, relax

from tvm_xengine.relax_ir.dataflow import returned_fields, single_block, with_bindings
from tvm_xengine.relax_ir.kernel_attributes import inplace_pairs
from tvm_xengine.relax_ir.kernel_calls import (
    kernel_call,
    read_origins,
    same_bytes,
    write_origins,
)
from tvm_xengine.relax_ir.live_bytes import live_bytes, size_bytes, variables_read

OPAQUE_PATTERN = 8
"""What ``op_pattern`` is for a kernel that no fusion may touch."""
_Key = tuple[str, tuple[relax.Expr, ...]]


@tvm.transform.module_pass(opt_level=0, name="FuseInOrder")
class FuseInOrder:
    """``FuseOps``, with every group placed where it keeps the fewest bytes alive.

    ``FuseOps`` puts a group where its first call was, and what the group reads before it: all
    that leads to an addition moves in front of the weight gradients next to it, so that what they
    read is kept longer, and the arena grows.

    .. code-block:: python

        a = R.call_tir(data_gradient, (da, w), ...)
        b = R.call_tir(weight_gradient, (da, x), ...)
        c = R.call_tir(data_gradient, (dc, v), ...)
        d = R.call_tir(weight_gradient, (dc, y), ...)
        s = R.call_tir(add, (a, c), ...)

    becomes

    .. code-block:: python

        b = R.call_tir(weight_gradient, (da, x), ...)
        c = R.call_tir(data_gradient, (dc, v), ...)
        s = fused_data_gradient_add(da, w, c)
        d = R.call_tir(weight_gradient, (dc, y), ...)

    A call stays out of its group where that would keep more bytes than its result has: a slice,
    for example, that waits for an addition far behind it, and until then for all it is cut from.

    Of the orders that come into question (every group as early as what it reads is there, where
    its last call was, or where ``FuseOps`` put it) the function gets that in which fewest bytes
    are alive at once. In each of them an update waits for all that reads the state that it writes over.
    Workspace is left out, because it is another on every device: a group needs
    hardly more of it than its largest call does alone. An attribute of the function says which calls
    each group is made of (`read_origins`).

    Parameters
    ----------
    func_name
        The function whose order counts.
    """

    def __init__(self, func_name: str = "train_step") -> None:
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        groups = [_Groups.of(mod, self.func_name)]
        while waiting := groups[-1].kept_by_waiting():
            mod = with_own_kernels(mod, self.func_name, waiting)
            groups.append(_Groups.of(mod, self.func_name))
        orders = [order for last in reversed(groups) for order in last.orders()]
        return min(orders, key=lambda order: order.peak_bytes).module()


def with_own_kernels(
    mod: tvm.IRModule, func_name: str, calls: Collection[relax.Var]
) -> tvm.IRModule:
    """The module with kernels of their own, which nothing is fused with, for some calls."""
    builder = relax.BlockBuilder(mod.clone())
    bindings = []
    for binding in single_block(mod[func_name]).bindings:
        if binding.var in calls:
            call = binding.value
            kernel = mod[call.args[0]].with_attr("op_pattern", OPAQUE_PATTERN)
            args = [builder.add_func(kernel, call.args[0].name_hint), *call.args[1:]]
            binding = relax.VarBinding(
                binding.var, ir.Call(call.op, args, call.attrs, call.ty_args)
            )
        bindings.append(binding)
    apart = builder.get()
    apart[func_name] = with_bindings(mod[func_name], bindings)
    return relax.transform.Normalize()(apart)


@dataclass(frozen=True)
class _Groups:
    """A function after ``FuseOps``, and before.

    Attributes
    ----------
    parts
        For each binding after the fusion, the bindings before it that it is made of.
    place
        For each binding after the fusion where it belongs in the order before. Of bindings that
        belong to the same place, those that the others read come first already.
    """

    before: relax.Function
    fused: tvm.IRModule
    func_name: str
    position: Mapping[relax.Var, int]
    parts: Mapping[relax.Var, Sequence[relax.Var]]
    place: Mapping[relax.Var, int]

    @classmethod
    def of(cls, mod: tvm.IRModule, func_name: str) -> _Groups:
        before = mod[func_name]
        fused = tvm.transform.Sequential([relax.transform.FuseOps()])(mod)
        originals = _Originals(before)
        position = originals.position
        params = zip(fused[func_name].params, before.params, strict=True)
        known: dict[relax.Expr, relax.Var] = dict(params)
        made_of: dict[relax.Var, Sequence[relax.Var]] = {}
        place: dict[relax.Var, int] = {}
        for binding in single_block(fused[func_name]).bindings:
            parts = originals.of(binding, fused, known)
            if parts:
                known[binding.var] = parts[-1]
            ready = max(
                [place[var] for var in variables_read(binding.value) if var in place], default=0
            )
            place[binding.var] = max([ready, *(position[part] for part in parts[:1])])
            made_of[binding.var] = parts
        known_origins = read_origins(before)
        groups = {
            var.name: tuple(
                name for part in parts for name in known_origins.get(part.name, (part.name,))
            )
            for var, parts in made_of.items()
            if len(parts) > 1
        }
        fused[func_name] = write_origins(fused[func_name], {**known_origins, **groups})
        return cls(before, fused, func_name, position, made_of, place)

    def orders(self) -> list[_Order]:
        """Three orders: each group where what it reads is there, where its last call was, or where
        ``FuseOps`` put it.
        """
        as_fused = list(single_block(self.fused[self.func_name]).bindings)
        last = {
            var: max([self.place[var], *(self.position[part] for part in parts)])
            for var, parts in self.parts.items()
        }
        found = [
            sorted(as_fused, key=lambda binding: self.place[binding.var]),
            sorted(as_fused, key=lambda binding: last[binding.var]),
            as_fused,
        ]
        return [
            _Order(self.fused, self.func_name, _behind_readers(self.fused, bindings))
            for bindings in found
        ]

    def kept_by_waiting(self) -> frozenset[relax.Var]:
        """The calls that wait for their group, and meanwhile keep more than what they make."""
        bindings = single_block(self.before).bindings
        value = {binding.var: binding.value for binding in bindings}
        base = same_bytes(bindings)
        runs_at = {part: self.place[var] for var, parts in self.parts.items() for part in parts}
        needed_at: dict[relax.Var, list[tuple[int, relax.Var]]] = {}
        for binding in bindings:
            for var in variables_read(binding.value):
                at = runs_at.get(binding.var, self.position[binding.var])
                needed_at.setdefault(base.get(var, var), []).append((at, binding.var))
        for field in returned_fields(self.before):
            needed_at.setdefault(base.get(field, field), []).append((len(bindings), field))
        found = set()
        for group, parts in self.parts.items():
            for part in parts[:-1]:
                if self.place[group] <= self.position[part]:
                    continue
                before = _with_inputs(part, value, parts)
                read = {base.get(var, var) for one in before for var in variables_read(value[one])}
                kept = [
                    var
                    for var in read - set(parts)
                    if var in value
                    and all(at < self.place[group] for at, by in needed_at[var] if by not in parts)
                ]
                if sum(map(size_bytes, kept)) > size_bytes(part):
                    found.add(part)
        return frozenset(found)


def _behind_readers(
    mod: tvm.IRModule, bindings: Sequence[relax.Binding]
) -> tuple[relax.Binding, ...]:
    """The bindings in their order, but for updates in front of what reads the state that they write over.

    These wait for it, and what reads them waits, too. There is always such an order: ``FuseOps`` makes one.
    """
    base = same_bytes(bindings)
    read = {binding.var: set(variables_read(binding.value)) for binding in bindings}
    readers: dict[relax.Expr, set[relax.Var]] = {}
    for var, operands in read.items():
        for operand in operands:
            readers.setdefault(base.get(operand, operand), set()).add(var)
    behind = {var: operands & read.keys() for var, operands in read.items()}
    for at, binding in enumerate(bindings):
        if (call := kernel_call(at, binding)) is not None:
            for pair in inplace_pairs(mod[call.kernel]):
                state = call.args[pair.input]
                behind[binding.var] |= readers[base.get(state, state)] - {binding.var}
    placed: dict[relax.Var, relax.Binding] = {}
    waiting: list[relax.Binding] = []
    for binding in bindings:
        waiting.append(binding)
        while ready := [one for one in waiting if behind[one.var] <= placed.keys()]:
            placed[ready[0].var] = ready[0]
            waiting.remove(ready[0])
    return tuple(placed.values())


def _with_inputs(
    part: relax.Var, value: Mapping[relax.Var, relax.Expr], parts: Collection[relax.Var]
) -> set[relax.Var]:
    """A part of a group, and the parts that lead to it."""
    found: set[relax.Var] = set()
    waiting = [part]
    while waiting:
        found.add(one := waiting.pop())
        waiting += [var for var in variables_read(value[one]) if var in parts]
    return found


@dataclass(frozen=True)
class _Order:
    """Bindings for a function of a module, in an order that they may have."""

    mod: tvm.IRModule
    func_name: str
    bindings: tuple[relax.Binding, ...]

    def module(self) -> tvm.IRModule:
        """The module with the function in this order."""
        mod = self.mod.clone()
        mod[self.func_name] = with_bindings(mod[self.func_name], self.bindings)
        return relax.transform.Normalize()(mod)

    @property
    def peak_bytes(self) -> int:
        """The largest sum of bytes that the function has made and still reads."""
        return max(live_bytes(self.mod[self.func_name], self.bindings), default=0)


class _Originals:
    """The bindings before the fusion, found by what they compute from what."""

    def __init__(self, func: relax.Function) -> None:
        bindings = single_block(func).bindings
        self.position = {binding.var: at for at, binding in enumerate(bindings)}
        self._by_key: dict[_Key, list[relax.Var]] = {}
        for binding in reversed(bindings):
            self._by_key.setdefault(_key(binding.value, {}), []).append(binding.var)

    def of(
        self, binding: relax.Binding, mod: tvm.IRModule, known: Mapping[relax.Expr, relax.Var]
    ) -> list[relax.Var]:
        """What a binding was before, or the calls of the group that it is; empty if unknown."""
        value = binding.value
        if not isinstance(value, ir.Call) or not isinstance(value.op, ir.GlobalVar):
            found = self._take(_key(value, known))
            return [] if found is None else [found]
        group = mod[value.op]
        inside = {p: known.get(arg, arg) for p, arg in zip(group.params, value.args, strict=True)}
        parts = []
        for part in single_block(group).bindings:
            if (found := self._take(_key(part.value, inside))) is None:
                return []
            inside[part.var] = found
            parts.append(found)
        return parts

    def _take(self, key: _Key) -> relax.Var | None:
        """The first binding that computes `key`; of several equal ones the next every time."""
        same = self._by_key.get(key, [])
        if len(same) > 1:
            return same.pop()
        return same[0] if same else None


def _key(value: relax.Expr, known: Mapping[relax.Expr, relax.Var]) -> _Key:
    """What an expression computes, and from which variables."""
    read = tuple(known.get(var, var) for var in variables_read(value))
    if isinstance(value, relax.TupleGetItem):
        return f"item {value.index}", read
    if not isinstance(value, ir.Call):
        return type(value).__name__, read
    first = value.args[0] if value.args else None
    kernel = first.name_hint if isinstance(first, ir.GlobalVar) else ""
    name = value.op.name if isinstance(value.op, ir.Op) else str(value.op)
    return f"{name} {kernel} {value.ty}", read
