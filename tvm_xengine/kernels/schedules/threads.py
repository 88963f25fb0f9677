"""GPU loops for any kernel: one thread for each element."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tvm import ir, tirx

from tvm_xengine.kernels.schedules.accumulation import substitute
from tvm_xengine.kernels.schedules.blocks import Axis, Block
from tvm_xengine.kernels.schedules.loops import nest, sequence, unravel


def write_threads(
    func: tirx.PrimFunc, blocks: Sequence[Block], buffers: Sequence[ir.Var], max_threads: int
) -> tirx.PrimFunc:
    """Return `func`, which is `blocks` passing `buffers` among themselves, with loops for a GPU.

    Every block becomes one launch, in which every position along the spatial axes has its thread,
    and that thread does the block's sums one after the other. The blocks need not be reductions
    that TVM can schedule: a scatter, for example, may pick the element it adds to.

    Parameters
    ----------
    max_threads
        Largest number of threads in a block of threads.
    """
    launches = [_launch(block, max_threads) for block in blocks]
    body = sequence([*(tirx.AllocBuffer(buffer) for buffer in buffers), *launches])
    return func.with_body(body)


def _launch(block: Block, max_threads: int) -> tirx.Stmt:
    positions = math.prod(axis.extent for axis in block.spatial)
    threads = min(max_threads, positions)
    groups = -(-positions // threads)
    group, thread = ir.Var("group", _dtype(block)), ir.Var("thread", _dtype(block))
    position = group * threads + thread
    body = _one_thread(block, unravel(position, block.spatial))
    if groups * threads != positions:
        body = tirx.IfThenElse(position < positions, body, None)
    return _bound(group, groups, "blockIdx.x", _bound(thread, threads, "threadIdx.x", body))


def _one_thread(block: Block, at: Mapping[ir.Var, ir.Expr]) -> tirx.Stmt:
    """What a thread does at its position: the initial value, then one term after the other."""

    def term(summed: Sequence[ir.Expr]) -> tirx.Stmt:
        here = {axis.var: i for axis, i in zip(block.summed, summed, strict=True)}
        return substitute(block.body, {**at, **here})

    terms = nest([axis.extent for axis in block.summed], term, "k", _dtype(block))
    return terms if block.init is None else sequence([substitute(block.init, at), terms])


def _bound(var: ir.Var, extent: int, thread: str, body: tirx.Stmt) -> tirx.Stmt:
    """A loop whose iterations are the threads of a launch."""
    zero, stop = (tirx.const(value, var.ty.dtype) for value in (0, extent))
    axis = tirx.IterVar(None, ir.Var(thread, var.ty.dtype), tirx.IterVar.ThreadIndex, thread)
    return tirx.For(var, zero, stop, tirx.ForKind.THREAD_BINDING, body, axis)


def _dtype(block: Block) -> str:
    axes: list[Axis] = [*block.spatial, *block.summed]
    return str(axes[0].var.ty.dtype) if axes else "int32"
