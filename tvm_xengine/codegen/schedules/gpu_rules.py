"""Propose schedules of a kernel for a GPU."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from tvm import s_tir, tirx
from tvm.s_tir import dlight
from tvm.s_tir.schedule import ScheduleError
from tvm.target import Target

from tvm_xengine.codegen.schedules.blocks import intermediates, read_blocks
from tvm_xengine.codegen.schedules.inline import inline_elementwise
from tvm_xengine.codegen.schedules.threads import write_threads
from tvm_xengine.codegen.targets import max_threads_per_block

_logger = logging.getLogger(__name__)


def propose_gpu_schedules(func: tirx.PrimFunc, target: Target) -> Iterator[tirx.PrimFunc]:
    """Yield `func` with loops bound to threads, the most promising first.

    The rules of TVM's dlight come first, and then loops of our own. A rule may propose what
    cannot be lowered: the caller takes the first that can.
    """
    bare = _without_attributes(func)
    rules = (
        dlight.gpu.Matmul(),
        dlight.gpu.GEMV(),
        dlight.gpu.Reduction(),
        dlight.gpu.GeneralReduction(),
        dlight.gpu.Fallback(),
    )
    for rule in rules:
        proposed = _apply(rule, bare, target)
        if proposed is not None:
            yield proposed.with_attrs(func.attrs)
    inlined = s_tir.Schedule(func, error_render_level="none", debug_mask="none")
    inline_elementwise(inlined)
    kernel = inlined.mod["main"]
    if (blocks := read_blocks(kernel)) is not None:
        yield write_threads(kernel, blocks, intermediates(kernel), max_threads_per_block(target))


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
