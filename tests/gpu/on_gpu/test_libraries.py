"""Kernels that cuDNN and cuBLAS compute on a GPU, against generated ones of a processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from tests.kernels.kernels import run_kernel
from tests.kernels.onednn.onednn_twins import Body, kernel_of
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.library.context import KernelContext
from tvm_xengine.kernels.nvidia.source import NvidiaSource
from tvm_xengine.kernels.sources import why_not
from tvm_xengine.kernels.store.compile import compile_kernels
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.kernels.te.convolution import conv_data_gradient, conv_weight_gradient
from tvm_xengine.kernels.te.linear import (
    batch_matmul,
    linear,
    linear_data_gradient,
    linear_weight_gradient,
)
from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.runtime.storage import Arena
from tvm_xengine.training.emitter import Emitter

pytestmark = pytest.mark.gpu


def test_the_libraries_are_here() -> None:
    assert why_not("nvidia", resolve_target("cuda")) is None


def prepared(func: tirx.PrimFunc) -> DeviceKernel | None:
    return NvidiaSource().prepare(func, resolve_target("cuda"), "kernel", None)


def run_on_gpu(kernel: DeviceKernel, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The output in poisoned memory; the kernel must not write behind its workspace."""
    gpu = tvm.device("cuda", 0)
    function = compile_kernels([kernel], kernel.target)[kernel.symbol]
    (spec,) = kernel.outputs
    given = [tvm.runtime.tensor(each, gpu) for each in inputs]
    made = tvm.runtime.tensor(np.full(spec.shape, np.nan, spec.dtype), gpu)
    arena = Arena(kernel.workspace_bytes, gpu, guard_bytes=4096)
    arena.poison()
    view = ArenaView("gpu", 0, (kernel.workspace_bytes,), "uint8")
    workspace = [arena.view(view)] if kernel.workspace_bytes else []
    context = KernelContext(kernel.library)
    for _ in range(2):
        function(*given, made, *workspace, context.tensor)
    found = made.numpy()
    assert arena.guard_is_intact()
    return np.asarray(found)


def assert_agrees(body: Body, shapes: Sequence[tuple[int, ...]]) -> None:
    func = kernel_of(body, shapes)
    kernel = prepared(func)
    assert kernel is not None
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, shape).astype("float32") for shape in shapes]
    (expected,) = run_kernel(func, "llvm -mcpu=native", *inputs)
    found = run_on_gpu(kernel, inputs)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def options(rank: int, **other: Any) -> dict[str, Any]:
    plain = {"strides": (1,) * rank, "padding": (1,) * (2 * rank), "dilation": (1,) * rank}
    return {**plain, "groups": 1, **other}


CONVOLUTIONS = [
    ((2, 3, 9, 8), (4, 3, 3, 3), (2, 4, 9, 8), options(2)),
    ((2, 3, 9, 9), (4, 3, 3, 3), (2, 4, 5, 5), options(2, strides=(2, 2))),
    ((2, 4, 9, 8), (6, 2, 3, 3), (2, 6, 7, 6), options(2, dilation=(2, 2), groups=2)),
    ((1, 5, 7, 6), (5, 1, 3, 3), (1, 5, 7, 6), options(2, groups=5)),
    ((2, 6, 5, 5), (7, 6, 1, 1), (2, 7, 5, 5), options(2, padding=(0,) * 4)),
    ((2, 3, 20), (4, 3, 5), (2, 4, 18), options(1)),
    ((1, 2, 5, 6, 4), (3, 2, 3, 3, 3), (1, 3, 5, 6, 4), options(3)),
]


@pytest.mark.parametrize(("data", "weight", "output", "given"), CONVOLUTIONS)
def test_convolutions(
    data: tuple[int, ...], weight: tuple[int, ...], output: tuple[int, ...], given: dict[str, Any]
) -> None:
    made = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}

    def forward(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        return emitter.bind(made[len(data) - 2](*params, **given), "made")

    def data_gradient(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        return emitter.call(conv_data_gradient, params, "made", data_shape=data, **given)

    def weight_gradient(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        return emitter.call(conv_weight_gradient, params, "made", kernel_shape=weight[2:], **given)

    assert_agrees(forward, [data, weight])
    assert_agrees(data_gradient, [output, weight])
    assert_agrees(weight_gradient, [data, output])


@pytest.mark.parametrize("in_place", [True, False])
def test_what_is_fused_behind_a_convolution_is_generated(in_place: bool) -> None:
    """Also where it needs the library's result beside its own."""

    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        made = emitter.bind(relax.op.nn.conv2d(*params[:2], padding=(1, 1)), "made")
        biased = emitter.bind(relax.op.add(made, params[2]), "biased")
        return emitter.bind(relax.op.nn.relu(biased), "clipped")

    added = (1, 4, 1, 1) if in_place else (3, 4, 9, 8)
    batch = 2 if in_place else 1
    assert_agrees(body, [(batch, 3, 9, 8), (4, 3, 3, 3), added])


def test_padding_on_one_side_is_left_to_the_next_source() -> None:
    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        return emitter.bind(relax.op.nn.conv2d(*params, padding=(0, 0, 1, 1)), "made")

    assert prepared(kernel_of(body, [(1, 2, 6, 6), (3, 2, 3, 3)])) is None


@pytest.mark.parametrize(
    ("kernel", "shapes"),
    [
        (linear, [(5, 6, 10), (8, 10)]),
        (linear_data_gradient, [(5, 6, 8), (8, 10)]),
        (linear_weight_gradient, [(5, 6, 10), (5, 6, 8)]),
        (linear, [(1, 10), (1, 10)]),
        (linear_weight_gradient, [(1, 10), (1, 1)]),
    ],
)
def test_linear_and_its_gradients(
    kernel: Callable[..., Any], shapes: list[tuple[int, ...]]
) -> None:
    assert_agrees(lambda emitter, params: emitter.call(kernel, params, "made"), shapes)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("left_batch", "right_batch", "batch"),
    [((2, 3), (2, 3), (2, 3)), ((), (4,), (4,)), ((2, 3), (1, 1), (2, 3)), ((), (), ())],
)
def test_products_of_stacks(
    turned: tuple[bool, bool],
    left_batch: tuple[int, ...],
    right_batch: tuple[int, ...],
    batch: tuple[int, ...],
) -> None:
    left = (7, 5) if turned[0] else (5, 7)
    right = (6, 7) if turned[1] else (7, 6)

    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        return emitter.call(
            *(batch_matmul, params, "made"),
            transpose_left=turned[0],
            transpose_right=turned[1],
            output_batch=batch,
        )

    assert_agrees(body, [(*left_batch, *left), (*right_batch, *right)])


def test_a_product_summed_over_its_batch() -> None:
    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        return emitter.call(
            *(batch_matmul, params, "made"),
            transpose_left=True,
            transpose_right=False,
            output_batch=(),
        )

    assert_agrees(body, [(3, 4, 5, 6), (3, 4, 5, 7)])


def test_large_sums_round_as_float32_does() -> None:
    """TF32 keeps 11 bits of each factor."""
    rng = np.random.default_rng(1)
    x, w = (rng.normal(size=shape).astype("float32") for shape in ((64, 2048), (32, 2048)))
    func = kernel_of(lambda e, p: e.call(linear, p, "made"), [x.shape, w.shape])
    kernel = prepared(func)
    assert kernel is not None
    exact = x.astype("float64") @ w.T.astype("float64")
    error = np.abs(run_on_gpu(kernel, [x, w]) - exact).max()
    assert error <= 2e-6 * np.abs(exact).max()
