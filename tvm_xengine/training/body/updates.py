"""Updates of the parameters from their gradients: unscaled, limited, clipped, applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm import relax

from tvm_xengine.kernels.te.updates.optimizer import clipped_value, clipping_scale, squared_norm
from tvm_xengine.training.body.declaration import Declaration
from tvm_xengine.training.emitter import Emitter, dtype_of
from tvm_xengine.training.optimizer import Rate, Update
from tvm_xengine.training.recipe import Recipe

Gradients = Iterator[tuple[relax.Var, relax.Expr]]
"""Trained parameters of the forward function with their gradients."""

Pairs = list[tuple[relax.Var, relax.Expr]]
"""Old and new state."""


def emit_updates(
    emitter: Emitter,
    recipe: Recipe,
    declared: Declaration,
    gradients: Gradients,
    scale: Sequence[relax.Expr] = (),
) -> Pairs:
    """One update per parameter, each as soon as its gradient is there unless all are clipped.

    Parameters
    ----------
    scale
        Factors of all gradients.
    """
    if recipe.loss_scale != 1:
        gradients = _unscaled(emitter, gradients, recipe.loss_scale)
    if recipe.max_gradient_value is not None:
        gradients = _limited(emitter, gradients, recipe.max_gradient_value)
    if recipe.max_gradient_norm is not None:
        gradients = iter(collected := list(gradients))
        scale = [_clipping_scale(emitter, collected, recipe.max_gradient_norm)]
    replaced: Pairs = []
    factors: dict[tuple[int, str], tuple[relax.Expr, ...]] = {}
    for param, gradient in gradients:
        slots, group, dtype = declared.slots[param], declared.groups[param], dtype_of(gradient)
        optimizer, lr, value = (
            recipe.optimizers[group],
            declared.rates[group],
            declared.values[param],
        )
        if (group, dtype) not in factors:
            factors[group, dtype] = optimizer.factors(emitter, Rate(lr, declared.step), dtype)
        update = Update(param.name, value, gradient, slots, lr, factors[group, dtype], list(scale))
        replaced += zip([value, *slots.values()], optimizer.emit(emitter, update), strict=True)
    return replaced


def _unscaled(emitter: Emitter, gradients: Gradients, loss_scale: float) -> Gradients:
    for param, gradient in gradients:
        back = relax.const(1 / loss_scale, dtype_of(gradient))
        unscaled = relax.op.multiply(gradient, back)
        yield param, emitter.bind(unscaled, f"{param.name}_grad_unscaled")


def _limited(emitter: Emitter, gradients: Gradients, limit: float) -> Gradients:
    for param, gradient in gradients:
        name = f"{param.name}_grad_clipped"
        yield param, emitter.call(clipped_value, [gradient], name, limit=limit)


def _clipping_scale(emitter: Emitter, gradients: Pairs, max_norm: float) -> relax.Expr:
    norms = [
        emitter.call(squared_norm, [gradient], f"{param.name}_squared_norm")
        for param, gradient in gradients
    ]
    return emitter.call(clipping_scale, norms, "clipping_scale", max_norm=max_norm)
