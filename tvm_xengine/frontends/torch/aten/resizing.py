"""Image resizing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.torch.aten.converter import Builder, Converter, Expr
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
    if size is None:
        size = [int(extent * scale) for extent, scale in zip(space, scales or (), strict=True)]
    if scales and coordinates != "align_corners":
        _check_scales(space, size, scales)
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


def _check_scales(space: Sequence[int], size: Sequence[int], scales: Sequence[float]) -> None:
    """PyTorch takes coordinates from the factors; Relax only knows the sizes."""
    for extent, new_extent, scale in zip(space, size, scales, strict=True):
        if abs(extent * scale - new_extent) > 1e-6 * new_extent:
            raise UnsupportedModelError(
                f"{extent} elements times {scale} are not a whole number; resize to a size, or "
                "with recompute_scale_factor=True"
            )


_FLOOR = partial(upsample_nearest, "asymmetric")
_FLOOR_OF_CENTRE = partial(upsample_nearest, "tf_half_pixel_for_nn")
_LINEAR = partial(upsample_smooth, "linear")

CONVERTERS: dict[str, Converter] = {
    **{f"_upsample_nearest_exact{rank}d.vec": _FLOOR_OF_CENTRE for rank in (1, 2, 3)},
    **{f"upsample_nearest{rank}d.vec": _FLOOR for rank in (1, 2, 3)},
    "upsample_bicubic2d.vec": partial(upsample_smooth, "cubic"),
    "upsample_bilinear2d.vec": _LINEAR,
    "upsample_linear1d.vec": _LINEAR,
    "upsample_trilinear3d.vec": _LINEAR,
}
