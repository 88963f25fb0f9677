"""How fast are our kernels, against PyTorch eager on one core in the same run?

Both are timed by the CPU time of the calling thread, in turns, so that other load on the machine
changes the ratio little.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from tvm import te, topi

from benchmarks.record import record
from tvm_xengine.cost_models.measure.timing import call_of, example_arguments
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.store.compile import compile_kernels
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.kernels.te.convolution import conv_data_gradient, conv_weight_gradient
from tvm_xengine.kernels.te.linear import (
    batch_matmul,
    linear,
    linear_data_gradient,
    linear_weight_gradient,
)
from tvm_xengine.kernels.te.losses.loss import cross_entropy_forward
from tvm_xengine.kernels.te.norms.batch_norm import batch_norm_backward, batch_norm_forward
from tvm_xengine.kernels.te.norms.row_norm import group_norm_forward, softmax_backward
from tvm_xengine.kernels.te.pooling import (
    adaptive_avg_pool,
    max_pool_backward,
    max_pool_forward,
)
from tvm_xengine.kernels.te.resize import resize, resize_backward

torch = pytest.importorskip("torch")

ROUNDS = 9
MOST_TIMES_SLOWER = 4.0


@dataclass(frozen=True)
class Case:
    """One kernel of ours and the PyTorch call that computes the same."""

    name: str
    inputs: Sequence[te.Tensor]
    outputs: te.Tensor | list[te.Tensor]
    eager: Callable[[], object]


def convolution_cases(
    batch: int, channels: int, size: int, filters: int, kernel: int, stride: int, groups: int = 1
) -> list[Case]:
    padding = kernel // 2
    out = (size + 2 * padding - kernel) // stride + 1
    shapes = {
        "x": (batch, channels, size, size),
        "w": (filters, channels // groups, kernel, kernel),
        "dy": (batch, filters, out, out),
    }
    x, w, dy = (te.placeholder(shape, "float32", name=n) for n, shape in shapes.items())
    tx, tw, tdy = (torch.randn(shape) for shape in shapes.values())
    attributes = {
        "strides": (stride, stride),
        "padding": (padding,) * 4,
        "dilation": (1, 1),
        "groups": groups,
    }
    if groups == 1:
        forward = topi.nn.conv2d_nchw(x, w, stride, padding, 1)
    elif groups == channels == filters:
        forward = topi.nn.depthwise_conv2d_nchw(x, w, stride, padding, 1)
    else:
        forward = topi.nn.group_conv2d_nchw(x, w, stride, padding, 1, groups)

    def backward(wanted: list[bool]) -> Callable[[], object]:
        return lambda: torch.ops.aten.convolution_backward(
            tdy, tx, tw, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, wanted
        )

    label = f"{channels}x{size}x{size} {filters} {kernel}x{kernel}/{stride} groups {groups}"
    data_gradient = conv_data_gradient(dy, w, data_shape=shapes["x"], **attributes)
    weight_gradient = conv_weight_gradient(x, dy, kernel_shape=(kernel, kernel), **attributes)
    return [
        Case(
            f"conv {label}",
            [x, w],
            forward,
            lambda: torch.conv2d(tx, tw, None, stride, padding, 1, groups),
        ),
        Case(f"conv dx {label}", [dy, w], data_gradient, backward([True, False, False])),
        Case(f"conv dw {label}", [x, dy], weight_gradient, backward([False, True, False])),
    ]


def linear_cases(rows: int, depth: int, columns: int) -> list[Case]:
    shapes = {"x": (rows, depth), "w": (columns, depth), "dy": (rows, columns)}
    x, w, dy = (te.placeholder(shape, "float32", name=n) for n, shape in shapes.items())
    tx, tw, tdy = (torch.randn(shape) for shape in shapes.values())
    label = f"{rows}x{depth} -> {columns}"
    return [
        Case(f"linear {label}", [x, w], linear(x, w), lambda: tx @ tw.t()),
        Case(f"linear dx {label}", [dy, w], linear_data_gradient(dy, w), lambda: tdy @ tw),
        Case(f"linear dw {label}", [x, dy], linear_weight_gradient(x, dy), lambda: tdy.t() @ tx),
    ]


def attention_cases(heads: int, length: int, width: int) -> list[Case]:
    q, k = (te.placeholder((heads, length, width), "float32", name=name) for name in "qk")
    scores = te.placeholder((heads, length, length), "float32", name="scores")
    tq, ts = torch.randn(heads, length, width), torch.randn(heads, length, length)
    product = batch_matmul(q, k, transpose_left=False, transpose_right=True, output_batch=(heads,))
    label = f"{heads}x{length}x{width}"
    return [
        Case(f"attention scores {label}", [q, k], product, lambda: tq @ tq.transpose(1, 2)),
        Case(f"softmax {label}", [scores], topi.nn.softmax(scores), lambda: ts.softmax(-1)),
        Case("tanh", [scores], topi.tanh(scores), lambda: ts.tanh()),
    ]


def norm_cases(batch: int, channels: int, size: int) -> list[Case]:
    shape = (batch, channels, size, size)
    x, dy = (te.placeholder(shape, "float32", name=name) for name in ("x", "dy"))
    names = ("gamma", "beta", "mean", "inv_std")
    gamma, beta, mean, inv_std = (te.placeholder((channels,), "float32", name=n) for n in names)
    tx, tdy, ones = torch.randn(shape), torch.randn(shape), torch.ones(channels)
    statistics_of = [tx.mean((0, 2, 3)), 1 / tx.std((0, 2, 3))]
    backward = batch_norm_backward(
        dy, x, gamma, beta, mean, inv_std, relu=False, wanted=(True,) * 3
    )
    return [
        Case(
            f"batch norm {channels}x{size}x{size}",
            [x, gamma, beta],
            batch_norm_forward(x, gamma, beta, epsilon=1e-5, relu=False),
            lambda: torch.native_batch_norm(tx, ones, ones, None, None, True, 0.1, 1e-5),
        ),
        Case(
            f"batch norm backward {channels}x{size}x{size}",
            [dy, x, gamma, beta, mean, inv_std],
            backward,
            lambda: torch.ops.aten.native_batch_norm_backward(
                tdy, tx, ones, None, None, *statistics_of, True, 1e-5, [True] * 3
            ),
        ),
    ]


def loss_and_pooling_cases() -> list[Case]:
    logits = te.placeholder((256, 1000), "float32", name="logits")
    labels = te.placeholder((256,), "int32", name="labels")
    tlogits, tlabels = torch.randn(256, 1000), torch.zeros(256, dtype=torch.long)
    loss = cross_entropy_forward(logits, labels, axis=1, label_smoothing=0.0, ignore_index=-100)
    window = {
        "pool_size": (2, 2),
        "strides": (2, 2),
        "padding": (0,) * 4,
        "dilation": (1, 1),
    }
    x = te.placeholder((8, 64, 56, 56), "float32", name="x")
    dy = te.placeholder((8, 64, 28, 28), "float32", name="dy")
    position = te.placeholder((8, 64, 28, 28), "int32", name="position")
    tx, tdy = torch.randn(8, 64, 56, 56), torch.randn(8, 64, 28, 28)
    _, indices = torch.nn.functional.max_pool2d(tx, 2, return_indices=True)
    return [
        Case(
            "cross entropy",
            [logits, labels],
            loss,
            lambda: torch.nn.functional.cross_entropy(tlogits, tlabels),
        ),
        Case(
            "max_pool",
            [x],
            max_pool_forward(x, output_shape=(8, 64, 28, 28), **window),
            lambda: torch.nn.functional.max_pool2d(tx, 2),
        ),
        Case(
            "max_pool_backward",
            [dy, position],
            max_pool_backward(dy, position, data_shape=(8, 64, 56, 56), **window),
            lambda: torch.ops.aten.max_pool2d_with_indices_backward(
                tdy, tx, [2, 2], [2, 2], [0, 0], [1, 1], False, indices
            ),
        ),
    ]


def image_cases() -> list[Case]:
    """Kernels over rows of images: softmax over channels, group norm, resizing, large windows."""
    shape, wide = (8, 32, 32, 32), (8, 32, 64, 64)
    x, dy = (te.placeholder(shape, "float32", name=name) for name in ("x", "dy"))
    dy_wide = te.placeholder(wide, "float32", name="dy_wide")
    gamma, beta = (te.placeholder((32,), "float32", name=name) for name in ("gamma", "beta"))
    tx, tdy, twide, ones = torch.randn(shape), torch.randn(shape), torch.randn(wide), torch.ones(32)
    linear_options = {
        "method": "linear",
        "coordinates": "half_pixel",
        "rounding": "",
        "alpha": -0.75,
        "exclude_outside": False,
    }
    window = {"strides": (1, 1), "padding": (2,) * 4, "dilation": (1, 1)}
    functional, aten = torch.nn.functional, torch.ops.aten
    return [
        Case(
            "softmax over channels, backward",
            [dy, x],
            softmax_backward(dy, x, axis=1),
            lambda: aten._softmax_backward_data(tdy, tx, 1, torch.float32),
        ),
        Case(
            "group norm",
            [x, gamma, beta],
            group_norm_forward(x, gamma, beta, groups=8, epsilon=1e-5),
            lambda: functional.group_norm(tx, 8, ones, ones),
        ),
        Case(
            "bilinear",
            [x],
            resize(x, size=wide[2:], **linear_options),
            lambda: functional.interpolate(tx, wide[2:], mode="bilinear"),
        ),
        Case(
            "bilinear backward",
            [dy_wide],
            resize_backward(dy_wide, shape=shape, **linear_options),
            lambda: aten.upsample_bilinear2d_backward(twide, wide[2:], shape, False),
        ),
        Case(
            "adaptive means of 7x7",
            [x],
            adaptive_avg_pool(x, output_size=(7, 7)),
            lambda: functional.adaptive_avg_pool2d(tx, 7),
        ),
        Case(
            "max_pool 5x5",
            [x],
            max_pool_forward(x, pool_size=(5, 5), output_shape=shape, **window),
            lambda: functional.max_pool2d(tx, 5, 1, 2, return_indices=True),
        ),
    ]


CASES = [
    *convolution_cases(8, 64, 56, 64, 3, 1),
    *convolution_cases(8, 512, 7, 512, 3, 1),
    *convolution_cases(8, 64, 56, 128, 3, 2),
    *convolution_cases(8, 64, 56, 256, 1, 1),
    *convolution_cases(8, 96, 56, 96, 3, 1, groups=96),
    *convolution_cases(8, 64, 56, 64, 3, 1, groups=4),
    *linear_cases(1024, 256, 1024),
    *linear_cases(8, 512, 10),
    *attention_cases(64, 128, 32),
    *norm_cases(8, 64, 56),
    *norm_cases(16, 576, 4),
    *loss_and_pooling_cases(),
    *image_cases(),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernel_keeps_up_with_pytorch(case: Case) -> None:
    torch.set_num_threads(1)
    target = resolve_target("llvm -mcpu=native")
    outputs = case.outputs if isinstance(case.outputs, list) else [case.outputs]
    func = te.create_prim_func([*case.inputs, *outputs])
    started_s = time.process_time()
    kernel = prepare_kernel(func, target, case.name)
    compiled = compile_kernels([kernel], target)[kernel.symbol]
    compile_s = time.process_time() - started_s
    arguments = example_arguments(call_of(kernel))
    ours, eager = time_in_turns_us([lambda: compiled(*arguments), case.eager])
    ratio = ours / eager
    record(
        "kernels",
        {
            "kernel": case.name,
            "ours_us": round(ours, 1),
            "pytorch_us": round(eager, 1),
            "ratio": round(ratio, 2),
            "workspace_bytes": kernel.workspace_bytes,
            "compile_s": round(compile_s, 2),
        },
    )
    assert ratio <= MOST_TIMES_SLOWER


def time_in_turns_us(functions: Sequence[Callable[[], object]]) -> list[float]:
    """Lower quartile over rounds of the CPU time of each function, timed in turns."""
    for function in functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS):
        for function, its_times in zip(functions, times, strict=True):
            started_ns = time.thread_time_ns()
            function()
            its_times.append((time.thread_time_ns() - started_ns) / 1000)
    return [statistics.quantiles(its_times, n=4)[0] for its_times in times]
