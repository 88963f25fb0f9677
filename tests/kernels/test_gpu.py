"""Kernels for GPUs: without one, their source is compiled, and run with fibers for threads."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.support import cc

from tests.kernels.emulated_gpu import EmulatedGpu
from tests.kernels.kernels import centred_twice, matmul, momentum, reversed_copy, run_kernel
from tvm_xengine.errors import InvalidPlatformError, UnsupportedModuleError
from tvm_xengine.frontends.load import load_model
from tvm_xengine.frontends.zoo.layers import build_network
from tvm_xengine.kernels import device_kinds
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.schedules.gpu_rules import propose_gpu_schedules
from tvm_xengine.kernels.store.compile import compile_kernels, device_source
from tvm_xengine.kernels.store.kernel_store import load_kernels
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.kernels.te.indexing.merge_sort import ranked_by_merging
from tvm_xengine.kernels.te.indexing.movement import parts_backward
from tvm_xengine.kernels.te.indexing.order import place_of_extreme
from tvm_xengine.kernels.te.indexing.scan import running_sum
from tvm_xengine.kernels.te.pooling import adaptive_avg_pool, max_pool_forward
from tvm_xengine.kernels.te.resize import resize, resize_backward
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.training.build import build_training_step

GPU = resolve_target("cuda -arch=sm_80")
needs_compiler = pytest.mark.skipif(cc.get_cc() is None, reason="needs a C++ compiler")
needs_no_gpu = pytest.mark.skipif(tvm.device("cuda", 0).exist, reason="there is a GPU")


def step_kernels(name, batch):
    """The kernels of a training step: forward, backward and optimizer."""
    return kernels_of(build_training_step(load_model(name, batch_size=batch)))


def kernels_of(training):
    lowered = tvm.transform.Sequential([LowerToKernels()])(training.mod)
    return {
        symbol.name_hint: func
        for symbol, func in lowered.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }


def some_values(spec, rng):
    if spec.dtype.startswith("float"):
        return rng.uniform(0.5, 1.5, spec.shape).astype(spec.dtype)
    return rng.integers(0, 5, spec.shape).astype(spec.dtype)


def require_same_numbers(funcs, folder):
    """The emulated GPU computes what LLVM makes of the same kernels."""
    kernels = {name: prepare_kernel(func, GPU, name) for name, func in funcs.items()}
    gpu = EmulatedGpu(list(kernels.values()), folder)
    rng = np.random.default_rng(0)
    for name, kernel in kernels.items():
        inputs = [some_values(spec, rng) for spec in kernel.inputs]
        expected = run_kernel(funcs[name], "llvm -mcpu=x86-64-v3", *inputs)
        for got, wanted in zip(gpu.run(kernel, *inputs), expected, strict=True):
            scale = max(float(np.abs(wanted).max()), 1e-30)
            np.testing.assert_allclose(got / scale, wanted / scale, atol=1e-5, err_msg=name)


@needs_compiler
def test_small_kernels_compute_the_same_on_an_emulated_gpu(tmp_path):
    funcs = {
        "two_launches": centred_twice(70, 33),
        "product": matmul(45, 19, 70),
        "update": momentum(2500),
        "few_long_sums": centred_twice(3000, 3),
    }
    require_same_numbers(funcs, tmp_path)


@needs_compiler
def test_stages_that_a_kernel_keeps_compute_the_same_on_an_emulated_gpu(tmp_path):
    """Tables of weights, and an image with its border."""
    x, dy = (
        te.placeholder((2, 3, 7, 9), "float32", name="x"),
        te.placeholder((2, 3, 14, 5), "float32"),
    )
    y = te.placeholder((5, 8, 7, 9), "float32", name="y")
    how = {"method": "linear", "coordinates": "half_pixel", "rounding": "", "alpha": -0.75}
    wide = resize(x, size=(14, 5), exclude_outside=False, **how)
    back = resize_backward(dy, shape=(2, 3, 7, 9), exclude_outside=False, **how)
    window = {"pool_size": (5, 5), "strides": (1, 1), "padding": (2,) * 4, "dilation": (1, 1)}
    funcs = {
        "resized": te.create_prim_func([x, wide]),
        "back": te.create_prim_func([dy, back]),
        "means": te.create_prim_func([x, adaptive_avg_pool(x, output_size=(3, 4))]),
        "maxima": te.create_prim_func(
            [y, *max_pool_forward(y, output_shape=(5, 8, 7, 9), **window)]
        ),
    }
    require_same_numbers(funcs, tmp_path)


@needs_compiler
def test_angles_places_and_parts_compute_the_same_on_an_emulated_gpu(tmp_path):
    x, y = (te.placeholder((5, 37, 9), "float32", name=name) for name in "xy")
    parts = [te.placeholder((5, extent, 9), "float32", name=f"p{extent}") for extent in (2, 1, 4)]
    angles = te.compute(
        x.shape, lambda *i: tirx.atan2(te.sin(x(*i) * 1e6), te.tan(y(*i))) + te.cos(y(*i)), "angles"
    )
    joined = parts_backward(*parts, shape=(5, 12, 9), axis=1, begins=(1, 3, 6))
    place = place_of_extreme(x, axis=1, largest=True, keepdims=True)
    funcs = {
        "angles": te.create_prim_func([x, y, angles]),
        "place": te.create_prim_func([x, place]),
        "joined": te.create_prim_func([*parts, joined]),
        "running": running_sum(x, exclusive=False, reverse=True),
        "sorted": ranked_by_merging(x, first=1, count=30, descending=True, dtype="int64"),
    }
    require_same_numbers(funcs, tmp_path)


@needs_compiler
def test_indices_that_divide_what_is_left_of_a_number(tmp_path):
    """dlight's rules made ``j // -7 + 1`` of ``(8 - j) // 7``, which is 0 and not 1 for j = 7."""
    x = te.placeholder((2, 9), "float32", name="x")
    k = te.reduce_axis((0, 4), name="k")
    few = te.compute((9, 8), lambda i, j: te.sum(x[(8 - j) // 7, k], axis=k), name="few")
    r = te.reduce_axis((0, 64), name="r")
    long = te.compute((3, 8), lambda i, j: te.max(x[(8 - j) // 7, r % 9], axis=r), name="long")
    funcs = {"few": te.create_prim_func([x, few]), "long": te.create_prim_func([x, long])}
    require_same_numbers(funcs, tmp_path)


@needs_compiler
def test_sums_over_two_matrices_that_are_no_products(tmp_path):
    """dlight's schedule of products went on over zeros, which add exp(0), and are the largest of all."""
    a, b = (te.placeholder((rows, 19), "float32", name=n) for rows, n in ((45, "a"), (70, "b")))
    k = te.reduce_axis((0, 19), name="k")

    def over(term, fold):
        y = te.compute((45, 70), lambda i, j: fold(term(a[i, k], b[j, k]), axis=k), name="y")
        return te.create_prim_func([a, b, y])

    funcs = {
        "likeness": over(lambda p, q: te.exp(-te.abs(p - q)), te.sum),
        "distance": over(lambda p, q: te.abs(p - q), te.sum),
        "largest": over(lambda p, q: -p - q, te.max),
    }
    require_same_numbers(funcs, tmp_path)


@pytest.mark.slow
@needs_compiler
def test_dropouts_in_a_row_compute_the_same_on_an_emulated_gpu(tmp_path):
    def body(layers):
        x = layers.input("x", (7, 30))
        for at in range(3):
            x = layers.dropout(f"drop{at}", x, 0.25)
        return layers.linear("fc", layers.relu("relu", x), 4)

    funcs = kernels_of(build_training_step(build_network("drops", 0, body)))
    drops = {name: func for name, func in funcs.items() if "dropout_dropout" in name}
    assert drops
    require_same_numbers(drops, tmp_path)


@needs_compiler
def test_one_thread_for_each_element_computes_the_same(tmp_path, monkeypatch):
    """The loops for what no rule of dlight fits, here of kernels that others fit, too."""

    def last(func, target):
        yield list(propose_gpu_schedules(func, target))[-1]

    monkeypatch.setattr(device_kinds, "propose_gpu_schedules", last)
    funcs = {"launches": centred_twice(70, 33), "sum": matmul(45, 39, 70), "in": momentum(2500)}
    require_same_numbers(funcs, tmp_path)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet", "gpt_nano"])
def test_training_steps_compute_the_same_on_an_emulated_gpu(name, tmp_path):
    require_same_numbers(step_kernels(name, 1), tmp_path)


@pytest.mark.slow
@needs_compiler
def test_residual_networks_compute_the_same_on_an_emulated_gpu(tmp_path):
    require_same_numbers(step_kernels("resnet8", 2), tmp_path)


def test_every_kernel_of_a_training_step_has_launches_and_source():
    kernels = [prepare_kernel(f, GPU, name) for name, f in step_kernels("lenet", 1).items()]
    source = device_source(kernels, GPU)
    for kernel in kernels:
        assert "__global__ void __launch_bounds__" in source
        assert f" {kernel.symbol}_kernel" in source, kernel.name


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", ["lenet", "resnet8", "gpt_nano"])
def test_nvcc_compiles_the_source(name, tmp_path):
    kernels = [prepare_kernel(f, GPU, name) for name, f in step_kernels(name, 4).items()]
    (tmp_path / "step.cu").write_text(device_source(kernels, GPU))
    command = ["nvcc", "-arch=sm_80", "-cubin", "-O1", "-o", "step.cubin", "step.cu"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert (tmp_path / "step.cubin").stat().st_size > 0


def test_what_one_launch_leaves_for_the_next_is_workspace_however_small():
    kernel = prepare_kernel(centred_twice(8, 10), GPU)
    assert kernel.workspace_bytes == 64  # ten floats, rounded up


def test_the_host_code_allocates_nothing():
    module = compile_kernels([prepare_kernel(centred_twice(8, 1000), GPU)], GPU)
    assert "AllocWorkspace" not in module.inspect_source("ll")


def test_a_kernel_without_a_schedule_is_named(monkeypatch):
    monkeypatch.setattr(device_kinds, "propose_gpu_schedules", lambda func, target: [func])
    with pytest.raises(UnsupportedModuleError, match="kernel shift has no schedule for cuda"):
        prepare_kernel(momentum(40), GPU, "shift")


def test_writing_over_an_input_that_is_still_read_is_refused():
    with pytest.raises(UnsupportedModuleError, match="cannot be written over input"):
        prepare_kernel(reversed_copy(4000), GPU, "reversed")


@needs_no_gpu
def test_a_gpu_that_is_not_there_is_said_before_anything_is_compiled():
    kernel = prepare_kernel(momentum(40), GPU)
    with pytest.raises(InvalidPlatformError, match="expected a GPU and its driver"):
        load_kernels([kernel], None)
