"""Gradients of convolutions."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.training.emitter import Emitter, Option, shape_of
from tvm_xengine.training.kernels.convolution import conv_data_gradient, conv_weight_gradient
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site

_LAYOUTS = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
}


def _convolution(emitter: Emitter, site: Site) -> Linearized:
    _check_layout(site, _LAYOUTS[site.source.op])
    data, weight = site.operands
    options: dict[str, Option] = {
        "strides": _ints(site.attrs.strides),
        "padding": _ints(site.attrs.padding),
        "dilation": _ints(site.attrs.dilation),
        "groups": int(site.attrs.groups),
    }
    (output,) = site.emit(emitter)

    def pullback(gradients: Gradients) -> Gradients:
        (gradient,) = gradients
        return (
            _data_gradient(gradient) if site.needs[0] else None,
            _weight_gradient(gradient) if site.needs[1] else None,
        )

    def _data_gradient(gradient: relax.Expr | None) -> relax.Expr:
        return emitter.call(
            conv_data_gradient,
            [gradient, weight],
            site.grad_name(0),
            data_shape=shape_of(data),
            **options,
        )

    def _weight_gradient(gradient: relax.Expr | None) -> relax.Expr:
        return emitter.call(
            conv_weight_gradient,
            [data, gradient],
            site.grad_name(1),
            kernel_shape=shape_of(weight)[2:],
            **options,
        )

    return Linearized((output,), pullback)


def _check_layout(site: Site, expected: tuple[str, str]) -> None:
    found = (str(site.attrs.data_layout), str(site.attrs.kernel_layout))
    if found != expected:
        raise UnsupportedModelError(
            f"{site.name}: {site.source.op} has the layouts {found}, only {expected} is supported; "
            "run relax.transform.ConvertLayout first"
        )


def _ints(values: object) -> tuple[int, ...]:
    return tuple(int(value) for value in values)  # type: ignore[attr-defined]


RULES: dict[str, Rule] = dict.fromkeys(_LAYOUTS, _convolution)
