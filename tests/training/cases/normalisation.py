"""Norms, softmax."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from tvm import relax

from tests.training.cases.case import Case, Draw, DrawCase

op, nn = relax.op, relax.op.nn


def _batch_norm(*, relu: bool = False, residual: bool = False) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        shape = [draw.integer(2, 3), draw.integer(1, 4), *draw.integers(draw.integer(0, 3), 1, 4)]
        channels = shape[1]
        epsilon, training = draw.number(1e-5, 0.1), residual or draw.flag()
        operands = {
            "x": draw.normal(*shape),
            "gamma": draw.normal(channels),
            "beta": draw.normal(channels),
            "mean": draw.normal(channels),
            "var": draw.uniform(0.5, 2, channels),
        }
        if residual:
            operands["z"] = draw.normal(*shape)
        order = draw.permutation([0, 1])

        def operator(x, gamma, beta, mean, var, *z):
            norm = nn.batch_norm(
                x, gamma, beta, mean, var, axis=1, epsilon=epsilon, training=training
            )[0]
            summed = op.add(*([norm, z[0]][k] for k in order)) if z else norm
            return nn.relu(summed) if relu else summed

        def reference(x, gamma, beta, mean, var, *z):
            norm = F.batch_norm(
                x, mean.clone(), var.clone(), gamma, beta, training=training, eps=epsilon
            )
            summed = norm + z[0] if z else norm
            return summed.relu() if relu else summed

        return Case(operator, reference, operands, fixed=("mean", "var"))

    return draw_case


def _layer_norm(draw: Draw) -> Case:
    shape = draw.shape(ranks=(2, 4), extents=(2, 4))
    count = draw.integer(1, len(shape) - 1)
    axes = [axis - draw.one_of([0, len(shape)]) for axis in range(len(shape))][-count:]
    epsilon = draw.number(1e-5, 0.1)
    row = shape[-count:]
    return Case(
        lambda x, g, b: nn.layer_norm(x, g, b, axes, epsilon),
        lambda x, g, b: F.layer_norm(x, row, g, b, epsilon),
        {"x": draw.normal(*shape), "g": draw.normal(*row), "b": draw.normal(*row)},
    )


def _rms_norm(draw: Draw) -> Case:
    shape = draw.shape(ranks=(2, 4), extents=(2, 4))
    count = draw.integer(1, len(shape) - 1)
    epsilon = draw.number(1e-5, 0.1)
    row = shape[-count:]
    return Case(
        lambda x, g: nn.rms_norm(x, g, list(range(-count, 0)), epsilon),
        lambda x, g: F.rms_norm(x, row, g, epsilon),
        {"x": draw.normal(*shape), "g": draw.normal(*row)},
    )


def _image(draw: Draw, channels: int) -> list[int]:
    return [
        draw.integer(1, 3),
        channels,
        draw.integer(2, 4),
        *draw.integers(draw.integer(0, 2), 1, 4),
    ]


def _group_norm(draw: Draw) -> Case:
    groups = draw.integer(1, 3)
    channels = groups * draw.integer(1, 3)
    shape, epsilon = _image(draw, channels), draw.number(1e-5, 0.1)
    axes = list(range(2, len(shape)))
    return Case(
        lambda x, g, b: nn.group_norm(x, g, b, groups, 1, axes, epsilon),
        lambda x, g, b: F.group_norm(x, groups, g, b, epsilon),
        {"x": draw.normal(*shape), "g": draw.normal(channels), "b": draw.normal(channels)},
    )


def _instance_norm(draw: Draw) -> Case:
    channels = draw.integer(1, 4)
    shape, epsilon = _image(draw, channels), draw.number(1e-5, 0.1)
    over_batch = draw.flag()
    axes = [0] * over_batch + list(range(2, len(shape)))

    def reference(x, g, b):
        if over_batch:
            return F.batch_norm(x, None, None, g, b, training=True, eps=epsilon)
        return F.instance_norm(x, weight=g, bias=b, eps=epsilon)

    return Case(
        lambda x, g, b: nn.instance_norm(x, g, b, 1, axes, epsilon),
        reference,
        {"x": draw.normal(*shape), "g": draw.normal(channels), "b": draw.normal(channels)},
    )


def _softmax(
    ours: Callable[[relax.Expr, int], relax.Expr],
    theirs: Callable[[torch.Tensor, int], torch.Tensor],
) -> DrawCase:
    def draw_case(draw: Draw) -> Case:
        shape = draw.shape()
        axis = draw.axis(len(shape))
        return Case(
            lambda x: ours(x, axis),
            lambda x: theirs(x, axis),
            {"x": draw.normal(*shape) * draw.one_of([1.0, 100.0])},
        )

    return draw_case


CASES: dict[str, list[DrawCase]] = {
    "nn.batch_norm": [_batch_norm()],
    "tvm_xengine.batch_norm_relu": [_batch_norm(relu=True)],
    "tvm_xengine.batch_norm_add_relu": [_batch_norm(relu=True, residual=True)],
    "nn.layer_norm": [_layer_norm],
    "nn.rms_norm": [_rms_norm],
    "nn.group_norm": [_group_norm],
    "nn.instance_norm": [_instance_norm],
    "nn.softmax": [_softmax(nn.softmax, torch.softmax)],
    "nn.log_softmax": [_softmax(nn.log_softmax, torch.log_softmax)],
}
