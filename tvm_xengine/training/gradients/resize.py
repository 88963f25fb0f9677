"""Gradients of image resizing."""

from __future__ import annotations

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.training.emitter import Emitter, shape_of
from tvm_xengine.training.kernels.resize import resize_backward
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site

_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


def _resize(emitter: Emitter, site: Site) -> Linearized:
    method = str(site.attrs.method)
    coordinates = str(site.attrs.coordinate_transformation_mode)
    layout = str(site.attrs.layout)
    if method not in ("nearest_neighbor", "linear") or coordinates not in _COORDINATES:
        raise UnsupportedModelError(
            f"{site.name}: resizing by {method} with {coordinates} coordinates has no gradient"
        )
    if layout not in ("NCHW", "NCDHW"):
        raise UnsupportedModelError(f"{site.name}: resizing in the layout {layout}")
    (output,) = site.emit(emitter)

    def pullback(gradients: Gradients) -> Gradients:
        return (
            emitter.call(
                resize_backward,
                [gradients[0]],
                site.grad_name(0),
                shape=shape_of(site.operands[0]),
                linear=method == "linear",
                coordinates=coordinates,
                rounding=str(site.attrs.rounding_method),
            ),
        )

    return Linearized((output,), pullback)


RULES: dict[str, Rule] = {"relax.image.resize2d": _resize, "relax.image.resize3d": _resize}
