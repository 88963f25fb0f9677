"""Gradients of pooling."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.pooling import (
    adaptive_avg_pool_backward,
    avg_pool_backward,
    max_pool_backward,
    max_pool_forward,
)
from tvm_xengine.training.emitter import Emitter, Option, shape_of
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site, by_pullback

_LAYOUTS = ("NCW", "NCHW", "NCDHW")


def _max_pool(emitter: Emitter, site: Site) -> Linearized:
    window = _window(site)
    output, position = emitter.call_many(
        max_pool_forward,
        site.operands,
        f"{site.name}_forward",
        (site.name, f"{site.name}_position"),
        output_shape=site.shape,
        **window,
    )

    def pullback(gradients: Gradients) -> Gradients:
        tensors = [gradients[0], position]
        shape = shape_of(site.operands[0])
        name = site.grad_name(0)
        return (emitter.call(max_pool_backward, tensors, name, data_shape=shape, **window),)

    return Linearized((output,), pullback)


@by_pullback
def _avg_pool(emitter: Emitter, site: Site, gradient: relax.Expr) -> Gradients:
    window = _window(site)
    return (
        emitter.call(
            avg_pool_backward,
            [gradient],
            site.grad_name(0),
            data_shape=shape_of(site.operands[0]),
            count_include_pad=bool(site.attrs.count_include_pad),
            **window,
        ),
    )


def _adaptive_avg_pool(emitter: Emitter, site: Site) -> Linearized:
    _check_layout(site)
    (output,) = site.emit(emitter)
    shape = shape_of(site.operands[0])

    def pullback(gradients: Gradients) -> Gradients:
        (gradient,) = gradients
        name = site.grad_name(0)
        space, out_space = shape[2:], site.shape[2:]
        if any(whole % part for whole, part in zip(space, out_space, strict=True)):
            return (emitter.call(adaptive_avg_pool_backward, [gradient], name, data_shape=shape),)
        size = tuple(whole // part for whole, part in zip(space, out_space, strict=True))
        return (
            emitter.call(
                avg_pool_backward,
                [gradient],
                name,
                data_shape=shape,
                count_include_pad=True,
                pool_size=size,
                strides=size,
                padding=(0,) * (2 * len(space)),
                dilation=(1,) * len(space),
            ),
        )

    return Linearized((output,), pullback)


def _window(site: Site) -> dict[str, Option]:
    _check_layout(site)
    names = ("pool_size", "strides", "padding", "dilation")
    return {name: tuple(int(value) for value in getattr(site.attrs, name)) for name in names}


def _check_layout(site: Site) -> None:
    if str(site.attrs.layout) not in _LAYOUTS:
        raise UnsupportedModelError(
            f"{site.name}: {site.source.op} has the layout {site.attrs.layout}, "
            f"only {', '.join(_LAYOUTS)} are supported; run relax.transform.ConvertLayout first"
        )


RULES: dict[str, Rule] = {
    **{f"relax.nn.max_pool{rank}d": _max_pool for rank in (1, 2, 3)},
    **{f"relax.nn.avg_pool{rank}d": _avg_pool for rank in (1, 2, 3)},
    **{f"relax.nn.adaptive_avg_pool{rank}d": _adaptive_avg_pool for rank in (1, 2, 3)},
}
