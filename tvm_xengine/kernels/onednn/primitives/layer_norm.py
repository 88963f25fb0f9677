"""Layer norm over trailing axes, and its gradients.

Our kernels hand on 1 / sqrt(variance + epsilon) where oneDNN has the variance; two primitives on
a number per row turn one into the other.
"""

from __future__ import annotations

import math

from tvm_xengine.errors import LibraryError
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.descriptors import MemoryDesc, PrimitiveDesc
from tvm_xengine.kernels.onednn.enumerators import (
    ARG_DIFF_DST,
    ARG_DIFF_SCALE,
    ARG_DIFF_SHIFT,
    ARG_DIFF_SRC,
    ARG_DST,
    ARG_MEAN,
    ARG_SCALE,
    ARG_SHIFT,
    ARG_SRC,
    ARG_VARIANCE,
    BACKWARD,
    ELTWISE_LINEAR,
    ELTWISE_POW,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    USE_SCALE_AND_SHIFT,
)
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.program import Placed, Program, ProgramBuilder


def layer_norm_forward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """(data, gamma, beta) -> (output, mean, 1 / sqrt(variance + epsilon))."""
    rows, row, column = _layouts(call.shapes[0], call.shapes[1], library)
    epsilon = float(str(call.option["epsilon"]))
    norm = _forward(rows, row, epsilon, library)
    if norm is None:
        return None
    builder = ProgramBuilder(library)
    inv_std = builder.part(5, 0, row)
    builder.run(
        norm,
        {
            ARG_SRC: builder.part(0, 0, rows),
            ARG_SCALE: builder.part(1, 0, column),
            ARG_SHIFT: builder.part(2, 0, column),
            ARG_DST: builder.part(3, 0, rows),
            ARG_MEAN: builder.part(4, 0, row),
            ARG_VARIANCE: inv_std,
        },
    )
    _apply(builder, library, ELTWISE_LINEAR, inv_std, inv_std, (1.0, epsilon))
    _apply(builder, library, ELTWISE_POW, inv_std, inv_std, (1.0, -0.5))
    return builder.program()


def layer_norm_backward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """(output gradient, data, gamma, mean, inv_std) -> gradients of data, gamma and beta."""
    if call.option["wanted"] != (True, True, True):
        return None
    rows, row, column = _layouts(call.shapes[1], call.shapes[2], library)
    forward = _forward(rows, row, 0.0, library)  # the variance will hold epsilon already
    if forward is None:
        return None
    norm = library.describe_good(
        "layer_normalization_backward",
        BACKWARD,
        rows,
        rows,
        rows,
        row,
        0.0,
        USE_SCALE_AND_SHIFT,
        forward,
        attributes=library.attributes(),
    )
    if norm is None:
        return None
    builder = ProgramBuilder(library)
    variance = builder.scratch(row)
    _apply(builder, library, ELTWISE_POW, builder.part(4, 0, row), variance, (1.0, -2.0))
    beta_gradient = builder.part(7, 0, column)
    builder.run(
        norm,
        {
            ARG_DIFF_DST: builder.part(0, 0, rows),
            ARG_SRC: builder.part(1, 0, rows),
            ARG_SCALE: builder.part(2, 0, column),
            ARG_MEAN: builder.part(3, 0, row),
            ARG_VARIANCE: variance,
            ARG_DIFF_SRC: builder.part(5, 0, rows),
            ARG_DIFF_SCALE: builder.part(6, 0, column),
            ARG_DIFF_SHIFT: beta_gradient,
            ARG_SHIFT: beta_gradient,  # wanted, though its numbers are not
        },
    )
    return builder.program()


def _layouts(
    data: tuple[int, ...], gamma: tuple[int, ...], library: OnednnLibrary
) -> tuple[MemoryDesc, MemoryDesc, MemoryDesc]:
    """Rows of what is normalised, a number for each row, and one for each column."""
    count = math.prod(data[: len(data) - len(gamma)])
    columns = math.prod(gamma)
    return library.plain((count, columns)), library.plain((count,)), library.plain((columns,))


def _forward(
    rows: MemoryDesc, row: MemoryDesc, epsilon: float, library: OnednnLibrary
) -> PrimitiveDesc | None:
    return library.describe_good(
        "layer_normalization_forward",
        FORWARD_TRAINING,
        rows,
        rows,
        row,
        epsilon,
        USE_SCALE_AND_SHIFT,
        attributes=library.attributes(),
    )


def _apply(
    builder: ProgramBuilder,
    library: OnednnLibrary,
    algorithm: int,
    source: Placed,
    target: Placed,
    factors: tuple[float, float],
) -> None:
    """A function of every element; `source` and `target` may be the same tensor."""
    primitive = library.describe(
        "eltwise_forward",
        FORWARD_INFERENCE,
        algorithm,
        source.desc,
        source.desc,
        *factors,
        attributes=library.attributes(),
    )
    if primitive is None:
        raise LibraryError(f"oneDNN has no elementwise function {algorithm:#x}")
    builder.run(primitive, {ARG_SRC: source, ARG_DST: target})
