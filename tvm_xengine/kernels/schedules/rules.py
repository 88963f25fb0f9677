"""Choose and apply the schedule of a kernel."""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.target import Target

from tvm_xengine.kernels.schedules.blocks import intermediates, read_blocks
from tvm_xengine.kernels.schedules.inline import inline_elementwise
from tvm_xengine.kernels.schedules.products.contraction import read_contraction
from tvm_xengine.kernels.schedules.products.matrix_product import write_matrix_product
from tvm_xengine.kernels.schedules.products.over_rows import is_faster_over_rows
from tvm_xengine.kernels.schedules.streaming import write_streaming


def schedule_kernel(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    """Return `func` with loops that suit `target`.

    The result computes the same numbers up to the order in which sums are added. A kernel that no
    rule knows keeps its loops, less the intermediates that can be computed where they are used; one that
    is a single opaque block, as TVM's own scatters are, keeps all.
    """
    if func.body.block.name_hint != "root":
        return func
    sch = s_tir.Schedule(func, error_render_level="none", debug_mask="none")
    inline_elementwise(sch)
    inlined = sch.mod["main"]
    blocks = read_blocks(inlined)
    if blocks is None or not all(block.only_stores for block in blocks):
        return inlined
    contraction = read_contraction(blocks, inlined.params)
    if contraction is not None and not is_faster_over_rows(blocks[0], contraction, target):
        return write_matrix_product(inlined, contraction, target)
    return write_streaming(inlined, blocks, intermediates(inlined), target)
