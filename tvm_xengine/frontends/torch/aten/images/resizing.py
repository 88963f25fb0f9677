"""Images of another size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch.nn import functional
from tvm import relax

from tvm_xengine.frontends.torch.arrays import to_array
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr
from tvm_xengine.frontends.torch.aten.shapes import product_along
from tvm_xengine.relax_ir.types import static_shape


def upsample_nearest(
    coordinates: str,
    builder: Builder,
    x: Expr,
    size: Sequence[int] | None,
    scales: Sequence[float] | None,
) -> Expr:
    """The pixel at floor(q * in / out), or at floor((q + 0.5) * in / out), as `coordinates` say."""
    return _resize(builder, x, size, scales, "nearest_neighbor", coordinates)


def upsample_smooth(
    method: str,
    builder: Builder,
    x: Expr,
    size: Sequence[int] | None,
    align_corners: bool,
    scales: Sequence[float] | None,
) -> Expr:
    """(Bi-, tri-) linear interpolation, or bicubic with the spline coefficient -0.75."""
    coordinates = "align_corners" if align_corners else "half_pixel"
    return _resize(builder, x, size, scales, method, coordinates)


def _resize(
    builder: Builder,
    x: Expr,
    size: Sequence[int] | None,
    scales: Sequence[float] | None,
    method: str,
    coordinates: str,
) -> Expr:
    batch, channels, *space = static_shape(x.ty)
    if scales and coordinates != "align_corners" and not is_whole(space, scales):
        # PyTorch takes coordinates from the factors; Relax only knows the sizes.
        mode = _MODES[method, coordinates][len(space) - 1]
        return resampled(builder, x, partial(_weights, mode, space, scales))
    if size is None:
        size = [int(extent * scale) for extent, scale in zip(space, scales or (), strict=True)]
    if len(space) == 1:
        flat = relax.op.reshape(x, (batch, channels, 1, *space))
        made = _resize(builder, builder.emit(flat), [1, *size], None, method, coordinates)
        return builder.emit(relax.op.reshape(made, (batch, channels, *size)))
    resize = relax.op.image.resize2d if len(space) == 2 else relax.op.image.resize3d
    return builder.emit(
        resize(
            x,
            tuple(int(extent) for extent in size),
            layout="NCHW" if len(space) == 2 else "NCDHW",
            method=method,
            coordinate_transformation_mode=coordinates,
            rounding_method="floor" if method == "nearest_neighbor" else "round",
        )
    )


_MODES = {
    ("nearest_neighbor", "asymmetric"): ("nearest",) * 3,
    ("nearest_neighbor", "tf_half_pixel_for_nn"): ("nearest-exact",) * 3,
    ("linear", "half_pixel"): ("linear", "bilinear", "trilinear"),
    ("cubic", "half_pixel"): ("", "bicubic", ""),
}
"""What PyTorch calls them for one, two and three axes."""


def _weights(
    mode: str, space: Sequence[int], scales: Sequence[float], axis: int, dtype: torch.dtype
) -> torch.Tensor:
    """What becomes of unit vectors, the channels of an image whose other axes have one element."""
    column = [extent if a == axis else 1 for a, extent in enumerate(space)]
    unit = torch.eye(space[axis], dtype=dtype).reshape(1, space[axis], *column)
    factors = tuple(scale if a == axis else 1.0 for a, scale in enumerate(scales))
    return functional.interpolate(unit, scale_factor=factors, mode=mode).reshape(space[axis], -1)


_FLOOR = partial(upsample_nearest, "asymmetric")
_FLOOR_OF_CENTRE = partial(upsample_nearest, "tf_half_pixel_for_nn")
_LINEAR = partial(upsample_smooth, "linear")


Weights = Callable[[int, torch.dtype], torch.Tensor]
"""For the position of an axis in the space and a type: what each element adds to each new one."""


def resampled(builder: Builder, x: Expr, weights_of: Weights) -> Expr:
    """An image of (batch, channels, *space) with each axis of its space resampled.

    `weights_of` returns matrices of (old extent, new extent).
    """
    dtype = getattr(torch, str(x.ty.dtype))
    for axis in range(2, len(static_shape(x.ty))):
        x = product_along(builder, x, axis, to_array(weights_of(axis - 2, dtype)))
    return x


def is_whole(space: Sequence[int], scales: Sequence[float]) -> bool:
    """Whether every extent times its factor is an integer, up to rounding."""
    products = [extent * scale for extent, scale in zip(space, scales, strict=True)]
    return all(abs(product - int(product + 1e-6)) <= 1e-6 * product for product in products)


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


def upsample_antialiased_to(
    resize: torch._ops.OpOverload,
    builder: Builder,
    x: Expr,
    size: Sequence[int],
    align_corners: bool,
    rows: float | None = None,
    columns: float | None = None,
) -> Expr:
    """The same from a size, and a scale for each axis."""
    space, scales = static_shape(x.ty)[2:], (rows, columns)

    def weights_of(axis: int, dtype: torch.dtype) -> torch.Tensor:
        unit = torch.eye(space[axis], dtype=dtype)[None, None]
        new = [size[axis], space[axis]]
        return resize(unit, new, align_corners, scales[axis], None)[0, 0].T

    return resampled(builder, x, weights_of)


CONVERTERS: dict[str, Converter] = {
    **{f"_upsample_nearest_exact{rank}d.vec": _FLOOR_OF_CENTRE for rank in (1, 2, 3)},
    **{f"upsample_nearest{rank}d.vec": _FLOOR for rank in (1, 2, 3)},
    **{
        f"{resize._schema.name.removeprefix('aten::')}.default": partial(
            upsample_antialiased_to, resize
        )
        for resize in (
            torch.ops.aten._upsample_bilinear2d_aa.default,
            torch.ops.aten._upsample_bicubic2d_aa.default,
        )
    },
    "upsample_bicubic2d.vec": partial(upsample_smooth, "cubic"),
    "upsample_bilinear2d.vec": _LINEAR,
    "upsample_linear1d.vec": _LINEAR,
    "upsample_trilinear3d.vec": _LINEAR,
    **{
        f"{resize._schema.name.removeprefix('aten::')}.vec": partial(upsample_antialiased, resize)
        for resize in (
            torch.ops.aten._upsample_bilinear2d_aa.vec,
            torch.ops.aten._upsample_bicubic2d_aa.vec,
        )
    },
}
