"""Kernels of oneDNN compute what generated kernels compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.s_tir.analysis import estimate_tir_flops

from tests.kernels.onednn.onednn_twins import (
    NATIVE,
    assert_twins_agree,
    kernel_of,
    needs_onednn,
    needs_products,
    run,
)
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.library.claim import claims
from tvm_xengine.kernels.library.flops import flops
from tvm_xengine.kernels.library.parts import kernel_parts
from tvm_xengine.kernels.onednn.library import load_onednn
from tvm_xengine.kernels.onednn.operations import ABILITIES, describe
from tvm_xengine.kernels.onednn.prepare import prepare_onednn_kernel
from tvm_xengine.kernels.te.convolution import conv_data_gradient, conv_weight_gradient
from tvm_xengine.kernels.te.linear import (
    batch_matmul,
    linear,
    linear_data_gradient,
    linear_weight_gradient,
)
from tvm_xengine.training.emitter import Emitter

pytestmark = needs_onednn

SLOW = settings(max_examples=10)
CONVOLUTIONS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}


@dataclass(frozen=True)
class Convolution:
    """Shapes and attributes that fit together."""

    data: tuple[int, ...]
    weight: tuple[int, ...]
    output: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def options(self) -> dict[str, tuple[int, ...] | int]:
        return {
            "strides": self.strides,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    """Any rank, stride, padding on either side, dilation and number of groups."""
    rank = draw(st.integers(1, 3))
    is_pointwise = draw(st.sampled_from([False, False, True]))
    most = 1 if is_pointwise else 2
    kernel = draw(st.tuples(*[st.integers(1, 1 if is_pointwise else 3)] * rank))
    strides = draw(st.tuples(*[st.integers(1, most)] * rank))
    dilation = draw(st.tuples(*[st.integers(1, most)] * rank))
    padding = draw(st.tuples(*[st.integers(0, 2 * (most - 1))] * (2 * rank)))
    groups = draw(st.sampled_from([1] if is_pointwise else [1, 1, 2, 4]))
    batch = draw(st.integers(1, 2))
    in_group, out_group = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    space = tuple(
        draw(st.integers((kernel[a] - 1) * dilation[a] + 1, (kernel[a] - 1) * dilation[a] + 6))
        for a in range(rank)
    )
    out_space = tuple(
        (space[a] + padding[a] + padding[a + rank] - dilation[a] * (kernel[a] - 1) - 1)
        // strides[a]
        + 1
        for a in range(rank)
    )
    return Convolution(
        data=(batch, in_group * groups, *space),
        weight=(out_group * groups, in_group, *kernel),
        output=(batch, out_group * groups, *out_space),
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
    )


@given(conv=convolutions(), bias=st.booleans(), residual=st.booleans(), relu=st.booleans())
@SLOW
def test_convolution(conv: Convolution, bias: bool, residual: bool, relu: bool) -> None:
    rank = len(conv.strides)

    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        result = emitter.bind(CONVOLUTIONS[rank](params[0], params[1], **conv.options), "made")
        if bias:
            result = emitter.bind(relax.op.add(result, params[2]), "biased")
        if residual:
            result = emitter.bind(relax.op.add(params[-1], result), "added")
        return emitter.bind(relax.op.nn.relu(result), "clipped") if relu else result

    column = (1, conv.output[1], *[1] * rank)
    shapes = [conv.data, conv.weight, *([column] if bias else [])]
    shapes += [conv.output] if residual else []
    library = assert_twins_agree(kernel_of(body, shapes))
    assume(library is not None)
    call = library.library
    # A tensor of one number for each channel is a bias, whatever it was meant to be.
    is_bias = residual and not bias and conv.output == column
    residual = residual and not is_bias
    assert call.bias == (bias or is_bias)
    assert residual or not call.residual


@given(conv=convolutions(), residual=st.booleans())
@SLOW
def test_data_gradient_of_a_convolution(conv: Convolution, residual: bool) -> None:
    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        made = emitter.call(
            conv_data_gradient, params[:2], "made", data_shape=conv.data, **conv.options
        )
        return emitter.bind(relax.op.add(made, params[2]), "sum") if residual else made

    shapes = [conv.output, conv.weight, *([conv.data] if residual else [])]
    assume(assert_twins_agree(kernel_of(body, shapes)) is not None)


@given(conv=convolutions(), rest=st.integers(0, 1))
@SLOW
def test_transposed_convolution(conv: Convolution, rest: int) -> None:
    rank = len(conv.strides)
    transposed = (
        relax.op.nn.conv1d_transpose,
        relax.op.nn.conv2d_transpose,
        relax.op.nn.conv3d_transpose,
    )[rank - 1]
    output_padding = tuple(min(rest, stride - 1) for stride in conv.strides)
    assume(all(extent + p > 0 for extent, p in zip(conv.output[2:], output_padding, strict=True)))

    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        made = transposed(*params, output_padding=output_padding, **conv.options)
        return emitter.bind(made, "made")

    func = kernel_of(body, [conv.output, conv.weight])
    assume(min(int(extent) for extent in func.params[-1].ty.shape) > 0)
    assume(assert_twins_agree(func) is not None)


@given(conv=convolutions())
@SLOW
def test_weight_gradient_of_a_convolution(conv: Convolution) -> None:
    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        return emitter.call(
            conv_weight_gradient, params, "made", kernel_shape=conv.weight[2:], **conv.options
        )

    assume(assert_twins_agree(kernel_of(body, [conv.data, conv.output])) is not None)


sizes = st.integers(1, 40)


@needs_products
@given(outer=st.lists(st.integers(1, 5), min_size=1, max_size=2), depth=sizes, width=sizes)
@SLOW
def test_linear_and_its_gradients(outer: list[int], depth: int, width: int) -> None:
    data, weight, output = (*outer, depth), (width, depth), (*outer, width)
    for kernel, shapes in (
        (linear, [data, weight]),
        (linear_data_gradient, [output, weight]),
        (linear_weight_gradient, [data, output]),
    ):
        func = kernel_of(lambda e, p, k=kernel: e.call(k, p, "made"), shapes)
        assume(assert_twins_agree(func) is not None)


@needs_products
@given(
    batch=st.lists(st.integers(1, 3), max_size=2),
    extents=st.tuples(sizes, sizes, sizes),
    turned=st.tuples(st.booleans(), st.booleans()),
    broadcast=st.sampled_from(["none", "left", "right"]),
)
@SLOW
def test_products_of_stacks(
    batch: list[int],
    extents: tuple[int, int, int],
    turned: tuple[bool, bool],
    broadcast: str,
) -> None:
    m, k, n = extents
    left = (k, m) if turned[0] else (m, k)
    right = (n, k) if turned[1] else (k, n)
    left_batch = () if broadcast == "left" else tuple(batch)
    right_batch = () if broadcast == "right" else tuple(batch)

    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        return emitter.call(
            batch_matmul,
            params,
            "made",
            transpose_left=turned[0],
            transpose_right=turned[1],
            output_batch=tuple(batch),
        )

    func = kernel_of(body, [(*left_batch, *left), (*right_batch, *right)])
    assume(assert_twins_agree(func) is not None)


@given(shape=st.lists(sizes, min_size=1, max_size=4), data=st.data())
@SLOW
def test_softmax(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))

    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        return emitter.bind(relax.op.nn.softmax(params[0], axis), "made")

    assume(assert_twins_agree(kernel_of(body, [tuple(shape)])) is not None)


@needs_products
def test_a_product_summed_over_its_batch() -> None:
    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        return emitter.call(
            batch_matmul,
            params,
            "made",
            transpose_left=True,
            transpose_right=False,
            output_batch=(),
        )

    agreeing(kernel_of(body, [(3, 4, 5, 6), (3, 4, 5, 7)]))


def agreeing(func: tirx.PrimFunc) -> DeviceKernel:
    """The library's kernel, which there must be."""
    kernel = assert_twins_agree(func)
    assert kernel is not None
    return kernel


