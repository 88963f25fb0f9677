"""Gradients of running sums, products and logarithms of sums."""

from __future__ import annotations

from math import prod

from tvm import relax

from tvm_xengine.kernels.te.indexing.scan import (
    running_extreme,
    running_log_sum,
    running_log_sum_backward,
    running_product,
    running_product_backward,
    running_sum,
)
from tvm_xengine.relax_ir.own_ops import RUNNING_EXTREME, RUNNING_LOG_SUM, options_of
from tvm_xengine.training.emitter import Emitter, dtype_of, shape_of
from tvm_xengine.training.gradients.shape import shaped
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site


def _cumsum(emitter: Emitter, site: Site) -> Linearized:
    exclusive = bool(site.attrs.exclusive)
    data = _as_lines(emitter, site, site.operands[0], f"{site.name}_data")
    summed = emitter.call(
        running_sum, [data], f"{site.name}_lines", exclusive=exclusive, reverse=False
    )

    def pullback(gradients: Gradients) -> Gradients:
        lines = _as_lines(emitter, site, gradients[0], f"{site.name}_backward_input")
        pulled = emitter.call(
            running_sum, [lines], site.grad_name(0), exclusive=exclusive, reverse=True
        )
        return (_in_place_of_data(emitter, site, pulled),)

    return Linearized((shaped(emitter, summed, site.shape, site.name),), pullback)


def _cumprod(emitter: Emitter, site: Site) -> Linearized:
    exclusive = bool(site.attrs.exclusive)
    data = _as_lines(emitter, site, site.operands[0], f"{site.name}_data")
    product = emitter.call(running_product, [data], f"{site.name}_lines", exclusive=exclusive)

    def pullback(gradients: Gradients) -> Gradients:
        lines = _as_lines(emitter, site, gradients[0], f"{site.name}_backward_input")
        pulled = emitter.call(
            running_product_backward, [lines, data], site.grad_name(0), exclusive=exclusive
        )
        return (_in_place_of_data(emitter, site, pulled),)

    return Linearized((shaped(emitter, product, site.shape, site.name),), pullback)


def _running_extreme(emitter: Emitter, site: Site) -> Linearized:
    axis, largest = (int(number) for number in options_of(site.source.call))
    shape = site.shape
    data = shaped(emitter, site.operands[0], _lines(shape, axis), f"{site.name}_data")
    found = emitter.call(running_extreme, [data], f"{site.name}_lines", largest=bool(largest))
    return Linearized((shaped(emitter, found, shape, site.name),), lambda _gradients: (None,))


def _running_log_sum(emitter: Emitter, site: Site) -> Linearized:
    shape, (axis,) = site.shape, (int(number) for number in options_of(site.source.call))
    lines = _lines(shape, axis)
    data = shaped(emitter, site.operands[0], lines, f"{site.name}_data")
    summed = emitter.call(running_log_sum, [data], f"{site.name}_lines")

    def pullback(gradients: Gradients) -> Gradients:
        given = shaped(emitter, gradients[0], lines, f"{site.name}_backward_input")
        pulled = emitter.call(running_log_sum_backward, [given, data, summed], site.grad_name(0))
        return (_in_place_of_data(emitter, site, pulled),)

    return Linearized((shaped(emitter, summed, shape, site.name),), pullback)


def _as_lines(emitter: Emitter, site: Site, value: relax.Expr, name: str) -> relax.Expr:
    """As (outer, length, inner), in the type of the result; no axis means all elements in a row."""
    if dtype_of(value) != str(site.source.results[0].ty.dtype):
        value = emitter.bind(
            relax.op.astype(value, str(site.source.results[0].ty.dtype)), f"{name}_cast"
        )
    shape = shape_of(value)
    if site.attrs.axis is None:
        return shaped(emitter, value, (1, prod(shape), 1), name)
    return shaped(emitter, value, _lines(shape, int(site.attrs.axis)), name)


def _lines(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """The shape as (outer, length, inner) around an axis, which may count from the end."""
    axis %= len(shape)
    return (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))


def _in_place_of_data(emitter: Emitter, site: Site, gradient: relax.Expr) -> relax.Expr:
    data, name = site.operands[0], site.grad_name(0)
    gradient = shaped(emitter, gradient, shape_of(data), f"{name}_shaped")
    if dtype_of(gradient) == dtype_of(data):
        return gradient
    return emitter.bind(relax.op.astype(gradient, dtype_of(data)), f"{name}_cast")


RULES: dict[str, Rule] = {
    "relax.cumsum": _cumsum,
    "relax.cumprod": _cumprod,
    RUNNING_EXTREME: _running_extreme,
    RUNNING_LOG_SUM: _running_log_sum,
}
