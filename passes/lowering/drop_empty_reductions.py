"""Make reductions over nothing plain assignments."""

from __future__ import annotations

import tvm
from tvm import tirx

from tvm_xengine.kernels.lower.empty_reductions import without_empty_reductions


@tirx.transform.prim_func_pass(opt_level=0, name="DropEmptyReductions")
class DropEmptyReductions:
    """Give every kernel that reduces over no axes, or over axes without positions, plain blocks.

    .. code-block:: python

        with T.init():
            y[i] = 0
        y[i] = y[i] + x[i]

    becomes ``y[i] = 0 + x[i]`` (:func:`without_empty_reductions`). Such a kernel can be fused like
    any other function of elements.
    """

    def transform_function(
        self, func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        return without_empty_reductions(func)
