"""The kernels of a step in slices, each of them added to the module once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import ir, relax, tirx

from tvm_xengine.kernels.slices.copies import join_kernel, slice_kernel, sum_kernel
from tvm_xengine.kernels.slices.pieces import Division, Piece
from tvm_xengine.kernels.slices.write import piece_kernels
from tvm_xengine.passes.slices.add_slices import adding_kernel
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut

SUM_OF_SHARES = "sum_of_shares"
"""How the names of kernels begin that add what shares of the batch have made."""
JOIN_OF_SLICES = "join_slices"
"""How the names of kernels begin that put slices one behind the other."""


class SliceKernels:
    """Makes and keeps the kernels of a step whose batch is cut.

    Parameters
    ----------
    units
        In how many equal units the batch is counted.
    """

    def __init__(self, mod: tvm.IRModule, cut: BatchCut, units: int) -> None:
        self._builder = relax.BlockBuilder(mod.clone())
        self._spans, self._units = cut.spans, units
        self._symbols: dict[tuple[object, ...], ir.GlobalVar] = {}
        self._of_pieces: dict[tuple[int, int], tuple[tirx.PrimFunc, ...]] = {}

    @property
    def module(self) -> tvm.IRModule:
        """The module with all kernels so far."""
        return self._builder.get()

    def summed(self, shape: Sequence[int], dtype: str, count: int) -> ir.GlobalVar:
        """Adds so many tensors."""
        key = ("sum", *shape, dtype, count)
        return self._once(key, SUM_OF_SHARES, lambda: sum_kernel(shape, dtype, count))

    def joined(self, shapes: Sequence[tuple[int, ...]], dtype: str, dimension: int) -> ir.GlobalVar:
        """Puts slices of these shapes one behind the other."""
        key = ("join", *shapes, dtype, dimension)
        return self._once(key, JOIN_OF_SLICES, lambda: join_kernel(shapes, dtype, dimension))

    def taken(self, shape: Sequence[int], dtype: str, dimension: int, k: int) -> ir.GlobalVar:
        """Copies slice `k` of a whole tensor."""
        unit, span = shape[dimension] // self._units, self._spans[k]
        return self._once(
            ("slice", *shape, dtype, dimension, k),
            "take_slice",
            lambda: slice_kernel(shape, dtype, dimension, unit * span.first, unit * span.count),
        )

    def piece(
        self, name: str, division: Division, piece: Piece, k: int, *, adds: bool
    ) -> ir.GlobalVar:
        """The kernel of a piece for slice `k`, which `adds` its sums to those of the slice before."""
        which = (id(division), division.pieces.index(piece))
        if which not in self._of_pieces:
            self._of_pieces[which] = piece_kernels(division, piece, self._spans)
        funcs = self._of_pieces[which]
        func = funcs[k]
        first = next(n for n, one in enumerate(funcs) if one.same_as(func))

        def made() -> tirx.PrimFunc:
            return adding_kernel(func, len(piece.inputs), places_of_sums(piece)) if adds else func

        return self._once((*which, first, adds), f"{name}_slice{'_add' * adds}", made)

    def _once(
        self, key: tuple[object, ...], name: str, make: Callable[[], tirx.PrimFunc]
    ) -> ir.GlobalVar:
        if key not in self._symbols:
            self._symbols[key] = self._builder.add_func(make(), name)
        return self._symbols[key]


def places_of_sums(piece: Piece) -> tuple[int, ...]:
    """Positions of the results that are sums over the batch."""
    return tuple(place for place, b in enumerate(piece.outputs) if b in piece.sums)
