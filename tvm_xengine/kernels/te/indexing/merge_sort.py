"""Sorting long lines by merging runs."""

# TVMScript annotates buffers with calls and decorates untyped functions.
# mypy: disable-error-code="untyped-decorator, no-untyped-def, valid-type"

from __future__ import annotations

import tvm
from tvm import ir, te
from tvm.script import tirx as T
from tvm.tirx import Expr

from tvm_xengine.kernels.te import script
from tvm_xengine.kernels.te.pointwise.function import isnan


def ranked_by_merging(
    data: te.Tensor, *, first: int, count: int, descending: bool, dtype: str
) -> tvm.tirx.PrimFunc:
    """As `ranked`, along the middle axis of (outer, length, inner); the work is length log(length).

    Runs of 1, 2, 4, ... elements are merged in turn. Of equal elements the one of the earlier run comes
    first, which keeps their order. Of a run no more elements are made than are asked for.
    """
    outer, length, inner = (int(extent) for extent in data.shape)
    kind = data.dtype
    levels = (length - 1).bit_length()
    last = levels % 2
    kept = first + count

    def precedes(own: Expr, other: Expr) -> Expr:
        """Whether `own` must come before `other`; NaN is greater than all numbers."""
        greater, less = (own, other) if descending else (other, own)
        return tvm.tirx.any(greater > less, tvm.tirx.all(isnan(greater), tvm.tirx.Not(isnan(less))))

    def element(
        data: ir.Var, order: ir.Var, line: tuple[Expr, Expr], half: Expr, place: Expr
    ) -> Expr:
        """An element of a run, or any one behind the line."""
        number = order[(*line, half, tvm.tirx.min(place, length - 1))]
        return data[line[0], number, line[1]]

    @script.prim_func(private=True, s_tir=True)
    def func(
        data: T.Buffer((outer, length, inner), kind),
        positions: T.Buffer((outer, count, inner), dtype),
    ):
        T.func_attr({"tirx.noalias": True})
        order = T.sblock_alloc_buffer((outer, inner, 2, length), "int32")
        # Two runs, and the next element of each; whether there is one is asked after reading it.
        start = T.sblock_alloc_buffer((outer, inner), "int32")
        middle = T.sblock_alloc_buffer((outer, inner), "int32")
        left = T.sblock_alloc_buffer((outer, inner), "int32")
        right = T.sblock_alloc_buffer((outer, inner), "int32")
        for o, i in T.grid(outer, inner):
            with T.sblock("line"):
                v_o, v_i = T.axis.remap("SS", [o, i])
                T.reads(data[v_o, 0:length, v_i])
                T.writes(positions[v_o, 0:count, v_i])
                for n in range(length):
                    order[v_o, v_i, 0, n] = n
                    order[v_o, v_i, 1, n] = n
                for level in range(levels):
                    for pair in range(length // T.shift_left(2, level) + 1):
                        start[v_o, v_i] = T.min(pair * T.shift_left(2, level), length)
                        middle[v_o, v_i] = T.min(start[v_o, v_i] + T.shift_left(1, level), length)
                        left[v_o, v_i] = start[v_o, v_i]
                        right[v_o, v_i] = middle[v_o, v_i]
                        for n in range(
                            T.min(T.min(T.shift_left(2, level), kept), length - start[v_o, v_i])
                        ):
                            if _comes_from_right(
                                left[v_o, v_i] - start[v_o, v_i],
                                right[v_o, v_i] - middle[v_o, v_i],
                                T.min(T.shift_left(1, level), kept),
                                length - middle[v_o, v_i],
                                precedes(
                                    element(data, order, (v_o, v_i), level % 2, right[v_o, v_i]),
                                    element(data, order, (v_o, v_i), level % 2, left[v_o, v_i]),
                                ),
                            ):
                                order[v_o, v_i, (level + 1) % 2, start[v_o, v_i] + n] = order[
                                    v_o, v_i, level % 2, right[v_o, v_i]
                                ]
                                right[v_o, v_i] = right[v_o, v_i] + 1
                            else:
                                order[v_o, v_i, (level + 1) % 2, start[v_o, v_i] + n] = order[
                                    v_o, v_i, level % 2, left[v_o, v_i]
                                ]
                                left[v_o, v_i] = left[v_o, v_i] + 1
                for n in range(count):
                    positions[v_o, n, v_i] = T.cast(order[v_o, v_i, last, first + n], dtype)

    return func


def _comes_from_right(
    left_done: Expr, right_done: Expr, run: Expr, behind: Expr, precedes: Expr
) -> Expr:
    """Whether the right one of two runs has the next element.

    `run` elements are in a run, at most `behind` in the right one, of which some are done.
    """
    is_left_over = left_done >= run
    is_right_over = tvm.tirx.any(right_done >= run, right_done >= behind)
    return tvm.tirx.all(tvm.tirx.Not(is_right_over), tvm.tirx.any(is_left_over, precedes))
