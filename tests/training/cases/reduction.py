"""Reductions over any axes, with and without the axes kept."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import assume
from tvm import relax

from tests.training.cases.case import Array, Case, Draw, DrawCase
from tvm_xengine.relax_ir.own_ops import RUNNING_LOG_SUM, running_log_sum

op, nn = relax.op, relax.op.nn

Ours = Callable[..., relax.Expr]
Theirs = Callable[[torch.Tensor, list[int], bool], torch.Tensor]


def _reduction(ours: Ours, theirs: Theirs, *, extents: tuple[int, int] = (1, 4)) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        return _case(draw, ours, theirs, draw.normal(*draw.shape(extents=extents)))

    return draw_case


def _extremum(ours: Ours, theirs: Theirs) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        x = draw.distinct(*draw.shape())
        ties = draw.flag()
        return _case(draw, ours, theirs, np.round(x * 0.5) if ties else x, smooth=not ties)

    return draw_case


def _product_with_zeros(draw: Draw) -> Case:
    x = draw.indices(3, *draw.shape()).astype("float64") - draw.one_of([0, 1])
    return _case(draw, op.prod, _prod, x)


def _case(draw: Draw, ours: Ours, theirs: Theirs, x: Array, *, smooth: bool = True) -> Case:
    axes, keep = draw.axes(x.ndim), draw.flag()
    every = list(range(x.ndim)) if axes is None else axes
    return Case(
        lambda x: ours(x, axes, keepdims=keep),
        lambda x: theirs(x, every, keep),
        {"x": x},
        smooth,
    )


def _prod(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=True)
    return (
        x
        if keep
        else x.reshape([e for a, e in enumerate(x.shape) if a not in [b % x.ndim for b in axes]])
    )


def _cumulative(
    ours: Ours, theirs: Callable[[torch.Tensor, int], torch.Tensor], start: float
) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        x = draw.normal(*draw.shape())
        if draw.flag():
            x = np.asarray(np.round(x))
        axis, exclusive = draw.axis(x.ndim), draw.flag()

        def reference(x: torch.Tensor) -> torch.Tensor:
            if exclusive:
                first = torch.full_like(x.narrow(axis, 0, 1), start)
                x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
            return theirs(x, axis)

        return Case(lambda x: ours(x, axis, exclusive=exclusive), reference, {"x": x})

    return draw_case


def _cumulative_of_all(ours: Ours, theirs: Callable[[torch.Tensor, int], torch.Tensor]) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        x = draw.normal(*draw.shape())
        return Case(lambda x: ours(x), lambda x: theirs(x.flatten(), 0), {"x": x})

    return draw_case


def _running_log_sum(draw: Draw) -> Case:
    x = draw.normal(*draw.shape())
    axis = draw.axis(x.ndim)
    return Case(lambda x: running_log_sum(x, axis), lambda x: torch.logcumsumexp(x, axis), {"x": x})


def _cross_entropy_with_logits(draw: Draw) -> Case:
    shape = draw.shape(ranks=(1, 2))
    batch = shape[0] if len(shape) > 1 else 1
    return Case(
        nn.cross_entropy_with_logits,
        lambda a, b: -(a * b).sum() / batch,
        {"a": draw.normal(*shape), "b": draw.normal(*shape)},
    )


def _nll_loss(draw: Draw) -> Case:
    shape = [draw.integer(1, 4), draw.integer(1, 4), *draw.integers(draw.integer(0, 2), 1, 3)]
    if draw.flag():
        shape = shape[1:2]
    axis = min(len(shape) - 1, 1)
    classes, rest = shape[axis], shape[:axis] + shape[axis + 1 :]
    labels = draw.indices(classes, *rest)
    ignored = draw.one_of([-100, 0, -1])
    if draw.flag() and rest:
        labels = np.where(draw.indices(3, *rest) == 0, ignored, labels)
    assume(not (labels == ignored).all())
    reduction = draw.one_of(["mean", "sum", "none"])
    weights = {"w": draw.uniform(0.5, 2, classes)} if draw.flag() else {}
    return Case(
        lambda x, t, *w: nn.nll_loss(x, t, *w, reduction=reduction, ignore_index=ignored),
        lambda x, t, *w: F.nll_loss(x, t, *w, reduction=reduction, ignore_index=ignored),
        {"x": draw.normal(*shape), "t": np.asarray(labels), **weights},
        fixed=("w",),
    )


CASES: dict[str, list[DrawCase]] = {
    "sum": [_reduction(op.sum, lambda x, axes, keep: x.sum(axes, keepdim=keep))],
    "mean": [_reduction(op.mean, lambda x, axes, keep: x.mean(axes, keepdim=keep))],
    "max": [_extremum(op.max, lambda x, axes, keep: x.amax(axes, keepdim=keep))],
    "min": [_extremum(op.min, lambda x, axes, keep: x.amin(axes, keepdim=keep))],
    "prod": [_reduction(op.prod, _prod), _product_with_zeros],
    "variance": [
        _reduction(op.variance, lambda x, axes, keep: x.var(axes, correction=0, keepdim=keep))
    ],
    "std": [
        _reduction(
            op.std, lambda x, axes, keep: x.std(axes, correction=0, keepdim=keep), extents=(2, 4)
        )
    ],
    "cumsum": [
        _cumulative(op.cumsum, torch.cumsum, 0),
        _cumulative_of_all(op.cumsum, torch.cumsum),
    ],
    "cumprod": [
        _cumulative(op.cumprod, torch.cumprod, 1),
        _cumulative_of_all(op.cumprod, torch.cumprod),
    ],
    RUNNING_LOG_SUM: [_running_log_sum],
    "nn.nll_loss": [_nll_loss],
    "nn.cross_entropy_with_logits": [_cross_entropy_with_logits],
}
