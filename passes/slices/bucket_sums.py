"""Exchange sums over the shares of a batch, and the parameters that they update, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tvm import ir, relax, tirx

from tvm_xengine.kernels.slices.flat import Shape, pack_kernel, sum_from_flat_kernel, unpack_kernel
from tvm_xengine.passes.lowering.name_bindings_by_kernel import unused_name
from tvm_xengine.passes.slices.order_slices import Emitted, in_order_of_slices
from tvm_xengine.passes.slices.slice_batch import SlicedStep
from tvm_xengine.passes.slices.slice_kernels import SUM_OF_SHARES
from tvm_xengine.relax_ir.dataflow import single_block, with_bindings
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.relax_ir.kernel_calls import kernel_call
from tvm_xengine.relax_ir.types import static_tensor
from tvm_xengine.scheduling.graph import OpGraph, Role
from tvm_xengine.scheduling.replicas.buckets import buckets_of, owners


def bucket_sums(step: SlicedStep, func_name: str, bucket_bytes: int) -> SlicedStep:
    """The step in shares with sums that only updates read put together until they are so large.

    .. code-block:: python

        da = R.call_tir(sum_of_shares, (da_1of2, da_2of2), ...)
        db = R.call_tir(sum_of_shares, (db_1of2, db_2of2), ...)

    becomes, where the first share adds the bucket,

    .. code-block:: python

        sums_2of2 = R.call_tir(pack, (da_2of2, db_2of2), ...)
        sums = R.call_tir(sum_of_shares_bucket, (sums_2of2, da_1of2, db_1of2), ...)
        da, db = sums[0], sums[1]

    and calls of the second share read copies of the parameters `a` and `b`:

    .. code-block:: python

        packed = R.call_tir(pack, (a, b), ...)
        copies_2of2 = R.call_tir(unpack, (packed,), ...)
        a_2of2, b_2of2 = copies_2of2[0], copies_2of2[1]

    so that one flat tensor travels in place of several. The numbers are those of the step before.
    """
    extraction = extract_graph(step.mod, func_name)
    kernels = extraction.kernels
    sums = {op for op, kernel in kernels.items() if kernel.startswith(SUM_OF_SHARES)}
    buckets = [b for b in buckets_of(extraction.graph, sums, bucket_bytes) if len(b) > 1]
    if not buckets:
        return step
    writer = _Writer(step, func_name, extraction.graph)
    shares = 1 + max(step.share_of.values())
    for bucket, owner in zip(buckets, owners(extraction.graph, buckets, shares), strict=True):
        writer.write(bucket, owner, shares)
    return writer.finished()


class _Writer:
    """Writes the bindings of the step in buckets."""

    def __init__(self, step: SlicedStep, func_name: str, graph: OpGraph) -> None:
        self.step, self.name, self.graph = step, func_name, graph
        self.builder = relax.BlockBuilder(step.mod.clone())
        self.func = step.mod[func_name]
        self.bindings = {one.var.name: one for one in single_block(self.func).bindings}
        found = (kernel_call(*at) for at in enumerate(self.bindings.values()))
        self.calls = {call.var.name: call for call in found if call is not None}
        self.params = {param.name: param for param in self.func.params}
        self.taken = {*self.params, *self.bindings}
        self.share_of = dict(step.share_of)
        self.kernels: dict[tuple[object, ...], ir.GlobalVar] = {}
        self.made: list[relax.Binding] = []
        self.copies: dict[tuple[int, relax.Var], relax.Var] = {}  # of a parameter, for a share

    def write(self, bucket: Sequence[str], owner: int, shares: int) -> None:
        """Write a bucket of sums, named by their ops, which one share adds."""
        sums = [self.calls[name] for name in bucket]
        if len({static_tensor(call.var.name, call.var.ty)[1] for call in sums}) > 1:
            return
        shapes, dtype = self._shapes([call.var for call in sums])
        others = [share for share in range(shares) if share != owner]
        flats = []
        for share in others:
            parts = [call.args[share] for call in sums]
            name = self._name(f"sums_{share + 1}of{shares}")
            flats.append(self._packed(parts, name))
            self.share_of[name] = share
        kernel = self._kernel(
            (SUM_OF_SHARES, dtype, *shapes, shares, owner),
            lambda: sum_from_flat_kernel(shapes, dtype, shares, owner),
            f"{SUM_OF_SHARES}_bucket",
        )
        args = [*flats, *(call.args[owner] for call in sums)]
        self._several(kernel, args, self._name("sums"), [call.var for call in sums])
        for call in sums:
            del self.bindings[call.var.name]
        params = [param for name in bucket if (param := self._updated(name)) is not None]
        for share in others:
            self._give(params, owner, share, shares)

    def finished(self) -> SlicedStep:
        """The step, its bindings in an order in which each comes after what it reads."""
        kept = [self._with_copies(name, one) for name, one in self.bindings.items()]
        emitted = [Emitted(None, one) for one in (*kept, *self.made)]
        ordered = in_order_of_slices(emitted, self.func.params, 1)
        result = self.builder.get()
        result[self.name] = with_bindings(self.func, ordered)
        typed = relax.transform.Normalize()(result)
        mod = relax.transform.DeadCodeElimination([self.name])(typed)
        return replace(self.step, mod=mod, share_of=self.share_of)

    def _updated(self, name: str) -> relax.Var | None:
        """The parameter that a sum updates, if it is one that is read as it is."""
        readers = [
            r for output in self.graph.op[name].outputs for r in self.graph.consumers[output]
        ]
        states = [state for r in readers for _, state in self.graph.op[r].updates]
        found = [s for s in states if self.graph.tensor[s].role is Role.PARAMETER]
        if len(found) != 1 or any(t.alias_of == found[0] for t in self.graph.tensors):
            return None
        return self.params[found[0]]

    def _give(self, params: Sequence[relax.Var], owner: int, share: int, shares: int) -> None:
        """Let a share read copies of parameters, which travel together."""
        calls = [call for name, call in self.calls.items() if self.share_of.get(name) == share]
        read = [p for p in params if any(p.same_as(arg) for call in calls for arg in call.args)]
        if len(read) < 2 or len({static_tensor(p.name, p.ty)[1] for p in read}) > 1:
            return
        shapes, dtype = self._shapes(read)
        name = self._name("parameters")
        flat = self._packed(read, name)
        self.share_of[name] = owner
        kernel = self._kernel(
            ("unpack", dtype, *shapes), lambda: unpack_kernel(shapes, dtype), "unpack"
        )
        part = f"{share + 1}of{shares}"
        copies = [relax.DataflowVar(self._name(f"{p.name}_{part}"), p.ty) for p in read]
        name = self._name(f"parameters_{part}")
        self._several(kernel, [flat], name, copies)
        self.share_of.update(dict.fromkeys([name, *(copy.name for copy in copies)], share))
        self.copies.update({(share, p): copy for p, copy in zip(read, copies, strict=True)})

    def _with_copies(self, name: str, binding: relax.Binding) -> relax.Binding:
        call, share = self.calls.get(name), self.share_of.get(name)
        if call is None or share is None:
            return binding
        args = [self.copies.get((share, arg), arg) for arg in call.args]
        if all(new is old for new, old in zip(args, call.args, strict=True)):
            return binding
        return relax.VarBinding(call.var, _called(call.kernel, args, call.outputs))

    def _packed(self, parts: Sequence[relax.Var], name: str) -> relax.Var:
        shapes, dtype = self._shapes(parts)
        kernel = self._kernel(("pack", dtype, *shapes), lambda: pack_kernel(shapes, dtype), "pack")
        size = int(self.builder.get()[kernel].params[-1].ty.shape[0])
        ty = relax.TensorType([size], dtype)
        var = relax.DataflowVar(name, ty)
        self.made.append(relax.VarBinding(var, _called(kernel, parts, [ty])))
        return var

    def _several(
        self,
        kernel: ir.GlobalVar,
        args: Sequence[relax.Var],
        name: str,
        outputs: Sequence[relax.Var],
    ) -> None:
        """Bind the outputs of a call to variables."""
        types = [var.ty for var in outputs]
        made = relax.DataflowVar(name, relax.TupleType(types))
        self.made.append(relax.VarBinding(made, _called(kernel, args, types)))
        for place, var in enumerate(outputs):
            self.made.append(relax.VarBinding(var, relax.TupleGetItem(made, place)))

    def _kernel(
        self, key: tuple[object, ...], make: Callable[[], tirx.PrimFunc], name: str
    ) -> ir.GlobalVar:
        if key not in self.kernels:
            self.kernels[key] = self.builder.add_func(make(), name)
        return self.kernels[key]

    def _shapes(self, parts: Sequence[relax.Var]) -> tuple[tuple[Shape, ...], str]:
        found = [static_tensor(part.name, part.ty) for part in parts]
        return tuple(shape for shape, _ in found), found[0][1]

    def _name(self, name: str) -> str:
        name = unused_name(name, self.taken)
        self.taken.add(name)
        return name


def _called(
    kernel: ir.GlobalVar, args: Sequence[relax.Expr], types: Sequence[relax.Type]
) -> relax.Call:
    made = list(types)
    return relax.call_tir(kernel, relax.Tuple(list(args)), made if len(made) > 1 else made[0])
