"""Gradients of reductions."""

from __future__ import annotations

from tvm import te


def spread(
    output_gradient: te.Tensor, *, shape: tuple[int, ...], axes: tuple[int, ...], factor: float
) -> te.Tensor:
    """Each element gets the gradient of the sum it went into, times `factor`.

    `output_gradient` has no reduced axes.
    """
    return te.compute(
        shape,
        lambda *i: output_gradient(*(index for a, index in enumerate(i) if a not in axes)) * factor,
        name="spread",
    )
