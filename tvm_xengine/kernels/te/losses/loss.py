"""Losses as single kernels: forward with what the backward needs, backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import tvm
from tvm import te
from tvm.tirx import Expr, Var

from tvm_xengine.kernels.te.losses.labels import Labels, labelled


def cross_entropy_forward(
    logits: te.Tensor,
    labels: te.Tensor,
    *weights: te.Tensor,
    axis: int,
    label_smoothing: float,
    ignore_index: int,
) -> list[te.Tensor]:
    """Softmax cross-entropy, averaged by weight over the labels that are not ignored.

    A row with label t adds -(1 - s) w[t] log p[t] - s / classes * sum_c w[c] log p[c] with the
    label smoothing s, as in PyTorch. Returns the loss, the logarithms of the probabilities, the
    sum of the weights that count, and how many rows have the largest logit at their label (int32).
    """
    rows = labelled(logits, labels, weights, axis, ignore_index)
    largest = _over_classes(rows, logits, lambda _row, logit: logit, te.max, "largest")
    total = _over_classes(
        rows, logits, lambda row, logit: te.exp(logit - largest(*row)), te.sum, "total"
    )
    log_probabilities = te.compute(
        logits.shape,
        lambda *i: logits(*i) - largest(*rows.row(i)) - te.log(total(*rows.row(i))),
        name="log_probabilities",
    )
    counted = rows.total_weight()
    correct = rows.total(
        lambda row: tvm.tirx.all(
            rows.counts(row),
            rows.inside(row),
            logits(*rows.at(row, rows.label(row))) >= largest(*row),
        ).astype("int32"),
        "correct",
    )

    def likelihood(row: Sequence[Expr]) -> Expr:
        label = rows.label(row)
        return rows.counted(row, rows.weight_of(label) * log_probabilities(*rows.at(row, label)))

    likely = rows.total(likelihood, "likelihood")
    if label_smoothing:
        loss = _smoothed(rows, labels, log_probabilities, (likely, counted), label_smoothing)
    else:
        loss = te.compute((), lambda: -likely() / counted(), name="loss")
    return [loss, log_probabilities, counted, correct]


def _smoothed(
    rows: Labels,
    labels: te.Tensor,
    log_probabilities: te.Tensor,
    totals: tuple[te.Tensor, te.Tensor],
    label_smoothing: float,
) -> te.Tensor:
    """The loss with smoothed labels, from the sums of likelihoods and of weights."""
    likely, counted = totals
    c = te.reduce_axis((0, rows.classes), name="c")
    spread = te.compute(
        labels.shape,
        lambda *row: te.sum(rows.weight_of(c) * log_probabilities(*rows.at(row, c)), axis=c),
        name="spread",
    )
    uniform = rows.total(lambda row: rows.counted(row, spread(*row)), "uniform")
    share = label_smoothing / rows.classes
    return te.compute(
        (),
        lambda: -(likely() * (1 - label_smoothing) + uniform() * share) / counted(),
        name="loss",
    )


def cross_entropy_backward(
    log_probabilities: te.Tensor,
    labels: te.Tensor,
    counted: te.Tensor,
    *weights: te.Tensor,
    axis: int,
    label_smoothing: float,
    ignore_index: int,
) -> te.Tensor:
    """Gradient of the logits, zero where the label is ignored.

    With p = softmax, s the smoothing and W = sum_c w[c], row by row:
    ((1 - s) w[t] (p[c] - [c = t]) + s / classes (p[c] W - w[c])) / sum of the weights that count.
    """
    rows = labelled(log_probabilities, labels, weights, axis, ignore_index)
    dtype = log_probabilities.dtype
    one, zero = tvm.tirx.const(1, dtype), tvm.tirx.const(0, dtype)
    k = te.reduce_axis((0, rows.classes), name="k")
    whole = te.compute((), lambda: te.sum(rows.weight_of(k), axis=k), name="whole")
    share = label_smoothing / rows.classes

    def gradient(*i: Var) -> Expr:
        row, c = rows.row(i), i[axis]
        probability = te.exp(log_probabilities(*i))
        hit = tvm.tirx.Select(rows.hits(row, c), one, zero)
        value = rows.weight_of(rows.label(row)) * (probability - hit)
        if label_smoothing:
            everywhere = probability * whole() - rows.weight_of(c)
            value = value * (1 - label_smoothing) + everywhere * share
        return rows.counted(row, value / counted())

    return te.compute(log_probabilities.shape, gradient, name="logits_gradient")


def _over_classes(
    rows: Labels,
    scores: te.Tensor,
    element: Callable[[Sequence[Expr], Expr], Expr],
    reducer: Callable[..., Expr],
    name: str,
) -> te.Tensor:
    k = te.reduce_axis((0, rows.classes), name="k")
    return te.compute(
        rows.indices.shape,
        lambda *row: reducer(element(row, scores(*rows.at(row, k))), axis=k),
        name=name,
    )


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