@needs_products
@pytest.mark.parametrize(
    ("kernel", "shapes"),
    [
        (linear, [(6, 10), (8, 10), (8,), (6, 8)]),
        (linear_data_gradient, [(6, 10), (10, 8), (6, 8)]),
    ],
)
def test_what_is_added_is_added_by_the_library(kernel, shapes) -> None:
    """A gradient that other gradients are added to, or a residual behind a bias."""

    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        made = emitter.call(kernel, params[:2], "made")
        for k, param in enumerate(params[2:]):
            made = emitter.bind(relax.op.add(made, param), f"sum{k}")
        return made

    library = agreeing(kernel_of(body, shapes))
    assert library.library.residual
    assert library.library.bias == (kernel is linear)


@needs_products
def test_a_bias_of_a_pointwise_convolution_is_added_by_the_product() -> None:
    """Its blocked convolution would copy all tensors."""

    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        made = emitter.bind(relax.op.nn.conv2d(*params[:2]), "made")
        biased = emitter.bind(relax.op.add(made, params[2]), "biased")
        return emitter.bind(relax.op.nn.relu(biased), "clipped")

    library = agreeing(kernel_of(body, [(2, 16, 9, 9), (24, 16, 1, 1), (1, 24, 1, 1)]))
    assert library.library.bias
    program = describe(library.library, load_onednn())
    assert program is not None and len(program.executions) == 1


