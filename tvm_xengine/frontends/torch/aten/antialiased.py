"""Images of another size, smoothed beforehand where they become smaller."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr
from tvm_xengine.frontends.torch.aten.resampling import resampled
from tvm_xengine.relax_ir.types import static_shape


def upsample_antialiased(
    resize: torch._ops.OpOverload,
    builder: Builder,
    x: Expr,
    size: Sequence[int] | None,
    align_corners: bool,
    scales: Sequence[float] | None,
) -> Expr:
    """The weights of an axis are what becomes of a unit matrix of which only the rows are resized."""
    space = static_shape(x.ty)[2:]

    def weights_of(axis: int, dtype: torch.dtype) -> torch.Tensor:
        new = None if size is None else [size[axis], space[axis]]
        factors = None if scales is None else [scales[axis], 1.0]
        unit = torch.eye(space[axis], dtype=dtype)[None, None]
        return resize(unit, new, align_corners, factors)[0, 0].T

    return resampled(builder, x, weights_of)


CONVERTERS: dict[str, Converter] = {
    f"{resize._schema.name.removeprefix('aten::')}.vec": partial(upsample_antialiased, resize)
    for resize in (
        torch.ops.aten._upsample_bilinear2d_aa.vec,
        torch.ops.aten._upsample_bicubic2d_aa.vec,
    )
}
