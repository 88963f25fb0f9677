"""Gradients of convolutions."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.accumulate import sum_dtype
from tvm_xengine.kernels.te.convolution import conv_data_gradient, conv_weight_gradient
from tvm_xengine.training.emitter import Emitter, Option, dtype_of, shape_of
from tvm_xengine.training.gradients.products.accumulate import in_type_of, narrowed
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site

_LAYOUTS = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
}


def _convolution(emitter: Emitter, site: Site) -> Linearized:
    _check_layout(site, _LAYOUTS[site.source.op])
    data, weight = site.operands
    options = _options(site)
    output = _convolved(emitter, data, weight, options, _result_dtype(site), site.name)

    def pullback(gradients: Gradients) -> Gradients:
        gradient = in_type_of(emitter, gradients[0], data, site.name)
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


_TRANSPOSED_LAYOUTS = {
    "relax.nn.conv1d_transpose": ("NCW", "IOW"),
    "relax.nn.conv2d_transpose": ("NCHW", "IOHW"),
    "relax.nn.conv3d_transpose": ("NCDHW", "IODHW"),
}


def _transposed_convolution(emitter: Emitter, site: Site) -> Linearized:
    """The data gradient of a convolution, whose gradients are a convolution and its weight's."""
    _check_layout(site, _TRANSPOSED_LAYOUTS[site.source.op])
    data, weight = site.operands
    options = _options(site)
    output = emitter.call_as(
        site.source.op.removeprefix("relax.nn."),
        conv_data_gradient,
        [data, weight],
        site.name,
        data_shape=site.shape,
        **options,
    )
    if _result_dtype(site) != dtype_of(data):
        output = emitter.bind(relax.op.astype(output, _result_dtype(site)), f"{site.name}_cast")

    def pullback(gradients: Gradients) -> Gradients:
        gradient = in_type_of(emitter, gradients[0], data, site.name)
        pulled: list[relax.Expr | None] = [None, None]
        if site.needs[0]:
            exact = {**options, "padding": _exact_padding(site)}
            name = site.grad_name(0)
            pulled[0] = _convolved(emitter, gradient, weight, exact, dtype_of(data), name)
        if site.needs[1]:
            pulled[1] = emitter.call(
                conv_weight_gradient,
                [gradient, data],
                site.grad_name(1),
                kernel_shape=shape_of(weight)[2:],
                **options,
            )
        return tuple(pulled)

    return Linearized((output,), pullback)


def _convolved(
    emitter: Emitter,
    data: relax.Expr,
    weight: relax.Expr,
    options: dict[str, Option],
    dtype: str,
    name: str,
) -> relax.Expr:
    """A convolution with a result of type `dtype`, added up in float32 where that is shorter."""
    convolution = _CONVOLUTIONS[len(shape_of(data)) - 2]
    summed = convolution(data, weight, **options, out_dtype=sum_dtype(dtype))
    return narrowed(emitter, summed, dtype, name)


def _result_dtype(site: Site) -> str:
    return str(site.source.results[0].ty.dtype)


def _options(site: Site) -> dict[str, Option]:
    attrs = site.attrs
    lists = {name: _ints(getattr(attrs, name)) for name in ("strides", "padding", "dilation")}
    return {**lists, "groups": int(attrs.groups)}


def _exact_padding(site: Site) -> tuple[int, ...]:
    """Padding for which the convolution of the output has exactly the shape of the data."""
    rank = len(site.shape) - 2
    before = _ints(site.attrs.padding)[:rank]
    strides, dilation = _ints(site.attrs.strides), _ints(site.attrs.dilation)
    kernel = shape_of(site.operands[1])[2:]
    after = tuple(
        (shape_of(site.operands[0])[a + 2] - 1) * strides[a]
        + dilation[a] * (kernel[a] - 1)
        + 1
        - site.shape[a + 2]
        - before[a]
        for a in range(rank)
    )
    return (*before, *after)


_CONVOLUTIONS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}


def _check_layout(site: Site, expected: tuple[str, str]) -> None:
    found = (str(site.attrs.data_layout), str(site.attrs.kernel_layout))
    if found != expected:
        raise UnsupportedModelError(
            f"{site.name}: {site.source.op} has the layouts {found}, only {expected} is supported; "
            "run relax.transform.ConvertLayout first"
        )


def _ints(values: object) -> tuple[int, ...]:
    return tuple(int(value) for value in values)  # type: ignore[attr-defined]


RULES: dict[str, Rule] = {
    **dict.fromkeys(_LAYOUTS, _convolution),
    **dict.fromkeys(_TRANSPOSED_LAYOUTS, _transposed_convolution),
}