@needs_products
def test_what_is_fused_behind_the_library_is_generated() -> None:
    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        product = emitter.call(linear, params[:2], "product")
        scaled = emitter.bind(relax.op.multiply(product, params[2]), "scaled")
        return emitter.bind(relax.op.tanh(scaled), "bent")

    library = agreeing(kernel_of(body, [(6, 10), (8, 10), (6, 8)]))
    assert library.library.operation == "linear"


@needs_products
def test_another_reader_keeps_the_bias_out_of_the_library() -> None:
    """y + b and y are both read, so the library must make y."""

    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        product = emitter.call(linear, params[:2], "product")
        biased = emitter.bind(relax.op.add(product, params[2]), "biased")
        return emitter.bind(relax.op.multiply(product, biased), "both")

    library = agreeing(kernel_of(body, [(6, 10), (8, 10), (8,)]))
    assert not library.library.bias


@needs_products
def test_a_result_of_another_size_gets_memory_in_the_workspace() -> None:
    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        product = emitter.call(linear, params[:2], "product")
        return emitter.bind(relax.op.add(product, params[2]), "spread")

    library = agreeing(kernel_of(body, [(1, 10), (8, 10), (64, 8)]))
    assert library.workspace_bytes >= 8 * 4


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_than_float32_are_left_to_the_next_source(dtype: str) -> None:
    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        return emitter.call(linear, params, "made")

    kernel = kernel_of(body, [(4, 8), (6, 8)], dtype)
    assert prepare_onednn_kernel(kernel, NATIVE, "linear") is None


def test_what_the_library_computes_is_counted_as_in_generated_code() -> None:
    conv = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 2}
    data, weight, output = (2, 4, 8, 8), (6, 2, 3, 3), (2, 6, 6, 6)
    stacks = {"transpose_left": True, "transpose_right": False, "output_batch": (3, 2)}
    calls = [
        (conv_data_gradient, [output, weight], {"data_shape": data, **conv}),
        (conv_weight_gradient, [data, output], {"kernel_shape": (3, 3), **conv}),
        (linear, [(2, 5, 16), (8, 16)], {}),
        (linear_data_gradient, [(2, 5, 8), (8, 16)], {}),
        (linear_weight_gradient, [(2, 5, 16), (2, 5, 8)], {}),
        (batch_matmul, [(3, 2, 5, 4), (3, 2, 5, 7)], stacks),
    ]
    for kernel, shapes, options in calls:
        func = kernel_of(lambda e, p, k=kernel, o=options: e.call(k, p, "made", **o), shapes)
        counted = estimate_tir_flops(tvm.IRModule({"main": func}))
        ratio = 1 if kernel is not conv_data_gradient else 8 * 8 / (6 * 6)
        parts = kernel_parts(func)
        assert parts is not None
        (claimed,) = claims(parts, ABILITIES, threads=1)
        assert flops(claimed.call) * ratio == pytest.approx(counted, rel=0.01), kernel.__name__


@pytest.mark.parametrize("rank", [1, 2])
def test_nan_behind_a_convolution_passes_relu(rank: int) -> None:
    """oneDNN's own relu would make zero of it."""

    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        made = emitter.bind(CONVOLUTIONS[rank](*params[:2]), "made")
        return emitter.bind(relax.op.nn.relu(made), "clipped")

    kernel = kernel_of(body, [(2, 16, *[9] * rank), (24, 16, *[3] * rank)])
    library = prepare_onednn_kernel(kernel, NATIVE, "library")
    assert library is not None
    data = np.ones(library.inputs[0].shape, np.float32)
    data[0].flat[0] = np.nan
    data[1].flat[-1] = -np.inf
    (found,) = run(library, (data, np.ones(library.inputs[1].shape, np.float32)))
    assert np.isnan(found[0]).sum() == 24  # one place of each channel
    assert (found[1] == 0).sum() == 24
