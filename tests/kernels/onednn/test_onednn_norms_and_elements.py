"""Batch norm, averages and elementwise functions: oneDNN's kernels compute what ours compute."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st
from tvm import relax

from tests.kernels.onednn.onednn_twins import (
    NATIVE,
    assert_twins_agree,
    kernel_of,
    needs_onednn,
)
from tests.kernels.onednn.test_onednn_rows_and_windows import SLOW, named, options, windows
from tvm_xengine.kernels.onednn.elementwise import ELEMENTWISE
from tvm_xengine.kernels.onednn.prepare import prepare_onednn_kernel
from tvm_xengine.kernels.sources import available_sources, prepare_from
from tvm_xengine.kernels.te.elementwise import derivative_kernel
from tvm_xengine.kernels.te.norms import batch_norm as norms
from tvm_xengine.kernels.te.pooling import (
    adaptive_avg_pool_backward,
    avg_pool_backward,
    max_pool_backward,
    max_pool_forward,
)
from tvm_xengine.training.gradients.elementwise import UNARY

pytestmark = needs_onednn

QUICK = settings(max_examples=6, deadline=None, phases=(Phase.explicit, Phase.generate))

shapes = st.tuples(
    st.integers(2, 3), st.integers(1, 20), st.lists(st.integers(2, 5), max_size=3)
).map(lambda parts: (*parts[:2], *parts[2]))
epsilons = st.sampled_from([1e-3, 1e-5])
seeds = st.integers(0, 99)


class Numbers:
    """What a batch norm of a shape reads."""

    def __init__(self, shape: tuple[int, ...], seed: int, epsilon: float) -> None:
        rng = np.random.default_rng(seed)
        channels = shape[1:2]
        self.x, self.dy, self.residual = (rng.standard_normal(shape, dtype="f4") for _ in range(3))
        self.gamma = rng.uniform(0.5, 2, channels).astype("f4")
        self.beta = rng.uniform(-1, 1, channels).astype("f4")
        axes = (0, *range(2, len(shape)))
        self.mean, self.variance = self.x.mean(axes), self.x.var(axes)
        self.inv_std = (1 / np.sqrt(self.variance + np.float32(epsilon))).astype("f4")
        scale = (1, -1, *[1] * (len(shape) - 2))
        normal = (self.x - self.mean.reshape(scale)) * self.inv_std.reshape(scale)
        self.before_relu = normal * self.gamma.reshape(scale) + self.beta.reshape(scale)

    def is_clear(self, residual: bool = False) -> bool:
        """Whether no sign before the relu is left to rounding."""
        value = self.before_relu + (self.residual if residual else 0)
        return bool(np.abs(value).min() > 1e-4)


def enough_to_normalise(shape: tuple[int, ...]) -> bool:
    """Of fewer numbers in a channel the gradient is what rounding leaves."""
    return shape[0] * prod(shape[2:]) >= 4


@given(shape=shapes, epsilon=epsilons, relu=st.booleans(), seed=seeds)
@QUICK
def test_batch_norm(shape: tuple[int, ...], epsilon: float, relu: bool, seed: int) -> None:
    assume(enough_to_normalise(shape))
    v = Numbers(shape, seed, epsilon)
    tensors = [v.x, v.gamma, v.beta]
    kinds = [a.shape for a in tensors]
    func = named(norms.batch_norm_forward, kinds, epsilon=epsilon, relu=relu)
    assert assert_twins_agree(func, inputs=tensors)
    tensors += [v.mean, v.variance]
    kinds = [a.shape for a in tensors]
    func = named(norms.batch_norm_inference, kinds, epsilon=epsilon, relu=relu)
    assert assert_twins_agree(func, inputs=tensors)


@given(shape=shapes, epsilon=epsilons, seed=seeds)
@QUICK
def test_batch_norm_at_the_end_of_a_residual_block(
    shape: tuple[int, ...], epsilon: float, seed: int
) -> None:
    assume(enough_to_normalise(shape))
    v = Numbers(shape, seed, epsilon)
    tensors = [v.x, v.gamma, v.beta, v.residual]
    func = named(norms.batch_norm_add_relu_forward, [a.shape for a in tensors], epsilon=epsilon)
    assert assert_twins_agree(func, inputs=tensors)


wanted = st.sampled_from([(True, True, True), (True, False, True), (False, True, True)])


@given(shape=shapes, epsilon=epsilons, relu=st.booleans(), wanted=wanted, seed=seeds)
@QUICK
def test_gradients_of_a_batch_norm(
    shape: tuple[int, ...], epsilon: float, relu: bool, wanted: tuple[bool, ...], seed: int
) -> None:
    v = Numbers(shape, seed, epsilon)
    assume(enough_to_normalise(shape) and (not relu or v.is_clear()))
    tensors = [v.dy, v.x, v.gamma, v.beta, v.mean, v.inv_std]
    kinds = [a.shape for a in tensors]
    func = named(norms.batch_norm_backward, kinds, relu=relu, wanted=wanted)
    assert assert_twins_agree(func, inputs=tensors)
    tensors[-1] = v.variance
    func = named(
        norms.batch_norm_inference_backward, kinds, epsilon=epsilon, relu=relu, wanted=wanted
    )
    assert assert_twins_agree(func, inputs=tensors)


@given(shape=shapes, wanted=wanted, residual=st.booleans(), seed=seeds)
@QUICK
def test_gradients_at_the_end_of_a_residual_block(
    shape: tuple[int, ...], wanted: tuple[bool, ...], residual: bool, seed: int
) -> None:
    v = Numbers(shape, seed, 1e-5)
    assume(enough_to_normalise(shape) and v.is_clear(residual=True))
    output = np.maximum(v.before_relu + v.residual, 0)
    tensors = [v.dy, output, v.x, v.gamma, v.mean, v.inv_std]
    kinds = [a.shape for a in tensors]
    wanted = (*wanted, residual)
    func = named(norms.batch_norm_add_relu_backward, kinds, wanted=wanted)
    assert assert_twins_agree(func, inputs=tensors)


@given(window=windows(overlapping=False), counts_padding=st.booleans(), seed=seeds)
@example(  # the last row is in no window: TVM's flat index of the generated kernel was wrong
    window={
        "data": (2, 4, 9, 8),
        "output": (2, 4, 3, 3),
        "pool_size": (3, 3),
        "strides": (3, 3),
        "dilation": (1, 1),
        "padding": (1, 0, 1, 1),
    },
    counts_padding=True,
    seed=83,
)
@SLOW
def test_averages_and_their_gradient(window, counts_padding: bool, seed: int) -> None:
    pools = (relax.op.nn.avg_pool1d, relax.op.nn.avg_pool2d, relax.op.nn.avg_pool3d)
    pool = pools[len(window["strides"]) - 1]
    attributes = {**options(window), "count_include_pad": counts_padding}
    func = kernel_of(
        lambda emitter, params: emitter.bind(pool(params[0], **attributes), "pooled"),
        [window["data"]],
    )
    library = assert_twins_agree(func, seed=seed)
    func = named(avg_pool_backward, [window["output"]], **attributes, data_shape=window["data"])
    backward = assert_twins_agree(func, seed=seed)
    assume(library is not None and backward is not None)


@given(
    head=st.tuples(st.integers(1, 2), st.integers(1, 5)),
    sides=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=3),
    seed=seeds,
)
@QUICK
def test_averages_over_windows_side_by_side(head, sides, seed: int) -> None:
    data = (*head, *(out * size for out, size in sides))
    output = (*head, *(out for out, _ in sides))
    pools = (
        relax.op.nn.adaptive_avg_pool1d,
        relax.op.nn.adaptive_avg_pool2d,
        relax.op.nn.adaptive_avg_pool3d,
    )
    pool = pools[len(sides) - 1]
    func = kernel_of(
        lambda emitter, params: emitter.bind(pool(params[0], list(output[2:])), "pooled"), [data]
    )
    assert assert_twins_agree(func, seed=seed)
    func = named(adaptive_avg_pool_backward, [output], data_shape=data)
    assert assert_twins_agree(func, seed=seed)


FORWARD = sorted(name for name in ELEMENTWISE if not name.endswith("_backward"))
DIFFERENCES = ("gelu_tanh",)
"""Differences of larger numbers, x * (1 + tanh(x)), which are no more exact than these."""
OPTIONS = {"leakyrelu": {"alpha": 0.1}, "softplus": {"beta": 0.5, "threshold": 20.0}}


@pytest.mark.parametrize("name", FORWARD)
@given(shape=st.lists(st.integers(1, 9), max_size=4).map(tuple), seed=seeds)
@settings(max_examples=2, deadline=None, phases=(Phase.generate,))
def test_functions_of_elements_and_their_gradients(
    name: str, shape: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, dy = (rng.uniform(-4, 4, shape).astype("f4") for _ in range(2))
    if name in ("log", "sqrt"):
        x = np.abs(x) + np.float32(0.5)
    op = getattr(relax.op, name, None) or getattr(relax.op.nn, name)
    given_options = OPTIONS.get(name, {})
    func = kernel_of(lambda e, p: e.bind(op(p[0], *given_options.values()), "made"), [shape])
    least = float(np.abs(x).max(initial=1e-3)) if name in DIFFERENCES else 1e-3
    kernel = assert_twins_agree(func, inputs=[x], least_scale=least)
    assert kernel is not None
    key = name if name in UNARY else f"nn.{name}"
    derivative = UNARY[key]
    read = np.asarray(RESULTS[name](x), "f4") if "y" in derivative.reads else x
    backward = named(
        derivative_kernel(f"{name}_backward", derivative.formula),
        [shape, shape],
        shape=shape,
        **given_options,
    )
    least *= float(np.abs(dy).max(initial=1e-3)) if name in DIFFERENCES else 1.0
    assert assert_twins_agree(backward, inputs=[dy, read], least_scale=least) is not None


RESULTS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "exp": np.exp,
    "sqrt": np.sqrt,
}


def test_a_gradient_that_sums_over_a_broadcast_operand_is_generated() -> None:
    kernel = derivative_kernel("tanh_backward", UNARY["tanh"].formula)
    func = named(kernel, [(4, 8), (1, 8)], shape=(1, 8))
    assert prepare_onednn_kernel(func, NATIVE, "tanh") is None


def test_several_functions_in_a_row_are_generated_in_one_pass() -> None:
    def body(emitter, params):
        made = emitter.bind(relax.op.tanh(params[0]), "one")
        return emitter.bind(relax.op.exp(made), "two")

    assert prepare_onednn_kernel(kernel_of(body, [(8, 8)]), NATIVE, "row") is None


@pytest.mark.parametrize("size", [2, 3])
def test_maxima_of_windows_side_by_side_on_request(size: int) -> None:
    window = {
        "pool_size": (size,) * 2,
        "strides": (size,) * 2,
        "padding": (0,) * 4,
        "dilation": (1, 1),
    }
    data, output = (2, 8, 4 * size, 4 * size), (2, 8, 4, 4)
    func = named(max_pool_forward, [data], **window, output_shape=output)
    assert assert_twins_agree(func, seed=size)
    func = named(max_pool_backward, [output] * 2, ["float32", "int32"], **window, data_shape=data)
    rng = np.random.default_rng(size)
    gradient = rng.standard_normal(output, dtype="f4")
    positions = rng.integers(0, size * size, output).astype("int32")
    assert assert_twins_agree(func, inputs=[gradient, positions])


def test_auto_leaves_to_generated_code_what_it_computes_faster() -> None:
    side_by_side = {"pool_size": (2, 2), "strides": (2, 2), "padding": (0,) * 4, "dilation": (1, 1)}
    overlapping = {**side_by_side, "pool_size": (3, 3)}
    norm = named(norms.batch_norm_forward, [(2, 8, 8, 8), (8,), (8,)], epsilon=1e-5, relu=False)
    pool = named(max_pool_forward, [(2, 8, 8, 8)], **side_by_side, output_shape=(2, 8, 4, 4))
    over = named(max_pool_forward, [(2, 8, 9, 9)], **overlapping, output_shape=(2, 8, 4, 4))
    tanh = kernel_of(lambda e, p: e.bind(relax.op.tanh(p[0]), "made"), [(64,)])
    for sources, expected in (
        (("onednn", "tir"), ["onednn"] * 4),
        (("auto",), ["tir", "tir", "onednn", "tir"]),
        (("tir",), ["tir"] * 4),
    ):
        here = available_sources(sources, NATIVE, "cpu")
        kernels = [prepare_from(here, f, NATIVE, "kernel") for f in (norm, pool, over, tanh)]
        assert [kernel.source for kernel in kernels] == expected
