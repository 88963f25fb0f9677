"""Products in C read their factors where they lie, or padded copies of a few rows, and are right."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from tvm import te, tirx, topi
from tvm.target import Target

from tests.aot.examples import need_tools
from tests.aot.kernels.test_c_kernel import compiled
from tests.kernels.kernels import BASELINE, run_unscheduled
from tvm_xengine.aot.emit_c.kernel import c_kernel
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.te.convolution import conv_data_gradient, conv_weight_gradient
from tvm_xengine.kernels.te.linear import (
    batch_matmul,
    linear,
    linear_data_gradient,
    linear_weight_gradient,
)

SCALAR = Target({"kind": "c"})
HELIUM = Target({"kind": "c", "mcpu": "cortex-m55"})


def tensor(name: str, *shape: int) -> te.Tensor:
    return te.placeholder(shape, "float32", name=name)


def dense(m: int, n: int, k: int) -> list[tirx.PrimFunc]:
    x, w, dy = tensor("x", m, k), tensor("w", n, k), tensor("dy", m, n)
    bias = tensor("bias", n)
    made = (
        [x, w, bias, topi.add(linear(x, w), bias)],
        [dy, w, linear_data_gradient(dy, w)],
        [x, dy, linear_weight_gradient(x, dy)],
    )
    return [te.create_prim_func(given) for given in made]


def image(
    data: tuple[int, int, int, int],
    filters: int,
    kernel: int,
    stride: int,
    groups: int = 1,
    padding: int | None = None,
) -> list[tirx.PrimFunc]:
    padding = kernel // 2 if padding is None else padding
    batch, channels, *size = data
    out = [(extent + 2 * padding - kernel) // stride + 1 for extent in size]
    x, dy = tensor("x", *data), tensor("dy", batch, filters, *out)
    w = tensor("w", filters, channels // groups, kernel, kernel)
    options = {
        "strides": (stride, stride),
        "padding": (padding,) * 4,
        "dilation": (1, 1),
        "groups": groups,
    }
    y = topi.nn.group_conv2d_nchw(x, w, stride, padding, 1, groups)
    y = topi.nn.conv2d_nchw(x, w, stride, padding, 1) if groups == 1 else y
    made = (
        [x, w, topi.nn.relu(y)],
        [dy, w, conv_data_gradient(dy, w, data_shape=data, **options)],
        [x, dy, conv_weight_gradient(x, dy, kernel_shape=(kernel, kernel), **options)],
    )
    return [te.create_prim_func(given) for given in made]


def batched() -> list[tirx.PrimFunc]:
    left, right = tensor("left", 3, 5, 7), tensor("right", 3, 18, 5)
    options = {"transpose_left": True, "transpose_right": True, "output_batch": (3,)}
    return [te.create_prim_func([left, right, batch_matmul(left, right, **options)])]


CASES = {
    "dense": dense(8, 32, 20),
    "odd dense": dense(7, 13, 530),
    "image": image((1, 3, 9, 12), 8, 3, 1),
    "batch of images": image((3, 4, 6, 7), 6, 3, 1),
    "strided": image((2, 3, 9, 11), 8, 3, 2),
    "rows and columns that no window reaches": image((2, 3, 8, 10), 8, 3, 2, padding=0),
    "windows side by side": image((2, 3, 11, 11), 8, 3, 3, padding=0),
    "point": image((2, 5, 4, 7), 12, 1, 1),
    "grouped": image((2, 6, 8, 8), 4, 3, 1, groups=2),
    "batched": batched(),
}


@pytest.mark.parametrize(
    "target",
    [pytest.param(SCALAR, id="scalar"), pytest.param(HELIUM, id="helium", marks=pytest.mark.slow)],
)
def test_products_compute_what_loops_as_written_do(target: Target, tmp_path: Path) -> None:
    need_tools("host")
    named = [(name, func) for name, funcs in CASES.items() for func in funcs]
    kernels = [prepare_kernel(func, target) for _, func in named]
    texts = [c_kernel(kernel, f"k{at}") for at, kernel in enumerate(kernels)]
    assert any("xe_f32x4" in text.source for text in texts) is (target is HELIUM)
    library = compiled(texts, tmp_path)
    random = np.random.default_rng(0)
    for (name, func), kernel, text in zip(named, kernels, texts, strict=True):
        inputs = [random.normal(size=spec.shape).astype("float32") for spec in kernel.inputs]
        (made,) = kernel.outputs
        found = np.full(made.shape, np.nan, "float32")
        scratch = np.full(kernel.workspace_bytes, 0xA5, "uint8")
        arrays = [*inputs, found, scratch]
        pointers = [arrays[at].ctypes.data_as(ctypes.c_void_p) for at in text.arguments]
        getattr(library, text.name)(*pointers)
        (exact,) = run_unscheduled(func, BASELINE, *inputs)
        assert np.max(np.abs(found - exact)) <= 1e-5 * np.max(np.abs(exact)), (name, text.source)


def test_a_dense_layer_takes_no_memory_and_a_convolution_that_of_a_few_rows() -> None:
    assert [prepare_kernel(func, SCALAR).workspace_bytes for func in CASES["dense"]] == [0, 0, 0]
    forward, data, _ = (prepare_kernel(f, SCALAR).workspace_bytes for f in CASES["image"])
    assert forward <= 2 * 3 * 3 * 14 * 4
    assert data <= 2 * 8 * 3 * 14 * 4
