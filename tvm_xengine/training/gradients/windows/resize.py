"""Gradients of image resizing."""

from __future__ import annotations

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.resize import resize, resize_backward
from tvm_xengine.training.emitter import Emitter, Option, shape_of
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site

_METHODS = ("nearest_neighbor", "linear", "cubic")
_COORDINATES = (
    "half_pixel",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
)
_LAYOUTS = ("NCHW", "NCDHW")


def _resize(emitter: Emitter, site: Site) -> Linearized:
    options = _options(site)
    output = emitter.call(resize, [site.operands[0]], site.name, size=site.shape[2:], **options)

    def pullback(gradients: Gradients) -> Gradients:
        shape = shape_of(site.operands[0])
        name = site.grad_name(0)
        return (emitter.call(resize_backward, [gradients[0]], name, shape=shape, **options),)

    return Linearized((output,), pullback)


def _options(site: Site) -> dict[str, Option]:
    attrs = site.attrs
    method, layout = str(attrs.method), str(attrs.layout)
    coordinates = str(attrs.coordinate_transformation_mode)
    if method not in _METHODS or coordinates not in _COORDINATES:
        raise UnsupportedModelError(
            f"{site.name}: resizing by {method!r} with {coordinates!r} coordinates has no gradient;"
            f" expected one of {', '.join(_METHODS)} and of {', '.join(_COORDINATES)}"
        )
    if layout not in _LAYOUTS:
        raise UnsupportedModelError(
            f"{site.name}: resizing in the layout {layout}, only {', '.join(_LAYOUTS)} are "
            "supported; run relax.transform.ConvertLayout first"
        )
    aligned = coordinates == "align_corners"
    return {
        "method": method,
        "coordinates": coordinates,
        "rounding": str(attrs.rounding_method) or ("round" if aligned else "floor"),
        "alpha": float(attrs.cubic_alpha),
        "exclude_outside": bool(attrs.cubic_exclude),
    }


RULES: dict[str, Rule] = {"relax.image.resize2d": _resize, "relax.image.resize3d": _resize}
