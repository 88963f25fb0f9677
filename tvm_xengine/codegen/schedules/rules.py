"""Choose and apply the schedule of a kernel."""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.target import Target

from tvm_xengine.codegen.schedules.blocks import intermediates, read_blocks
from tvm_xengine.codegen.schedules.contraction import read_contraction
from tvm_xengine.codegen.schedules.inline import inline_elementwise
from tvm_xengine.codegen.schedules.matrix_product import write_matrix_product
from tvm_xengine.codegen.schedules.streaming import write_streaming

SCHEDULE_VERSION = "1"
"""Changes whenever the rules do, so that measured times of older schedules are not reused."""


def schedule_kernel(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    """Return `func` with loops that suit `target`; the result computes the same numbers."""
    sch = s_tir.Schedule(func, error_render_level="none", debug_mask="none")
    inline_elementwise(sch)
    inlined = sch.mod["main"]
    blocks = read_blocks(inlined)
    if blocks is None:
        return inlined
    contraction = read_contraction(blocks, inlined.params)
    if contraction is not None:
        return write_matrix_product(inlined, contraction, target)
    return write_streaming(inlined, blocks, intermediates(inlined), target)
