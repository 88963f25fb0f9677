"""Propose schedules of a kernel for a GPU."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.s_tir import dlight
from tvm.s_tir.dlight import gpu
from tvm.s_tir.schedule import ScheduleError
from tvm.target import Target

from tvm_xengine.kernels.lower.hidden_indices import hide_indices, show_indices
from tvm_xengine.kernels.schedules.accumulation import read_accumulation
from tvm_xengine.kernels.schedules.blocks import Block, intermediates, read_blocks
from tvm_xengine.kernels.schedules.gpu_sums import is_worth_sharing, share_sums
from tvm_xengine.kernels.schedules.inline import inline_elementwise
from tvm_xengine.kernels.schedules.threads import write_threads
from tvm_xengine.kernels.targets import max_threads_per_block

_logger = logging.getLogger(__name__)


def propose_gpu_schedules(func: tirx.PrimFunc, target: Target) -> Iterator[tirx.PrimFunc]:
    """Yield `func` with loops bound to threads, the most promising first.

    The rules of TVM's dlight for a product or a sum come first, and then loops of our own. A rule
    may propose what cannot be lowered: the caller takes the first that can. TVM's schedules do not see
    indices that divide, which they would simplify to wrong ones.
    """
    inlined = s_tir.Schedule(func, error_render_level="none", debug_mask="none")
    inline_elementwise(inlined)
    kernel = inlined.mod["main"]
    blocks = read_blocks(kernel)
    bare, threads = hide_indices(_without_attributes(func)), max_threads_per_block(target)
    rules: list[Callable[[], Any]] = []
    if blocks is not None and all(map(_may_be_padded, blocks)):
        rules.append(_of_dlight(gpu.Matmul, bare, target))
    rules.append(_of_dlight(gpu.GEMV, bare, target))
    if blocks is None or any(is_worth_sharing(block) for block in blocks):
        rules.append(_of_dlight(gpu.Reduction, bare, target))
        rules.append(_of_dlight(gpu.GeneralReduction, bare, target))
        if blocks is not None:
            hidden = hide_indices(_without_attributes(kernel))
            rules.append(partial(share_sums, hidden, blocks, threads))
    rules.append(_of_dlight(gpu.Fallback, bare, target))
    for rule in rules:
        if (proposed := _attempt(rule)) is not None:
            yield show_indices(proposed).with_attrs(func.attrs)
    if blocks is not None:
        yield write_threads(kernel, blocks, intermediates(kernel), threads)


def _may_be_padded(block: Block) -> bool:
    """Whether terms that read zeros add nothing: dlight's products go on over zeros, whatever they sum."""
    if not block.summed:
        return True
    fold = read_accumulation(block)
    if fold is None or fold.fold is not tirx.Add:
        return False

    def zero(load: ir.TensorLoad) -> ir.Expr:
        return tirx.const(0, str(load.ty.dtype))

    term = sym.Analyzer().simplify(tvm_ffi.structural_map(fold.term, (ir.TensorLoad, zero)))
    return bool(tvm_ffi.structural_equal(term, fold.ignored))


def _without_attributes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function alone: TVM ends the process when it cannot print an attribute in an error."""
    bare = tirx.PrimFunc(func.params, func.body, func.ret_type)
    return bare.with_attrs({"global_symbol": "main", "tirx.noalias": True})


def _of_dlight(
    rule: type[dlight.ScheduleRule], func: tirx.PrimFunc, target: Target
) -> Callable[[], Any]:
    def applied() -> Any:
        with target:
            return rule().apply(func, target, False)

    return applied


def _attempt(rule: Callable[[], Any]) -> tirx.PrimFunc | None:
    """What a rule proposes, None where it does not fit."""
    try:
        found = rule()
    except (
        ScheduleError,
        AssertionError,
        RuntimeError,
        TypeError,
        ValueError,
        IndexError,
    ) as error:
        _logger.debug("a rule does not fit: %s", error)
        return None
    if isinstance(found, list):
        found = found[0] if found else None
    return None if found is None else found.mod["main"]
