"""Resampled images as products with matrices of weights, which PyTorch itself computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tvm import relax

from tvm_xengine.frontends.torch.aten.converter import Builder, Expr
from tvm_xengine.relax_ir.types import static_shape

Weights = Callable[[int, torch.dtype], torch.Tensor]
"""For the position of an axis in the space and a type: what each element adds to each new one."""


def resampled(builder: Builder, x: Expr, weights_of: Weights) -> Expr:
    """An image of (batch, channels, *space) with each axis of its space resampled.

    `weights_of` returns matrices of (old extent, new extent).
    """
    shape, dtype = static_shape(x.ty), str(x.ty.dtype)
    for axis in range(2, len(shape)):
        weights = weights_of(axis - 2, getattr(torch, dtype)).contiguous()
        order = [*(a for a in range(len(shape)) if a != axis), axis]
        back = [order.index(a) for a in range(len(shape))]
        last = x if axis == len(shape) - 1 else builder.emit(relax.op.permute_dims(x, order))
        made = builder.emit(relax.op.matmul(last, relax.const(weights.numpy(), dtype)))
        x = made if axis == len(shape) - 1 else builder.emit(relax.op.permute_dims(made, back))
    return x


def is_whole(space: Sequence[int], scales: Sequence[float]) -> bool:
    """Whether every extent times its factor is an integer, up to rounding."""
    products = [extent * scale for extent, scale in zip(space, scales, strict=True)]
    return all(abs(product - int(product + 1e-6)) <= 1e-6 * product for product in products)
