"""Reductions without anything to reduce over, as blocks that only store."""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import ir, s_tir, tirx


def without_empty_reductions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with plain blocks for its reductions over no axes or over axes without positions.

    ``y[i] = 0; y[i] = y[i] + x[i]`` over no axes becomes ``y[i] = 0 + x[i]``, and over an axis of
    extent 0 ``y[i] = 0``. Schedules find the place of an initial value by the axes of its reduction:
    a block that has none would add to whatever its memory holds.
    """
    root = func.body
    if not isinstance(root, s_tir.SBlockRealize):
        return func
    body = root.block.body
    nests = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    made = [_plain_nest(nest) for nest in nests]
    if all(new is old for new, old in zip(made, nests, strict=True)):
        return func
    rest = tirx.SeqStmt(made) if isinstance(body, tirx.SeqStmt) else made[0]
    block = _block(root.block, root.block.iter_vars, root.block.reads, rest)
    realize = s_tir.SBlockRealize(root.iter_values, root.predicate, block)
    return func.with_body(realize)


def _plain_nest(nest: tirx.Stmt) -> tirx.Stmt:
    """A loop nest around one block; the nest itself where it reduces over something, or not at all."""
    loops: list[tirx.For] = []
    inner = nest
    while isinstance(inner, tirx.For):
        loops.append(inner)
        inner = inner.body
    if not isinstance(inner, s_tir.SBlockRealize) or inner.block.init is None:
        return nest
    axes = list(zip(inner.block.iter_vars, inner.iter_values, strict=True))
    kept = [(axis, value) for axis, value in axes if axis.iter_type != tirx.IterVar.CommReduce]
    reduced = [(axis, value) for axis, value in axes if axis.iter_type == tirx.IterVar.CommReduce]
    if not reduced:
        reads, body = _stored_once(inner.block)
    elif any(_is_zero(axis.dom.extent) for axis, _ in reduced):
        reads, body = [], inner.block.init
    else:
        return nest
    block = _block(inner.block, [axis for axis, _ in kept], reads, body)
    made: tirx.Stmt = s_tir.SBlockRealize([value for _, value in kept], inner.predicate, block)
    for loop in reversed(loops):
        if not any(loop.loop_var.same_as(value) for _, value in reduced):
            made = tirx.For(
                loop.loop_var, loop.min, loop.extent, loop.kind, made, None, loop.annotations
            )
    return made


def _stored_once(block: s_tir.SBlock) -> tuple[Sequence[ir.TensorRegion], tirx.Stmt]:
    """What the first and only turn of a reduction makes of the initial values, and what that reads."""
    init, body = block.init, block.body
    if isinstance(init, tirx.BufferStore) and isinstance(body, tirx.BufferStore):
        found: list[ir.TensorLoad] = []
        tvm_ffi.structural_walk(body.value, (ir.TensorLoad, found.append))
        places = [load.indices for load in found if load.source.same_as(init.buffer)]
        if all(tvm_ffi.structural_equal(place, init.indices) for place in [*places, body.indices]):

            def start(load: ir.TensorLoad) -> ir.Expr:
                return init.value if load.source.same_as(init.buffer) else load

            return block.reads, tvm_ffi.structural_map(body, (ir.TensorLoad, start))
    return [*block.reads, *block.writes], tirx.SeqStmt([init, body])


def _block(
    block: s_tir.SBlock,
    axes: Sequence[tirx.IterVar],
    reads: Sequence[ir.TensorRegion],
    body: tirx.Stmt,
) -> s_tir.SBlock:
    """A block with other axes and another body, which has no initial value."""
    return s_tir.SBlock(
        axes,
        reads,
        block.writes,
        block.name_hint,
        body,
        None,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )


def _is_zero(extent: ir.Expr) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 0
