"""Propose schedules of a kernel for a GPU."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

from tvm import s_tir, tirx
from tvm.s_tir import dlight
from tvm.s_tir.schedule import ScheduleError
from tvm.target import Target

from tvm_xengine.kernels.schedules.blocks import Block, intermediates, read_blocks
from tvm_xengine.kernels.schedules.inline import inline_elementwise
from tvm_xengine.kernels.schedules.threads import write_threads
from tvm_xengine.kernels.targets import max_threads_per_block

_WARP = 32
"""Threads that an NVIDIA GPU runs in step."""

_THREADS_OF_A_GPU = 32_768
"""About so many keep a GPU busy."""

_logger = logging.getLogger(__name__)


def propose_gpu_schedules(func: tirx.PrimFunc, target: Target) -> Iterator[tirx.PrimFunc]:
    """Yield `func` with loops bound to threads, the most promising first.

    The rules of TVM's dlight come first, and then loops of our own. A rule may propose what
    cannot be lowered: the caller takes the first that can.
    """
    inlined = s_tir.Schedule(func, error_render_level="none", debug_mask="none")
    inline_elementwise(inlined)
    kernel = inlined.mod["main"]
    blocks = read_blocks(kernel)
    products = (dlight.gpu.Matmul(), dlight.gpu.GEMV())
    sums = (dlight.gpu.Reduction(), dlight.gpu.GeneralReduction())
    shares_sums = blocks is None or any(_is_worth_sharing(block) for block in blocks)
    for rule in (*products, *(sums if shares_sums else ()), dlight.gpu.Fallback()):
        proposed = _apply(rule, _without_attributes(func), target)
        if proposed is not None:
            yield proposed.with_attrs(func.attrs)
    if blocks is not None:
        yield write_threads(kernel, blocks, intermediates(kernel), max_threads_per_block(target))


def _is_worth_sharing(block: Block) -> bool:
    """Whether a sum is long enough for a warp, and there are too few sums for all threads."""
    sums, terms = (
        math.prod(axis.extent for axis in axes) for axes in (block.spatial, block.summed)
    )
    return terms >= _WARP and sums < _THREADS_OF_A_GPU


def _without_attributes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function alone: TVM ends the process when it cannot print an attribute in an error."""
    bare = tirx.PrimFunc(func.params, func.body, func.ret_type)
    return bare.with_attrs({"global_symbol": "main", "tirx.noalias": True})


def _apply(rule: dlight.ScheduleRule, func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc | None:
    try:
        with target:
            found = rule.apply(func, target, False)
    except (
        ScheduleError,
        AssertionError,
        RuntimeError,
        TypeError,
        ValueError,
        IndexError,
    ) as error:
        _logger.debug("%s does not fit: %s", type(rule).__name__, error)
        return None
    if isinstance(found, list):
        found = found[0] if found else None
    return None if found is None else found.mod["main"]
