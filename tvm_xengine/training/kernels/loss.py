"""Losses as single kernels: forward with what the backward needs, backward."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import tvm
from tvm import te
from tvm.tirx import Expr, Var


def cross_entropy_forward(
    logits: te.Tensor,
    labels: te.Tensor,
    *,
    axis: int,
    label_smoothing: float,
    ignore_index: int,
) -> list[te.Tensor]:
    """Softmax cross-entropy, averaged over the labels that are not ignored.

    Returns the loss, the logarithms of the probabilities, how many labels count (float32) and how
    many of them have the largest logit (int32).
    """
    shape = [int(extent) for extent in logits.shape]
    classes = shape[axis]
    outer = shape[:axis] + shape[axis + 1 :]
    dtype = logits.dtype

    def at(position: tuple[Expr, ...], index: Expr) -> tuple[Expr, ...]:
        return (*position[:axis], index, *position[axis:])

    k = te.reduce_axis((0, classes), name="k")
    largest = te.compute(outer, lambda *i: te.max(logits(*at(i, k)), axis=k), name="largest")
    j = te.reduce_axis((0, classes), name="j")
    total = te.compute(
        outer,
        lambda *i: te.sum(te.exp(logits(*at(i, j)) - largest(*i)), axis=j),
        name="total",
    )
    log_probabilities = te.compute(
        shape,
        lambda *i: (
            logits(*i)
            - largest(*i[:axis], *i[axis + 1 :])
            - te.log(total(*i[:axis], *i[axis + 1 :]))
        ),
        name="log_probabilities",
    )

    def counts(i: tuple[Expr, ...]) -> Expr:
        return labels(*i) != tvm.tirx.const(ignore_index, labels.dtype)

    def safe_label(i: tuple[Expr, ...]) -> Expr:
        zero = tvm.tirx.const(0, labels.dtype)
        return tvm.tirx.Select(counts(i), labels(*i), zero).astype("int32")

    over = [te.reduce_axis((0, extent), name=f"n{a}") for a, extent in enumerate(outer)]
    counted = te.compute(
        (),
        lambda: te.sum(counts(tuple(over)).astype("float32"), axis=over),
        name="counted",
    )
    every = [te.reduce_axis((0, extent), name=f"m{a}") for a, extent in enumerate(outer)]
    correct = te.compute(
        (),
        lambda: te.sum(
            tvm.tirx.all(
                counts(tuple(every)),
                logits(*at(tuple(every), safe_label(tuple(every)))) >= largest(*every),
            ).astype("int32"),
            axis=every,
        ),
        name="correct",
    )
    zero = tvm.tirx.const(0, dtype)
    picked = [te.reduce_axis((0, extent), name=f"p{a}") for a, extent in enumerate(outer)]
    likelihood = te.compute(
        (),
        lambda: te.sum(
            tvm.tirx.Select(
                counts(tuple(picked)),
                log_probabilities(*at(tuple(picked), safe_label(tuple(picked)))),
                zero,
            ),
            axis=picked,
        ),
        name="likelihood",
    )
    if not label_smoothing:
        loss = te.compute((), lambda: -likelihood() / counted().astype(dtype), name="loss")
        return [loss, log_probabilities, counted, correct]

    spread = [te.reduce_axis((0, extent), name=f"s{a}") for a, extent in enumerate(outer)]
    c = te.reduce_axis((0, classes), name="c")
    uniform = te.compute(
        (),
        lambda: te.sum(
            tvm.tirx.Select(counts(tuple(spread)), log_probabilities(*at(tuple(spread), c)), zero),
            axis=[*spread, c],
        ),
        name="uniform",
    )
    smoothed = te.compute(
        (),
        lambda: (
            -(likelihood() * (1 - label_smoothing) + uniform() * (label_smoothing / classes))
            / counted().astype(dtype)
        ),
        name="loss",
    )
    return [smoothed, log_probabilities, counted, correct]


def cross_entropy_backward(
    log_probabilities: te.Tensor,
    labels: te.Tensor,
    counted: te.Tensor,
    *,
    axis: int,
    label_smoothing: float,
    ignore_index: int,
) -> te.Tensor:
    """Gradient of the logits: (softmax - target) / counted, zero where the label is ignored."""
    dtype = log_probabilities.dtype
    classes = int(log_probabilities.shape[axis])

    def gradient(*i: Var) -> Expr:
        label = labels(*i[:axis], *i[axis + 1 :])
        hit = tvm.tirx.const(1 - label_smoothing, dtype)
        zero = tvm.tirx.const(0, dtype)
        target = tvm.tirx.Select(label == i[axis].astype(labels.dtype), hit, zero)
        if label_smoothing:
            target = target + tvm.tirx.const(label_smoothing / classes, dtype)
        value = (te.exp(log_probabilities(*i)) - target) / counted().astype(dtype)
        ignored = label == tvm.tirx.const(ignore_index, labels.dtype)
        return tvm.tirx.Select(ignored, zero, value)

    return te.compute(log_probabilities.shape, gradient, name="logits_gradient")


def binary_cross_entropy_forward(logits: te.Tensor, targets: te.Tensor) -> te.Tensor:
    """Mean of max(x, 0) - x * t + log(1 + exp(-|x|)), which never overflows."""

    def element(*i: Expr) -> Expr:
        x = logits(*i)
        zero = tvm.tirx.const(0, logits.dtype)
        return te.max(x, zero) - x * targets(*i) + te.log(1 + te.exp(-te.abs(x)))

    return _mean(logits, element)


def binary_cross_entropy_backward(logits: te.Tensor, targets: te.Tensor) -> te.Tensor:
    """Gradient of the logits: (sigmoid(x) - t) / elements."""
    share = 1 / prod(_shape(logits))
    return te.compute(
        logits.shape,
        lambda *i: (te.sigmoid(logits(*i)) - targets(*i)) * share,
        name="logits_gradient",
    )


def mean_squared_error_forward(prediction: te.Tensor, targets: te.Tensor) -> te.Tensor:
    """Mean of the squared differences."""

    def element(*i: Expr) -> Expr:
        difference = prediction(*i) - targets(*i)
        return difference * difference

    return _mean(prediction, element)


def mean_squared_error_backward(prediction: te.Tensor, targets: te.Tensor) -> te.Tensor:
    """Gradient of the prediction: 2 (x - t) / elements."""
    share = 2 / prod(_shape(prediction))
    return te.compute(
        prediction.shape,
        lambda *i: (prediction(*i) - targets(*i)) * share,
        name="prediction_gradient",
    )


def mean_absolute_error_forward(prediction: te.Tensor, targets: te.Tensor) -> te.Tensor:
    """Mean of the absolute differences."""
    return _mean(prediction, lambda *i: te.abs(prediction(*i) - targets(*i)))


def mean_absolute_error_backward(prediction: te.Tensor, targets: te.Tensor) -> te.Tensor:
    """Gradient of the prediction: sign(x - t) / elements, zero where they are equal."""
    share = 1 / prod(_shape(prediction))

    def gradient(*i: Var) -> Expr:
        difference = prediction(*i) - targets(*i)
        zero = tvm.tirx.const(0, prediction.dtype)
        up = tvm.tirx.Select(difference > zero, tvm.tirx.const(share, prediction.dtype), zero)
        return tvm.tirx.Select(difference < zero, tvm.tirx.const(-share, prediction.dtype), up)

    return te.compute(prediction.shape, gradient, name="prediction_gradient")


def dice_forward(logits: te.Tensor, labels: te.Tensor, *, smooth: float) -> list[te.Tensor]:
    """1 - mean over classes of (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth).

    The probabilities p are the softmax over axis 1, the targets t the labels one-hot. Returns the
    loss, the probabilities, and per class the numerator and the denominator.
    """
    shape = _shape(logits)
    batch, classes, *space = shape
    dtype = logits.dtype
    k = te.reduce_axis((0, classes), name="k")
    largest = te.compute(
        (batch, *space), lambda n, *i: te.max(logits(n, k, *i), axis=k), name="largest"
    )
    j = te.reduce_axis((0, classes), name="j")
    total = te.compute(
        (batch, *space),
        lambda n, *i: te.sum(te.exp(logits(n, j, *i) - largest(n, *i)), axis=j),
        name="total",
    )
    probabilities = te.compute(
        shape,
        lambda n, c, *i: te.exp(logits(n, c, *i) - largest(n, *i)) / total(n, *i),
        name="probabilities",
    )
    one, zero = tvm.tirx.const(1, dtype), tvm.tirx.const(0, dtype)

    def target(n: Expr, c: Expr, *i: Expr) -> Expr:
        return tvm.tirx.Select(labels(n, *i) == c.astype(labels.dtype), one, zero)

    def per_class(name: str, element: Callable[..., Expr]) -> te.Tensor:
        over = [
            te.reduce_axis((0, extent), name=f"n{a}") for a, extent in enumerate([batch, *space])
        ]
        return te.compute(
            (classes,),
            lambda c: te.sum(element(over[0], c, *over[1:]), axis=over),
            name=name,
        )

    overlap = per_class("overlap", lambda *at: probabilities(*at) * target(*at))
    mass = per_class("mass", lambda *at: probabilities(*at) + target(*at))
    above = te.compute((classes,), lambda c: overlap(c) * 2 + smooth, name="above")
    below = te.compute((classes,), lambda c: mass(c) + smooth, name="below")
    m = te.reduce_axis((0, classes), name="m")
    summed = te.compute((), lambda: te.sum(above(m) / below(m), axis=m), name="summed")
    loss = te.compute((), lambda: one - summed() * (1 / classes), name="loss")
    return [loss, probabilities, above, below]


def dice_backward(
    probabilities: te.Tensor, labels: te.Tensor, above: te.Tensor, below: te.Tensor
) -> te.Tensor:
    """Gradient of the logits, through the softmax: p (d - sum_c p d), d the gradient of p."""
    shape = _shape(probabilities)
    batch, classes, *space = shape
    dtype = probabilities.dtype
    two, zero = tvm.tirx.const(2, dtype), tvm.tirx.const(0, dtype)

    def direct(n: Expr, c: Expr, *i: Expr) -> Expr:
        hit = tvm.tirx.Select(labels(n, *i) == c.astype(labels.dtype), two, zero)
        return (above(c) / below(c) - hit) / below(c) * (1 / classes)

    k = te.reduce_axis((0, classes), name="k")
    mixed = te.compute(
        (batch, *space),
        lambda n, *i: te.sum(probabilities(n, k, *i) * direct(n, k, *i), axis=k),
        name="mixed",
    )
    return te.compute(
        shape,
        lambda n, c, *i: probabilities(n, c, *i) * (direct(n, c, *i) - mixed(n, *i)),
        name="logits_gradient",
    )


def _mean(like: te.Tensor, element: Callable[..., Expr]) -> te.Tensor:
    over = [te.reduce_axis((0, extent), name=f"n{a}") for a, extent in enumerate(like.shape)]
    total = te.compute((), lambda: te.sum(element(*over), axis=over), name="total")
    return te.compute((), lambda: total() * (1 / prod(_shape(like))), name="loss")


def _shape(tensor: te.Tensor) -> list[int]:
    return [int(extent) for extent in tensor.shape]
