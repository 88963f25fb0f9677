"""GPU loops for kernels with few and long sums: the threads of a block share each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir import dlight

from tvm_xengine.kernels.schedules.blocks import Block

WARP = 32
"""Threads that an NVIDIA GPU runs in step; it reads the memory of 32 neighbours at once."""

THREADS_OF_A_GPU = 32_768
"""About so many keep a GPU busy."""

_TERMS_OF_A_THREAD = 8
"""A thread that adds fewer costs more than the sum of the threads' sums."""

_THREADS = 256
"""Of a block in which nothing needs more: a multiprocessor has room for several of these."""


def is_worth_sharing(block: Block) -> bool:
    """Whether a sum is long enough for a warp, and there are too few sums for all threads."""
    sums, terms = _extents(block)
    return terms >= WARP and sums < THREADS_OF_A_GPU


def share_sums(
    func: tirx.PrimFunc, blocks: Sequence[Block], max_threads: int
) -> s_tir.Schedule | None:
    """Return a schedule of `func`, in which each of its `blocks` is a launch; None where TVM has none.

    Threads that share a sum are neighbours where its terms are neighbours in memory. Else neighbours
    are the threads of neighbouring sums, and each sum has every 32nd thread. They add
    in a fixed order, so a kernel computes the same bits every time.

    Parameters
    ----------
    max_threads
        Largest number of threads in a block of threads.

    Raises
    ------
    tvm.s_tir.schedule.ScheduleError
        When a block is not a sum, a maximum or another reduction that TVM knows.
    """
    schedule = s_tir.Schedule(func, error_render_level="none", debug_mask="none")
    described = dlight.analysis.normalize_prim_func(schedule)
    if described is None or len(described) != len(blocks):
        return None
    for info, block in zip(described, blocks, strict=True):
        loops: dict[str, list[Any]] = {"S": [], "R": []}
        for axis in info.iters:
            if axis.kind not in loops:
                return None
            loops[axis.kind].append(axis.loop_rv)
        summed = loops["R"]
        spatial = loops["S"] or [schedule.add_unit_loop(summed[0] if summed else info.block_rv)]
        schedule.reorder(*spatial, *summed)
        place = schedule.fuse(*spatial)
        if is_worth_sharing(block):
            _share(schedule, place, schedule.fuse(*summed), block, max_threads)
        else:
            _bind(schedule, place, ("blockIdx.x", "threadIdx.x"), min(_THREADS, max_threads))
    return schedule


def _share(schedule: s_tir.Schedule, sums: Any, terms: Any, block: Block, max_threads: int) -> None:
    count, length = _extents(block)
    wanted = max(length // _TERMS_OF_A_THREAD, THREADS_OF_A_GPU // count, 1)
    threads = min(_power_of_two(wanted), _power_of_two(length))
    if _has_neighbours(block):
        threads = min(max(threads, WARP), max_threads)
        beside = max(1, min(count, _THREADS // threads))
        _bind(schedule, sums, ("blockIdx.x", "threadIdx.y"), beside)
        _bind(schedule, terms, (None, "threadIdx.x"), threads)
    else:
        _bind(schedule, sums, ("blockIdx.x", "threadIdx.x"), WARP)
        _bind(schedule, terms, (None, "threadIdx.y"), min(threads, max_threads // WARP))


def _bind(
    schedule: s_tir.Schedule, loop: Any, axes: tuple[str | None, str], inner_extent: int
) -> None:
    outer, inner = schedule.split(loop, [None, inner_extent])
    if axes[0] is not None:
        schedule.bind(outer, axes[0])
    schedule.bind(inner, axes[1])


def _has_neighbours(block: Block) -> bool:
    """Whether the terms of a sum lie side by side, in the largest tensor that is read."""
    terms = {axis.var for axis in block.summed}
    most = max(block.loads, key=lambda load: _size(load.buffer), default=None)
    if most is None or not most.index:
        return True
    found: list[ir.Var] = []
    tvm_ffi.structural_walk(most.index[-1], (ir.Var, found.append))
    return any(var in terms for var in found)


def _size(buffer: ir.Var) -> int:
    return math.prod(int(extent) for extent in buffer.shape)


def _extents(block: Block) -> tuple[int, int]:
    """How many elements a block stores, and of how many terms each is."""
    sums, terms = (
        math.prod(axis.extent for axis in axes) for axes in (block.spatial, block.summed)
    )
    return sums, terms


def _power_of_two(number: int) -> int:
    """The first that is no smaller."""
    return 1 << (number - 1).bit_length()
