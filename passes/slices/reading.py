"""What of a step can be divided along the batch, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax

from tvm_xengine.kernels.slices.pieces import Division, divide
from tvm_xengine.passes.slices.batch import batch_extent, batch_parameters
from tvm_xengine.relax_ir.dataflow import single_block
from tvm_xengine.relax_ir.kernel_calls import KernelCall, is_view, kernel_call
from tvm_xengine.relax_ir.types import static_shape, static_tensor
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut
from tvm_xengine.scheduling.sizes import tensor_bytes

_MOST_OF_JOINED = 2
"""A sum of more than so many times the bytes that it is made of is not added slice by slice, since it is
there twice then: it is cheaper to join the slices, which are there twice for a moment."""


@dataclass
class Reading:
    """Which dimension of each variable slices divide, if every call that can be is divided.

    Attributes
    ----------
    parts
        Number of equal units, of which a slice is one or several in a row.
    has_shares
        Whether slices run side by side, so that sums are always divided.
    given
        Parameters of the batch, which are there as a whole.
    divisions
        By position of the call.
    """

    mod: tvm.IRModule
    parts: int
    has_shares: bool
    dimension: dict[relax.Var, int] = field(default_factory=dict)
    given: set[relax.Var] = field(default_factory=set)
    divisions: dict[int, Division] = field(default_factory=dict)
    _outputs: dict[relax.Var, Sequence[int | None]] = field(default_factory=dict)
    _known: dict[tuple[object, ...], Division | None] = field(default_factory=dict)

    @classmethod
    def of(cls, mod: tvm.IRModule, func: relax.Function, cut: BatchCut) -> Reading:
        """What is read off a step."""
        reading = cls(mod, cut.units, max(cut.shares) > 0)
        extent = batch_extent(func)
        for param in batch_parameters(func):
            if static_shape(param.ty)[:1] == (extent,) == (sum(cut.samples),):
                reading.dimension[param] = 0
                reading.given.add(param)
        for position, binding in enumerate(single_block(func).bindings):
            reading._read(position, binding)
        return reading

    def _read(self, position: int, binding: relax.Binding) -> None:
        var, value = binding.var, binding.value
        call = kernel_call(position, binding)
        if call is not None:
            self._read_call(call)
        elif isinstance(value, relax.TupleGetItem):
            outputs = self._outputs.get(value.tuple_value)
            self._set(var, None if outputs is None else outputs[int(value.index)])
        elif is_view(value):
            self._set(var, self._of_view(var, value.args[0]))
            if value.args[0] in self.given and var in self.dimension:
                self.given.add(var)
        elif isinstance(value, relax.Var):
            self._set(var, self.dimension.get(value))

    def _set(self, var: relax.Var, dimension: int | None) -> None:
        if dimension is not None:
            self.dimension[var] = dimension

    def _of_view(self, var: relax.Var, base: relax.Expr) -> int | None:
        """The dimension of a view whose slices are the views of the slices of its base."""
        if (dimension := self.dimension.get(base)) is None:
            return None
        inner = _inner_size(static_shape(base.ty), dimension)
        shape = static_shape(var.ty)
        able = [d for d in range(len(shape)) if _inner_size(shape, d) == inner]
        return next((d for d in able if shape[d] % self.parts == 0), None)

    def _read_call(self, call: KernelCall) -> None:
        sliced = {k: self.dimension[a] for k, a in enumerate(call.args) if a in self.dimension}
        if not sliced:
            return
        given = tuple(k for k in sliced if call.args[k] in self.given)
        key = (call.kernel.name_hint, *sorted(sliced.items()), given)
        if key not in self._known:
            self._known[key] = divide(self.mod[call.kernel], sliced, given, self.parts)
        if (division := self._known[key]) is None:
            return
        read_bytes = sum(_bytes(call.args[k]) for k in sliced)
        if not self.has_shares and _sum_bytes(division) > _MOST_OF_JOINED * read_bytes:
            return
        self.divisions[call.position] = division
        outputs = division.kernel.params[len(call.args) :]
        found = [division.sliced.get(buffer) for buffer in outputs]
        if isinstance(call.var.ty, relax.TupleType):
            self._outputs[call.var] = found
        else:
            self._set(call.var, found[0])


def _sum_bytes(division: Division) -> int:
    """Bytes of the largest sum of a kernel in slices."""
    sums = [buffer for piece in division.pieces for buffer in piece.sums]
    sizes = [tensor_bytes(tuple(map(int, b.ty.shape)), str(b.ty.dtype.dtype)) for b in sums]
    return max(sizes, default=0)


def _bytes(var: relax.Var) -> int:
    return tensor_bytes(*static_tensor(var.name, var.ty))


def _inner_size(shape: Sequence[int], dimension: int) -> int:
    size = 1
    for extent in shape[dimension:]:
        size *= extent
    return size
