"""Image resizing with antialiasing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr
from tvm_xengine.relax_ir.types import static_shape


def upsample_antialiased(
    resize: torch._ops.OpOverload,
    builder: Builder,
    x: Expr,
    size: Sequence[int] | None,
    align_corners: bool,
    scales: Sequence[float] | None,
) -> Expr:
    """Products with a matrix for the rows and one for the columns, as weights are PyTorch's."""
    extents = static_shape(x.ty)[-2:]
    sizes = size or (None, None)
    factors = scales or (None, None)
    left, right = (
        _weights(resize, extent, sizes[k], align_corners, factors[k])
        for k, extent in enumerate(extents)
    )
    dtype = str(x.ty.dtype)
    rows = builder.emit(relax.op.matmul(relax.const(left.numpy(), dtype), x))
    return builder.emit(relax.op.matmul(rows, relax.const(right.T.contiguous().numpy(), dtype)))


def _weights(
    resize: torch._ops.OpOverload,
    extent: int,
    new_extent: int | None,
    align_corners: bool,
    scale: float | None,
) -> torch.Tensor:
    """What each element along an axis adds to each new one, shape (new, old).

    That is what becomes of the unit matrix when only its rows are resized.
    """
    unit = torch.eye(extent, dtype=torch.float64)[None, None]
    size = None if new_extent is None else [new_extent, extent]
    scales = None if scale is None else [scale, 1.0]
    return resize(unit, size, align_corners, scales)[0, 0]


CONVERTERS: dict[str, Converter] = {
    f"{resize._schema.name.removeprefix('aten::')}.vec": partial(upsample_antialiased, resize)
    for resize in (
        torch.ops.aten._upsample_bilinear2d_aa.vec,
        torch.ops.aten._upsample_bicubic2d_aa.vec,
    )
}
