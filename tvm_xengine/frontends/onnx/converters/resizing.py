"""Image resizing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.interpolation import Interpolation
from tvm_xengine.frontends.onnx.node import Converter, OnnxNode, literal
from tvm_xengine.frontends.torch.aten.shapes import product_along

_BY_TVM = {"nearest": {"asymmetric"}, "linear": {"half_pixel", "align_corners", "asymmetric"}}
"""Modes and coordinates for which TVM's kernels do what ONNX defines."""


@dataclass(frozen=True)
class _Axis:
    """To how many elements an axis is resized, how many times as many, and of which part."""

    axis: int
    size: int
    scale: float
    roi: tuple[float, float]


def resize(node: OnnxNode) -> relax.Expr | None:
    """Products with a matrix of weights for each axis that changes.

    Where TVM has a kernel that does the same, it is taken instead.
    """
    shape = node.shape()
    axes = _changed_axes(node, shape)
    if _tvm_can(node, axes, shape):
        return None
    if "float" not in node.dtype():
        raise UnsupportedModelError(f"{node.dtype()} images; only floats can be weighed")
    x, fill = node.input(0), node.number("extrapolation_value", 0.0)
    interpolation = _interpolation(node)
    for one in axes:
        weights, inside = interpolation.weights(shape[one.axis], one.size, one.scale, one.roi)
        x = product_along(node.builder, x, one.axis, weights)
        if interpolation.coordinates == "tf_crop_and_resize" and not inside.all():
            mask = inside.reshape([-1 if k == one.axis else 1 for k in range(len(shape))])
            filler = literal(fill, node.dtype())
            x = node.emit(relax.op.where(relax.const(mask, "bool"), x, filler))
    return x


def _changed_axes(node: OnnxNode, shape: Sequence[int]) -> list[_Axis]:
    """The axes whose elements change."""
    first = 1 if node.opset < 11 else 2
    scales, sizes = node.value(first, "the scales"), node.integers(3, "the sizes")
    if scales is None and "scales" in node.attributes:
        scales = np.asarray(node.attributes["scales"], "float32")
    given = node.attributes.get("axes", range(len(shape)))
    axes = [int(axis) % len(shape) for axis in given]  # type: ignore[attr-defined]
    if scales is not None and scales.size:
        fitted = [
            (int(shape[axis] * float(scale)), float(scale))
            for axis, scale in zip(axes, scales, strict=True)
        ]
    elif sizes:
        fitted = _fitted(node, [shape[axis] for axis in axes], sizes)
    else:
        raise UnsupportedModelError("neither scales nor sizes are given")
    roi = node.value(1, "the region") if node.opset >= 11 else None
    cropped = node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    made = []
    for k, (axis, (size, factor)) in enumerate(zip(axes, fitted, strict=True)):
        part = (0.0, 1.0)
        if cropped and roi is not None:
            part = float(roi[k]), float(roi[len(axes) + k])
        if factor != 1 or part != (0.0, 1.0):
            made.append(_Axis(axis, size, factor, part))
    return made


def _fitted(
    node: OnnxNode, extents: Sequence[int], sizes: Sequence[int]
) -> list[tuple[int, float]]:
    """Sizes and scales; with an aspect ratio to keep, all have the least or the largest scale."""
    factors = [size / extent for size, extent in zip(sizes, extents, strict=True)]
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return list(zip(sizes, factors, strict=True))
    one = min(factors) if policy == "not_larger" else max(factors)
    return [(int(np.floor(one * extent + 0.5)), one) for extent in extents]


def _tvm_can(node: OnnxNode, axes: Sequence[_Axis], shape: Sequence[int]) -> bool:
    """Whether TVM's kernel of images does the same."""
    mode = node.text("mode", "nearest")
    coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    rounding = node.text("nearest_mode", "round_prefer_floor")
    return (
        node.opset >= 11
        and len(shape) == 4
        and "axes" not in node.attributes
        and not node.integer("antialias", 0)
        and node.text("keep_aspect_ratio_policy", "stretch") == "stretch"
        and all(one.axis > 1 for one in axes)
        and all(float(shape[one.axis] * one.scale).is_integer() for one in axes)
        and coordinates in _BY_TVM.get(mode, ())
        and (mode != "nearest" or rounding == "floor")
    )


def _interpolation(node: OnnxNode) -> Interpolation:
    old = node.opset < 11
    return Interpolation(
        node.text("mode", "nearest"),
        node.text("coordinate_transformation_mode", "asymmetric" if old else "half_pixel"),
        node.text("nearest_mode", "floor" if old else "round_prefer_floor"),
        node.number("cubic_coeff_a", -0.75),
        bool(node.integer("exclude_outside", 0)),
        bool(node.integer("antialias", 0)),
    )


CONVERTERS: dict[str, Converter] = {"Resize": resize, "Upsample": resize}
