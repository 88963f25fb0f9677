"""Kernels that put tensors one behind the other in a flat one, take them apart, and add them from such."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

from tvm import ir, s_tir, te, tirx

from tvm_xengine.kernels.schedules.loops import ravel

Shape = tuple[int, ...]
_SPATIAL = 0
"""Of TVM's kinds of axes: each of its values writes an element of its own."""


def firsts(shapes: Sequence[Shape]) -> list[int]:
    """Where each tensor begins in the flat one, in elements."""
    return list(accumulate(map(math.prod, shapes), initial=0))[:-1]


def pack_kernel(shapes: Sequence[Shape], dtype: str) -> tirx.PrimFunc:
    """Copies tensors one behind the other.

    One loop nest for each: an expression that chose among them by the position would branch for each element.
    """
    parts = [_buffer(shape, dtype, f"part_{k}") for k, shape in enumerate(shapes)]
    flat = _buffer((sum(map(math.prod, shapes)),), dtype, "flat")
    nests = [
        _copied(part, shape, flat, first)
        for part, shape, first in zip(parts, shapes, firsts(shapes), strict=True)
    ]
    root = s_tir.SBlock([], [], [], "root", nests[0] if len(nests) == 1 else tirx.SeqStmt(nests))
    return tirx.PrimFunc([*parts, flat], s_tir.SBlockRealize([], True, root)).with_attr(
        "tirx.noalias", True
    )


def unpack_kernel(shapes: Sequence[Shape], dtype: str) -> tirx.PrimFunc:
    """Copies tensors out of a flat one."""
    flat = te.placeholder((sum(map(math.prod, shapes)),), dtype, name="flat")
    parts = [
        te.compute(shape, _at(flat, shape, first), name=f"part_{k}")
        for k, (shape, first) in enumerate(zip(shapes, firsts(shapes), strict=True))
    ]
    return _kernel([flat, *parts])


def sum_from_flat_kernel(
    shapes: Sequence[Shape], dtype: str, shares: int, apart: int
) -> tirx.PrimFunc:
    """Adds what shares have made, the first two first: flat tensors of all but one, tensors of that one.

    Parameters
    ----------
    apart
        The number of that share; its tensors come behind the flat ones of the others.
    """
    size = sum(map(math.prod, shapes))
    flats = {
        share: te.placeholder((size,), dtype, name=f"flat_{share}")
        for share in range(shares)
        if share != apart
    }
    own = [te.placeholder(shape, dtype, name=f"own_{k}") for k, shape in enumerate(shapes)]

    def added(k: int, first: int) -> te.Tensor:
        def element(*i: tirx.Var) -> tirx.Expr:
            parts = [
                own[k](*i) if share == apart else _at(flats[share], shapes[k], first)(*i)
                for share in range(shares)
            ]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            return total

        return te.compute(shapes[k], element, name=f"sum_{k}")

    sums = [added(k, first) for k, first in enumerate(firsts(shapes))]
    return _kernel([*flats.values(), *own, *sums])


def _at(flat: te.Tensor, shape: Shape, first: int) -> Callable[..., tirx.Expr]:
    def element(*i: tirx.Var) -> tirx.Expr:
        return flat(_position(i, shape, first))

    return element


def _position(i: Sequence[tirx.Var], shape: Shape, first: int) -> tirx.Expr:
    return _number(first) + ravel(i, shape)


def _copied(part: ir.Var, shape: Shape, flat: ir.Var, first: int) -> tirx.Stmt:
    """The loops that copy a tensor into the flat one."""
    loops = [tirx.Var(f"i{k}", "int64") for k in range(len(shape))]
    inner = [tirx.Var(f"v{k}", "int64") for k in range(len(shape))]
    one, place = _number(1), _position(inner, shape, first)
    block = s_tir.SBlock(
        [
            tirx.IterVar(ir.Range(_number(0), _number(extent)), v, _SPATIAL)
            for extent, v in zip(shape, inner, strict=True)
        ],
        [tirx.BufferRegion(part, [ir.Range.from_min_extent(v, one) for v in inner])],
        [tirx.BufferRegion(flat, [ir.Range.from_min_extent(place, one)])],
        part.name,
        tirx.BufferStore(flat, tirx.BufferLoad(part, inner), [place]),
    )
    body: tirx.Stmt = s_tir.SBlockRealize(loops, True, block)
    for loop, extent in zip(reversed(loops), reversed(shape), strict=True):
        body = tirx.For(loop, _number(0), _number(extent), tirx.ForKind.SERIAL, body)
    return body


def _buffer(shape: Shape, dtype: str, name: str) -> ir.Var:
    return tirx.decl_buffer([_number(extent) for extent in shape], dtype, name=name)


def _number(value: int) -> tirx.IntImm:
    return tirx.IntImm("int64", value)


def _kernel(tensors: Sequence[te.Tensor]) -> tirx.PrimFunc:
    func = te.create_prim_func(list(tensors), index_dtype_override="int64")
    return func.without_attr("global_symbol")
