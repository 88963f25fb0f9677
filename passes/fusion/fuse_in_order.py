"""Choose fusions and the order of kernels with regard to memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import ir, relax

from tvm_xengine.relax_ir.dataflow import returned_fields, single_block, with_bindings
from tvm_xengine.relax_ir.identity import identity
from tvm_xengine.relax_ir.kernel_attributes import inplace_pairs
from tvm_xengine.relax_ir.kernel_calls import (
    kernel_call,
    read_origins,
    same_bytes,
    write_origins,
)
from tvm_xengine.relax_ir.live_bytes import (
    Reads,
    live_bytes,
    reads_of,
    size_bytes,
    variables_read,
)

OPAQUE_PATTERN = 8
"""What ``op_pattern`` is for a kernel that no fusion may touch."""
_Key = tuple[str, tuple[int, ...]]
"""What an expression computes, and from which variables."""


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


def with_own_kernels(mod: tvm.IRModule, func_name: str, calls: Iterable[relax.Var]) -> tvm.IRModule:
    """The module with kernels of their own, which nothing is fused with, for some calls."""
    apart = set(map(identity, calls))
    builder = relax.BlockBuilder(mod.clone())
    bindings = []
    for binding in single_block(mod[func_name]).bindings:
        if identity(binding.var) in apart:
            call = binding.value
            kernel = mod[call.args[0]].with_attr("op_pattern", OPAQUE_PATTERN)
            args = [builder.add_func(kernel, call.args[0].name_hint), *call.args[1:]]
            binding = relax.VarBinding(
                binding.var, ir.Call(call.op, args, call.attrs, call.ty_args)
            )
        bindings.append(binding)
    made = builder.get()
    made[func_name] = with_bindings(mod[func_name], bindings)
    return relax.transform.Normalize()(made)


@dataclass(frozen=True)
class _Groups:
    """A function after ``FuseOps``, and before; variables by their `identity`.

    Attributes
    ----------
    originals
        The bindings before the fusion.
    reads
        What each binding after the fusion reads.
    parts
        For each binding after the fusion, the bindings before it that it is made of.
    place
        For each binding after the fusion where it belongs in the order before. Of bindings that
        belong to the same place, those that the others read come first already.
    """

    originals: _Originals
    fused: tvm.IRModule
    func_name: str
    reads: Reads
    parts: Mapping[int, Sequence[int]]
    place: Mapping[int, int]

    @classmethod
    def of(cls, mod: tvm.IRModule, func_name: str) -> _Groups:
        before = mod[func_name]
        fused = tvm.transform.Sequential([relax.transform.FuseOps()])(mod)
        originals = _Originals(before)
        position = originals.position
        bindings = single_block(fused[func_name]).bindings
        reads = reads_of(bindings)
        params = zip(fused[func_name].params, before.params, strict=True)
        known = {identity(after): identity(param) for after, param in params}
        made_of: dict[int, Sequence[int]] = {}
        place: dict[int, int] = {}
        known_origins = read_origins(before)
        groups = {}
        for binding in bindings:
            var = identity(binding.var)
            made_of[var] = parts = originals.of(binding, fused, known)
            if parts:
                known[var] = parts[-1]
            ready = max([place[read] for read in reads[var] if read in place], default=0)
            place[var] = max([ready, *(position[part] for part in parts[:1])])
            if len(parts) > 1:
                names = [originals.made[part].name for part in parts]
                groups[binding.var.name] = tuple(
                    origin for name in names for origin in known_origins.get(name, (name,))
                )
        fused[func_name] = write_origins(fused[func_name], {**known_origins, **groups})
        return cls(originals, fused, func_name, reads, made_of, place)

    def orders(self) -> list[_Order]:
        """Three orders: each group where what it reads is there, where its last call was, or where
        ``FuseOps`` put it.
        """
        as_fused = list(single_block(self.fused[self.func_name]).bindings)
        position = self.originals.position
        last = {
            var: max([self.place[var], *(position[part] for part in parts)])
            for var, parts in self.parts.items()
        }
        found = [
            sorted(as_fused, key=lambda binding: self.place[identity(binding.var)]),
            sorted(as_fused, key=lambda binding: last[identity(binding.var)]),
            as_fused,
        ]
        return [
            _Order(
                self.fused, self.func_name, _behind_readers(self.fused, b, self.reads), self.reads
            )
            for b in found
        ]

    def kept_by_waiting(self) -> list[relax.Var]:
        """The calls that wait for their group, and meanwhile keep more than what they make."""
        made, reads, position = self.originals.made, self.originals.reads, self.originals.position
        base = self.originals.base
        runs_at = {part: self.place[var] for var, parts in self.parts.items() for part in parts}
        needed_at: dict[int, list[tuple[int, int]]] = {}
        for var, operands in reads.items():
            for read in operands:
                at = runs_at.get(var, position[var])
                needed_at.setdefault(base.get(read, read), []).append((at, var))
        for field in map(identity, returned_fields(self.originals.func)):
            needed_at.setdefault(base.get(field, field), []).append((len(position), field))
        found = []
        for group, parts in self.parts.items():
            inside = set(parts)
            for part in parts[:-1]:
                if self.place[group] <= position[part]:
                    continue
                before = _with_inputs(part, reads, inside)
                used = {base.get(var, var) for one in before for var in reads[one]}
                kept = [
                    var
                    for var in used - inside
                    if var in made
                    and all(at < self.place[group] for at, by in needed_at[var] if by not in inside)
                ]
                if sum(size_bytes(made[var]) for var in kept) > size_bytes(made[part]):
                    found.append(made[part])
        return found


def _behind_readers(
    mod: tvm.IRModule, bindings: Sequence[relax.Binding], reads: Reads
) -> tuple[relax.Binding, ...]:
    """The bindings in their order, but for updates in front of what reads the state that they write over.

    These wait for it, and what reads them waits, too. There is always such an order: ``FuseOps`` makes one.
    """
    base = {identity(var): identity(of) for var, of in same_bytes(bindings).items()}
    readers: dict[int, set[int]] = {}
    for var, operands in reads.items():
        for operand in operands:
            readers.setdefault(base.get(operand, operand), set()).add(var)
    behind = {var: reads.keys() & operands for var, operands in reads.items()}
    for at, binding in enumerate(bindings):
        if (call := kernel_call(at, binding)) is not None:
            for pair in inplace_pairs(mod[call.kernel]):
                state = identity(call.args[pair.input])
                behind[identity(binding.var)] |= readers[base.get(state, state)]
    placed: dict[int, relax.Binding] = {}
    waiting: list[tuple[int, relax.Binding]] = []
    for binding in bindings:
        waiting.append((identity(binding.var), binding))
        while ready := [one for one in waiting if behind[one[0]] - {one[0]} <= placed.keys()]:
            placed[ready[0][0]] = ready[0][1]
            waiting.remove(ready[0])
    return tuple(placed.values())


def _with_inputs(part: int, reads: Reads, parts: Collection[int]) -> set[int]:
    """A part of a group, and the parts that lead to it."""
    found: set[int] = set()
    waiting = [part]
    while waiting:
        found.add(one := waiting.pop())
        waiting += [var for var in reads[one] if var in parts]
    return found


@dataclass(frozen=True)
class _Order:
    """Bindings for a function of a module, in an order that they may have."""

    mod: tvm.IRModule
    func_name: str
    bindings: tuple[relax.Binding, ...]
    reads: Reads

    def module(self) -> tvm.IRModule:
        """The module with the function in this order."""
        mod = self.mod.clone()
        mod[self.func_name] = with_bindings(mod[self.func_name], self.bindings)
        return relax.transform.Normalize()(mod)

    @property
    def peak_bytes(self) -> int:
        """The largest sum of bytes that the function has made and still reads."""
        return max(live_bytes(self.mod[self.func_name], self.bindings, self.reads), default=0)


class _Originals:
    """The bindings of a function before the fusion, found by what they compute from what.

    Attributes
    ----------
    made
        The variable of each binding, by its `identity`.
    base
        As `same_bytes` says.
    """

    def __init__(self, func: relax.Function) -> None:
        bindings = single_block(func).bindings
        self.func = func
        self.reads = reads_of(bindings)
        self.made = {identity(binding.var): binding.var for binding in bindings}
        self.position = {var: at for at, var in enumerate(self.made)}
        self.base = {identity(var): identity(of) for var, of in same_bytes(bindings).items()}
        self._by_key: dict[_Key, list[int]] = {}
        for (var, read), binding in reversed([*zip(self.reads.items(), bindings, strict=True)]):
            self._by_key.setdefault(_key(binding.value, read), []).append(var)

    def of(self, binding: relax.Binding, mod: tvm.IRModule, known: Mapping[int, int]) -> list[int]:
        """What a binding was before, or the calls of the group that it is; empty if unknown."""
        value = binding.value
        if not isinstance(value, ir.Call) or not isinstance(value.op, ir.GlobalVar):
            found = self._take(value, known)
            return [] if found is None else [found]
        group = mod[value.op]
        given = zip(map(identity, group.params), map(identity, value.args), strict=True)
        inside = {param: known.get(arg, arg) for param, arg in given}
        parts = []
        for part in single_block(group).bindings:
            if (found := self._take(part.value, inside)) is None:
                return []
            inside[identity(part.var)] = found
            parts.append(found)
        return parts

    def _take(self, value: relax.Expr, known: Mapping[int, int]) -> int | None:
        """The first binding that computes a value; of several equal ones the next every time."""
        read = [known.get(var, var) for var in map(identity, variables_read(value))]
        same = self._by_key.get(_key(value, read), [])
        if len(same) > 1:
            return same.pop()
        return same[0] if same else None


def _key(value: relax.Expr, read: Sequence[int]) -> _Key:
    """What an expression computes, from variables that it reads."""
    if isinstance(value, relax.TupleGetItem):
        return f"item {value.index}", tuple(read)
    if not isinstance(value, ir.Call):
        return type(value).__name__, tuple(read)
    first = value.args[0] if value.args else None
    kernel = first.name_hint if isinstance(first, ir.GlobalVar) else ""
    name = value.op.name if isinstance(value.op, ir.Op) else str(value.op)
    return f"{name} {kernel} {value.ty}", tuple(read)
