"""Every op with a gradient rule agrees with PyTorch's autograd."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tvm import relax

from tests.training.operator_gradients import (
    Case,
    check_gradients,
    normal,
    positive,
)
from tvm_xengine.training.composites import COMPOSITES
from tvm_xengine.training.gradients.rules import RULES

op, nn = relax.op, relax.op.nn
X = {"x": normal(3, 4)}
POSITIVE = {"x": positive(3, 4)}
SMALL = {"x": normal(3, 4) * 0.2}
IMAGE = {"x": normal(2, 4, 6, 5)}
PAIR = {"a": normal(2, 3, 4), "b": normal(3, 1, seed=1)}
POSITIVE_PAIR = {"a": positive(2, 3, 4), "b": positive(3, 1, seed=1)}
ROW = {"gamma": positive(5), "beta": normal(5, seed=2)}
CHANNEL = {"gamma": positive(4), "beta": normal(4, seed=2)}
INDICES = np.array([[1, 0], [2, 1]])

UNARY: dict[str, Case] = {
    "abs": (op.abs, torch.abs, X),
    "acos": (op.acos, torch.acos, SMALL),
    "acosh": (op.acosh, torch.acosh, {"x": positive(3, 4) + 1}),
    "asin": (op.asin, torch.asin, SMALL),
    "asinh": (op.asinh, torch.asinh, X),
    "atan": (op.atan, torch.atan, X),
    "atanh": (op.atanh, torch.atanh, SMALL),
    "cos": (op.cos, torch.cos, X),
    "cosh": (op.cosh, torch.cosh, X),
    "erf": (op.erf, torch.erf, X),
    "exp": (op.exp, torch.exp, X),
    "log": (op.log, torch.log, POSITIVE),
    "negative": (op.negative, torch.neg, X),
    "rsqrt": (op.rsqrt, torch.rsqrt, POSITIVE),
    "sigmoid": (op.sigmoid, torch.sigmoid, X),
    "sin": (op.sin, torch.sin, X),
    "sinh": (op.sinh, torch.sinh, X),
    "sqrt": (op.sqrt, torch.sqrt, POSITIVE),
    "square": (op.square, torch.square, X),
    "tan": (op.tan, torch.tan, SMALL),
    "tanh": (op.tanh, torch.tanh, X),
    "nn.gelu": (nn.gelu, F.gelu, X),
    "nn.gelu_tanh": (nn.gelu_tanh, lambda x: F.gelu(x, approximate="tanh"), X),
    "nn.leakyrelu": (lambda x: nn.leakyrelu(x, 0.1), lambda x: F.leaky_relu(x, 0.1), X),
    "nn.relu": (nn.relu, torch.relu, X),
    "nn.selu": (nn.selu, F.selu, X),
    "nn.silu": (nn.silu, F.silu, X),
    "nn.softplus": (nn.softplus, F.softplus, X),
    "clip": (lambda x: op.clip(x, -0.5, 1.0), lambda x: x.clamp(-0.5, 1.0), X),
    "astype": (
        lambda x: op.astype(op.astype(x, "float64"), "float32"),
        lambda x: x.double().float(),
        X,
    ),
    "nn.prelu": (
        lambda x, a: nn.prelu(x, a),
        F.prelu,
        {**IMAGE, "a": normal(4, seed=3)},
    ),
}

BINARY: dict[str, Case] = {
    "add": (op.add, torch.add, PAIR),
    "subtract": (op.subtract, torch.sub, PAIR),
    "multiply": (op.multiply, torch.mul, PAIR),
    "divide": (op.divide, torch.div, POSITIVE_PAIR),
    "power": (op.power, torch.pow, POSITIVE_PAIR),
    "power of three": (
        lambda a: op.power(a, relax.const(3.0, "float32")),
        lambda a: a**3,
        X,
    ),
    "maximum": (op.maximum, torch.maximum, PAIR),
    "minimum": (op.minimum, torch.minimum, PAIR),
    "atan2": (op.atan2, torch.atan2, POSITIVE_PAIR),
    "log_add_exp": (op.log_add_exp, torch.logaddexp, PAIR),
    "where": (
        lambda c, a, b: op.where(op.astype(c, "bool"), a, b),
        lambda c, a, b: torch.where(c.bool(), a, b),
        {"c": np.array([[1], [0], [1]]), **PAIR},
    ),
    "outer": (op.outer, torch.outer, {"a": normal(3), "b": normal(4, seed=1)}),
}


def _conv(stride: int, padding: int, dilation: int, groups: int) -> Case:
    return (
        lambda x, w: nn.conv2d(x, w, stride, padding, dilation, groups),
        lambda x, w: F.conv2d(x, w, None, stride, padding, dilation, groups),
        {**IMAGE, "w": normal(6, 4 // groups, 3, 2, seed=1)},
    )


def _transposed(stride: int, padding: int, extra: int, dilation: int, groups: int) -> Case:
    return (
        lambda x, w: nn.conv2d_transpose(x, w, stride, padding, extra, dilation, groups),
        lambda x, w: F.conv_transpose2d(x, w, None, stride, padding, extra, groups, dilation),
        {**IMAGE, "w": normal(4, 6 // groups, 3, 2, seed=1)},
    )


CONVOLUTIONS: dict[str, Case] = {
    "nn.conv1d": (
        lambda x, w: nn.conv1d(x, w, 2, 1),
        lambda x, w: F.conv1d(x, w, None, 2, 1),
        {"x": normal(2, 3, 7), "w": normal(4, 3, 3, seed=1)},
    ),
    "nn.conv2d": _conv(1, 0, 1, 1),
    "nn.conv2d with stride and padding": _conv(2, 1, 1, 1),
    "nn.conv2d with dilation": _conv(2, 2, 2, 1),
    "nn.conv2d with groups": _conv(1, 1, 1, 2),
    "nn.conv2d of single pixels": (
        lambda x, w: nn.conv2d(x, w, 2),
        lambda x, w: F.conv2d(x, w, None, 2),
        {**IMAGE, "w": normal(3, 4, 1, 1, seed=1)},
    ),
    "nn.conv3d": (
        lambda x, w: nn.conv3d(x, w, 1, 1),
        lambda x, w: F.conv3d(x, w, None, 1, 1),
        {"x": normal(1, 2, 4, 3, 4), "w": normal(3, 2, 3, 3, 3, seed=1)},
    ),
    "nn.conv1d_transpose": (
        lambda x, w: nn.conv1d_transpose(x, w, 2, 1),
        lambda x, w: F.conv_transpose1d(x, w, None, 2, 1),
        {"x": normal(2, 3, 5), "w": normal(3, 4, 3, seed=1)},
    ),
    "nn.conv2d_transpose": _transposed(2, 1, 1, 1, 1),
    "nn.conv2d_transpose with groups": _transposed(1, 0, 0, 2, 2),
    "nn.conv3d_transpose": (
        lambda x, w: nn.conv3d_transpose(x, w, 2),
        lambda x, w: F.conv_transpose3d(x, w, None, 2),
        {"x": normal(1, 2, 3, 2, 2), "w": normal(2, 3, 2, 2, 2, seed=1)},
    ),
}

POOLINGS: dict[str, Case] = {
    "nn.max_pool1d": (
        lambda x: nn.max_pool1d(x, 3, 2, 1),
        lambda x: F.max_pool1d(x, 3, 2, 1),
        {"x": normal(2, 3, 9)},
    ),
    "nn.max_pool2d": (lambda x: nn.max_pool2d(x, 2, 2), lambda x: F.max_pool2d(x, 2), IMAGE),
    "nn.max_pool2d with overlap and dilation": (
        lambda x: nn.max_pool2d(x, 2, 1, 1, 2),
        lambda x: F.max_pool2d(x, 2, 1, 1, 2),
        IMAGE,
    ),
    "nn.max_pool2d with ceil mode": (
        lambda x: nn.max_pool2d(x, 3, 2, ceil_mode=True),
        lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
        IMAGE,
    ),
    "nn.max_pool3d": (
        lambda x: nn.max_pool3d(x, 2, 2),
        lambda x: F.max_pool3d(x, 2),
        {"x": normal(1, 2, 4, 4, 5)},
    ),
    "nn.avg_pool1d": (
        lambda x: nn.avg_pool1d(x, 2, 2),
        lambda x: F.avg_pool1d(x, 2),
        {"x": normal(2, 3, 8)},
    ),
    "nn.avg_pool2d": (
        lambda x: nn.avg_pool2d(x, 3, 2, 1, count_include_pad=True),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        IMAGE,
    ),
    "nn.avg_pool2d without padding in the count": (
        lambda x: nn.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        IMAGE,
    ),
    "nn.avg_pool3d": (
        lambda x: nn.avg_pool3d(x, 2, 2),
        lambda x: F.avg_pool3d(x, 2),
        {"x": normal(1, 2, 4, 4, 4)},
    ),
    "nn.adaptive_avg_pool1d": (
        lambda x: nn.adaptive_avg_pool1d(x, 3),
        lambda x: F.adaptive_avg_pool1d(x, 3),
        {"x": normal(2, 3, 7)},
    ),
    "nn.adaptive_avg_pool2d": (
        lambda x: nn.adaptive_avg_pool2d(x, (3, 2)),
        lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
        IMAGE,
    ),
    "nn.adaptive_avg_pool2d to one pixel": (
        lambda x: nn.adaptive_avg_pool2d(x, 1),
        lambda x: F.adaptive_avg_pool2d(x, 1),
        IMAGE,
    ),
    "nn.adaptive_avg_pool3d": (
        lambda x: nn.adaptive_avg_pool3d(x, 2),
        lambda x: F.adaptive_avg_pool3d(x, 2),
        {"x": normal(1, 2, 4, 3, 5)},
    ),
    "image.resize2d": (
        lambda x: op.image.resize2d(x, (9, 12), method="linear"),
        lambda x: F.interpolate(x, (9, 12), mode="bilinear"),
        IMAGE,
    ),
    "image.resize2d with aligned corners": (
        lambda x: op.image.resize2d(
            x, (4, 12), method="linear", coordinate_transformation_mode="align_corners"
        ),
        lambda x: F.interpolate(x, (4, 12), mode="bilinear", align_corners=True),
        IMAGE,
    ),
    "image.resize2d to the nearest": (
        lambda x: op.image.resize2d(
            x,
            (9, 10),
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        ),
        lambda x: F.interpolate(x, (9, 10)),
        IMAGE,
    ),
    "image.resize3d": (
        lambda x: op.image.resize3d(x, (4, 6, 3), method="linear"),
        lambda x: F.interpolate(x, (4, 6, 3), mode="trilinear"),
        {"x": normal(1, 2, 2, 3, 3)},
    ),
}


def _batch_norm(training: bool) -> Case:
    mean, var = np.full(4, 0.1, "float32"), np.full(4, 1.5, "float32")
    return (
        lambda x, g, b: nn.batch_norm(
            x, g, b, relax.const(mean), relax.const(var), axis=1, training=training
        )[0],
        lambda x, g, b: F.batch_norm(
            x, torch.tensor(mean), torch.tensor(var), g, b, training=training
        ),
        {**IMAGE, **CHANNEL},
    )


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (5,), weight, 1e-5)


NORMALISATIONS: dict[str, Case] = {
    "nn.batch_norm": _batch_norm(True),
    "nn.batch_norm in inference mode": _batch_norm(False),
    "nn.batch_norm with residual and relu": (
        lambda x, g, b, z: nn.relu(op.add(z, _batch_norm(True)[0](x, g, b))),
        lambda x, g, b, z: torch.relu(_batch_norm(True)[1](x, g, b) + z),
        {**IMAGE, **CHANNEL, "z": normal(2, 4, 6, 5, seed=7)},
    ),
    "nn.batch_norm in inference mode with relu": (
        lambda x, g, b: nn.relu(_batch_norm(False)[0](x, g, b)),
        lambda x, g, b: torch.relu(_batch_norm(False)[1](x, g, b)),
        {**IMAGE, **CHANNEL},
    ),
    "nn.layer_norm": (
        lambda x, g, b: nn.layer_norm(x, g, b, [-1]),
        lambda x, g, b: F.layer_norm(x, (5,), g, b),
        {**IMAGE, **ROW},
    ),
    "nn.layer_norm over two axes": (
        lambda x, g, b: nn.layer_norm(x, g, b, [-2, -1]),
        lambda x, g, b: F.layer_norm(x, (6, 5), g, b),
        {**IMAGE, "gamma": positive(6, 5), "beta": normal(6, 5, seed=2)},
    ),
    "nn.rms_norm": (
        lambda x, w: nn.rms_norm(x, w, [-1]),
        _rms_norm,
        {**IMAGE, "w": positive(5)},
    ),
    "nn.group_norm": (
        lambda x, g, b: nn.group_norm(x, g, b, 2, 1, [2, 3]),
        lambda x, g, b: F.group_norm(x, 2, g, b),
        {**IMAGE, **CHANNEL},
    ),
    "nn.instance_norm": (
        lambda x, g, b: nn.instance_norm(x, g, b, 1, [2, 3]),
        lambda x, g, b: F.instance_norm(x, weight=g, bias=b),
        {**IMAGE, **CHANNEL},
    ),
    "nn.softmax": (lambda x: nn.softmax(x, 1), lambda x: x.softmax(1), {"x": normal(2, 3, 4)}),
    "nn.log_softmax": (
        lambda x: nn.log_softmax(x, -1),
        lambda x: x.log_softmax(-1),
        {"x": normal(2, 3, 4)},
    ),
}

LINEAR: dict[str, Case] = {
    "matmul": (op.matmul, torch.matmul, {"a": normal(3, 4), "b": normal(4, 5, seed=1)}),
    "matmul of stacks": (
        op.matmul,
        torch.matmul,
        {"a": normal(2, 1, 3, 4), "b": normal(5, 4, 2, seed=1)},
    ),
    "matmul of a stack and a matrix": (
        op.matmul,
        torch.matmul,
        {"a": normal(2, 3, 4), "b": normal(4, 2, seed=1)},
    ),
    "matmul of a vector and a matrix": (
        op.matmul,
        torch.matmul,
        {"a": normal(4), "b": normal(3, 4, 2, seed=1)},
    ),
    "matmul of a matrix and a vector": (
        op.matmul,
        torch.matmul,
        {"a": normal(2, 3, 4), "b": normal(4, seed=1)},
    ),
    "matmul with a transposed matrix": (
        lambda x, w: op.matmul(x, op.permute_dims(w)),
        F.linear,
        {"a": normal(2, 3, 4), "b": normal(5, 4, seed=1)},
    ),
    "matmul with a transposed stack": (
        lambda a, b: op.matmul(a, op.permute_dims(b, [0, 2, 1])),
        lambda a, b: a @ b.transpose(1, 2),
        {"a": normal(2, 3, 4), "b": normal(2, 5, 4, seed=1)},
    ),
    "nn.attention": (
        lambda q, k, v: nn.attention(q, k, v, causal_mask="TopLeft"),
        lambda q, k, v: F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        ).transpose(1, 2),
        {name: normal(2, 4, 2, 3, seed=seed) for seed, name in enumerate("qkv")},
    ),
    "nn.attention_bias": (
        lambda q, k, v, b: nn.attention(q, k, v, b),
        lambda q, k, v, b: F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), b
        ).transpose(1, 2),
        {
            **{name: normal(2, 4, 2, 3, seed=seed) for seed, name in enumerate("qkv")},
            "b": normal(2, 2, 4, 4, seed=5),
        },
    ),
}

MOVEMENTS: dict[str, Case] = {
    "reshape": (lambda x: op.reshape(x, (2, 6)), lambda x: x.reshape(2, 6), X),
    "expand_dims": (lambda x: op.expand_dims(x, 1), lambda x: x.unsqueeze(1), X),
    "squeeze": (lambda x: op.squeeze(x, [1]), lambda x: x.squeeze(1), {"x": normal(3, 1, 2)}),
    "flatten": (op.flatten, torch.flatten, X),
    "nn.batch_flatten": (nn.batch_flatten, lambda x: x.flatten(1), IMAGE),
    "permute_dims": (
        lambda x: op.permute_dims(x, [1, 2, 0]),
        lambda x: x.permute(1, 2, 0),
        {"x": normal(2, 3, 4)},
    ),
    "broadcast_to": (
        lambda x: op.broadcast_to(x, (2, 3, 4)),
        lambda x: x.expand(2, 3, 4),
        {"x": normal(3, 1)},
    ),
    "concat": (
        lambda a, b, c: op.concat([a, b, c], 1),
        lambda a, b, c: torch.cat([a, b, c], 1),
        {"a": normal(2, 3), "b": normal(2, 1, seed=1), "c": normal(2, 2, seed=2)},
    ),
    "stack": (
        lambda a, b: op.stack([a, b], 1),
        lambda a, b: torch.stack([a, b], 1),
        {"a": normal(2, 3), "b": normal(2, 3, seed=1)},
    ),
    "split": (
        lambda x: op.multiply(op.split(x, [1, 3], 1)[1], op.split(x, [1, 3], 1)[1]),
        lambda x: x[:, 1:3] ** 2,
        X,
    ),
    "strided_slice": (
        lambda x: op.strided_slice(x, [1, 2], [1, 0], [6, 5], [2, 1]),
        lambda x: x[:, 1:6:2],
        {"x": normal(2, 7, 5)},
    ),
    "strided_slice backwards": (
        lambda x: op.strided_slice(x, [0], [-1], [-100], [-2]),
        lambda x: x.flip(0)[::2],
        {"x": normal(7, 2)},
    ),
    "nn.pad": (
        lambda x: nn.pad(x, [0, 0, 0, 0, 1, 2, 0, 3]),
        lambda x: F.pad(x, (0, 3, 1, 2)),
        IMAGE,
    ),
    "nn.pad by reflection": (
        lambda x: nn.pad(x, [0, 0, 0, 0, 1, 2, 0, 3], "reflect"),
        lambda x: F.pad(x, (0, 3, 1, 2), "reflect"),
        IMAGE,
    ),
    "tile": (lambda x: op.tile(x, (2, 1, 3)), lambda x: x.tile(2, 1, 3), X),
    "repeat": (
        lambda x: op.repeat(x, 2, 1),
        lambda x: x.repeat_interleave(2, 1),
        X,
    ),
    "flip": (lambda x: op.flip(x, 1), lambda x: x.flip(1), X),
    "take": (
        lambda x, i: op.take(x, i, 1),
        lambda x, i: x[:, i],
        {"x": normal(2, 3, 2), "i": INDICES},
    ),
    "gather_elements": (
        lambda x, i: op.gather_elements(x, i, 1),
        lambda x, i: x.gather(1, i),
        {"x": normal(2, 3), "i": INDICES},
    ),
    "tril": (lambda x: op.tril(x, 1), lambda x: x.tril(1), X),
    "triu": (lambda x: op.triu(x, -1), lambda x: x.triu(-1), X),
    "cumsum": (lambda x: op.cumsum(x, 1), lambda x: x.cumsum(1), {"x": normal(2, 3, 2)}),
    "nn.pixel_shuffle": (lambda x: nn.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2), IMAGE),
}

TIES = {"x": np.round(normal(3, 4) * 2) / 2}
REDUCTIONS: dict[str, Case] = {
    "sum": (lambda x: op.sum(x, [0]), lambda x: x.sum(0), X),
    "mean": (lambda x: op.mean(x, [-1], keepdims=True), lambda x: x.mean(-1, keepdim=True), X),
    "max": (lambda x: op.max(x, [1]), lambda x: x.amax(1), TIES),
    "min": (lambda x: op.min(x), lambda x: x.amin(), TIES),
    "prod": (lambda x: op.prod(x, [1]), lambda x: x.prod(1), X),
    "prod with zeros": (
        lambda x: op.prod(x, [1]),
        lambda x: x.prod(1),
        {"x": np.array([[0, 2, 3], [0, 4, 0], [1, 5, 2]], "float32")},
    ),
    "variance": (lambda x: op.variance(x, [1]), lambda x: x.var(1, correction=0), X),
    "std": (lambda x: op.std(x, [1]), lambda x: x.std(1, correction=0), X),
    "nn.cross_entropy_with_logits": (
        nn.cross_entropy_with_logits,
        lambda a, b: -(a * b).sum() / 3,
        {"a": normal(3, 4), "b": positive(3, 4)},
    ),
    "ewise_fma": (
        op.ewise_fma,
        lambda a, b, c: a * b + c,
        {name: normal(3, 4, seed=seed) for seed, name in enumerate("abc")},
    ),
}

FAMILIES: dict[str, dict[str, Case]] = {
    "unary": UNARY,
    "binary": BINARY,
    "convolutions": CONVOLUTIONS,
    "poolings": POOLINGS,
    "normalisations": NORMALISATIONS,
    "linear": LINEAR,
    "movements": MOVEMENTS,
    "reductions": REDUCTIONS,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_autograd(family: str) -> None:
    check_gradients(FAMILIES[family])


def test_every_rule_is_tested() -> None:
    cases = (name for family in FAMILIES.values() for name in family)
    tested = {f"relax.{name.split(' ')[0]}" for name in cases}
    untested = {
        name for name in [*RULES, *COMPOSITES] if name.startswith("relax.") and name not in tested
    }
    assert untested == {"relax.nn.dropout"}
