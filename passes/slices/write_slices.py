"""The bindings of a step that runs slice by slice of its batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import ir, relax

from tvm_xengine.kernels.slices.pieces import Division, Piece
from tvm_xengine.passes.lowering.name_bindings_by_kernel import unused_name
from tvm_xengine.passes.slices.order_slices import Emitted, in_order_of_slices
from tvm_xengine.passes.slices.reading import Reading
from tvm_xengine.passes.slices.slice_kernels import SliceKernels, places_of_sums
from tvm_xengine.relax_ir.dataflow import returned_fields, single_block, with_bindings, with_results
from tvm_xengine.relax_ir.kernel_calls import KernelCall, is_view, kernel_call
from tvm_xengine.relax_ir.signature import StepSignature
from tvm_xengine.relax_ir.types import static_shape, static_tensor
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut


@dataclass(frozen=True)
class _Made:
    """A value of the step before: a whole tensor, its slices, or both."""

    whole: relax.Expr | None = None
    slices: tuple[relax.Expr, ...] | None = None


class SliceWriter:
    """Writes the bindings of the step in slices."""

    def __init__(
        self, mod: tvm.IRModule, func: relax.Function, reading: Reading, cut: BatchCut
    ) -> None:
        self.kernels = SliceKernels(mod, cut, reading.parts)
        self.reading, self.cut, self.parts = reading, cut, len(cut.samples)
        self.made: dict[ir.Var, _Made] = {param: _Made(param) for param in func.params}
        self.items: dict[relax.Var, list[_Made]] = {}
        self.emitted: list[Emitted] = []
        self.calls: dict[str, list[str]] = {}
        bindings = single_block(func).bindings
        self.taken = {var.name for var in (*func.params, *(b.var for b in bindings))}
        self.has_slices = False
        self.given_in_slices: dict[relax.Var, tuple[relax.Var, ...]] = {}
        if reading.has_shares:
            for param in func.params:
                if param in reading.given:
                    self._give_in_slices(param)

    def read(self, position: int, binding: relax.Binding) -> None:
        """Write what a binding of the step before becomes."""
        var, value = binding.var, binding.value
        call = kernel_call(position, binding)
        division = self.reading.divisions.get(position)
        if call is not None and division is not None:
            self.has_slices = True
            self._write_call(call, division)
        elif isinstance(value, relax.TupleGetItem) and value.tuple_value in self.items:
            self.made[var] = self.items[value.tuple_value][int(value.index)]
        elif isinstance(value, relax.Var) and value in self.made:
            self.made[var] = self.made[value]
        elif is_view(value) and self._is_sliced_view(var, value):
            views = []
            for k, one in enumerate(self.made[value.args[0]].slices or ()):
                ty = relax.TensorType(self._slice_shape(var, k), var.ty.dtype)
                name = self._name(var.name, k)
                views.append(self._bind(relax.op.reshape(one, ty.shape), name, k, ty))
            self.made[var] = _Made(slices=tuple(views))
        else:
            self._write_whole(binding, call)

    def _give_in_slices(self, param: relax.Var) -> None:
        """Let parameters that are slices take the place of one of the batch."""
        slices = tuple(
            relax.Var(
                self._name(param.name, k),
                relax.TensorType(self._slice_shape(param, k), param.ty.dtype),
            )
            for k in range(self.parts)
        )
        self.made[param] = _Made(slices=slices)
        self.given_in_slices[param] = slices

    def finished(self, func: relax.Function) -> relax.Function:
        """The function in slices; a single result that was a tensor is a tuple of it."""
        signature, params = StepSignature.read(func), list(func.params)
        is_bound = any(one.binding.var.same_as(func.body.body) for one in self.emitted)
        results = [] if is_bound else [self.whole(one) for one in returned_fields(func)]
        if self.given_in_slices:
            params = [one for p in func.params for one in self.given_in_slices.get(p, (p,))]
            signature = self._with_slices_given(signature, func, params)
        ordered = in_order_of_slices(self.emitted, params, self.parts)
        made = with_bindings(func, ordered, params)
        return signature.write(with_results(made, ordered, results) if results else made)

    def _with_slices_given(
        self, signature: StepSignature, func: relax.Function, params: Sequence[relax.Var]
    ) -> StepSignature:
        place = {param: k for k, param in enumerate(params)}
        roles = [
            role
            for param, role in zip(func.params, signature.roles, strict=True)
            for _ in self.given_in_slices.get(param, (param,))
        ]
        updates = tuple(place[func.params[position]] for position in signature.updates)
        return replace(signature, roles=tuple(roles), updates=updates)

    def _is_sliced_view(self, var: relax.Var, value: relax.Expr) -> bool:
        base = self.made[value.args[0]]
        return base.slices is not None and base.whole is None and var in self.reading.dimension

    def _write_whole(self, binding: relax.Binding, call: KernelCall | None) -> None:
        var, value = binding.var, binding.value
        if call is not None:
            args = relax.Tuple([self.whole(arg) for arg in call.args])
            types = list(call.outputs)
            value = relax.call_tir(call.kernel, args, types if len(types) > 1 else types[0])
            self.calls[var.name] = [var.name]
        elif is_view(value):
            value = relax.op.reshape(self.whole(value.args[0]), value.args[1])
        elif isinstance(value, relax.Tuple):
            value = relax.Tuple([self.whole(one) for one in value.fields])
        self.emitted.append(Emitted(None, relax.VarBinding(var, value)))
        self.made[var] = _Made(var)

    def _write_call(self, call: KernelCall, division: Division) -> None:
        kernel = division.kernel
        key = dict(zip(kernel.params, call.args, strict=False))  # of outputs there are no args
        self.calls[call.var.name] = []
        for piece in division.pieces:
            runs: Sequence[int | None] = [None] if piece.is_whole else range(self.parts)
            found: list[Sequence[relax.Expr]] = []
            for k in runs:
                args = [
                    self.whole(key.get(b, b))
                    if k is None or b not in division.sliced
                    else self._slice(key.get(b, b), division.sliced[b], k)
                    for b in piece.inputs
                ]
                if self._adds(k):
                    args += [found[-1][place] for place in places_of_sums(piece)]
                found.append(self._run(call, division, piece, k, args))
            for place, buffer in enumerate(piece.outputs):
                if piece.is_whole:
                    self.made[buffer] = _Made(whole=found[-1][place])
                elif buffer in piece.sums:
                    self.made[buffer] = _Made(whole=self._sum([one[place] for one in found]))
                else:
                    self.made[buffer] = _Made(slices=tuple(values[place] for values in found))
        outputs = [self.made[buffer] for buffer in kernel.params[len(call.args) :]]
        if isinstance(call.var.ty, relax.TupleType):
            self.items[call.var] = outputs
        else:
            self.made[call.var] = outputs[0]

    def _adds(self, k: int | None) -> bool:
        """Whether slice `k` adds its sums to those of the one before, which is of the same share."""
        shares = self.cut.shares
        return k is not None and 0 < k < len(shares) and shares[k] == shares[k - 1]

    def _sum(self, found: Sequence[relax.Expr]) -> relax.Expr:
        """The sum over the batch, of what slices have made."""
        shares = [one for k, one in enumerate(found) if not self._adds(k + 1)]
        if len(shares) == 1:
            return shares[0]
        kernel = self.kernels.summed(*static_tensor(shares[0].name, shares[0].ty), len(shares))
        value = relax.call_tir(kernel, relax.Tuple(shares), shares[0].ty)
        stem = shares[0].name.rpartition("_")[0]
        return self._bind(value, self._name(f"{stem}_summed"), None, shares[0].ty)

    def _run(
        self,
        call: KernelCall,
        division: Division,
        piece: Piece,
        k: int | None,
        args: Sequence[relax.Expr],
    ) -> Sequence[relax.Expr]:
        """Emit a piece of a call for slice `k`; what it makes."""
        adds = self._adds(k) and bool(piece.sums)
        symbol = self.kernels.piece(call.kernel.name_hint, division, piece, k or 0, adds=adds)
        func = self.kernels.module[symbol]
        types = [
            relax.TensorType(list(map(int, param.ty.shape)), str(param.ty.dtype.dtype))
            for param in func.params[len(args) :]
        ]
        name = call.var.name
        if not division.is_one_piece:
            name = f"{name}_{piece.outputs[0].name}"
        name = self._name(name, k)
        self.calls[call.var.name].append(name)
        made = types[0] if len(types) == 1 else relax.TupleType(types)
        value = relax.call_tir(symbol, relax.Tuple(list(args)), types if len(types) > 1 else made)
        var = self._bind(value, name, k, made)
        if len(types) == 1:
            return [var]
        return [
            self._bind(relax.TupleGetItem(var, place), self._name(f"{name}_{place}"), k, ty)
            for place, ty in enumerate(types)
        ]

    def whole(self, var: ir.Var) -> relax.Expr:
        """The whole of a value, its slices joined where it came in those."""
        made = self.made[var]
        if made.whole is None and made.slices is not None:
            _, dtype = static_tensor(var.name, var.ty)
            shapes = [static_shape(one.ty) for one in made.slices]
            kernel = self.kernels.joined(shapes, dtype, self.reading.dimension[var])
            value = relax.call_tir(kernel, relax.Tuple(list(made.slices)), var.ty)
            whole = self._bind(value, self._name(f"{var.name}_joined"), None, var.ty)
            self.made[var] = made = _Made(whole, made.slices)
        return made.whole

    def _slice(self, var: ir.Var, dimension: int, k: int) -> relax.Expr:
        """Slice `k` of a value, copied where it came as a whole."""
        made = self.made[var]
        if made.slices is None:
            shape, dtype = static_tensor(var.name, var.ty)
            slices = []
            for number in range(self.parts):
                kernel = self.kernels.taken(shape, dtype, dimension, number)
                ty = relax.TensorType(self._slice_shape(var, number), dtype)
                value = relax.call_tir(kernel, relax.Tuple([made.whole]), ty)
                slices.append(self._bind(value, self._name(var.name, number), number, ty))
            self.made[var] = _Made(made.whole, tuple(slices))
            return slices[k]
        return made.slices[k]

    def _slice_shape(self, var: relax.Var, k: int) -> tuple[int, ...]:
        shape, dimension = list(static_shape(var.ty)), self.reading.dimension[var]
        shape[dimension] = shape[dimension] // self.reading.parts * self.cut.spans[k].count
        return tuple(shape)

    def _bind(
        self, value: relax.Expr, name: str, k: int | None, ty: relax.Type
    ) -> relax.DataflowVar:
        var = relax.DataflowVar(name, ty)
        self.emitted.append(Emitted(k, relax.VarBinding(var, value)))
        return var

    def _name(self, name: str, k: int | None = None) -> str:
        name = unused_name(name if k is None else f"{name}_{k + 1}of{self.parts}", self.taken)
        self.taken.add(name)
        return name
