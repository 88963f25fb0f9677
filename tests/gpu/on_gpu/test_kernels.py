"""Single kernels on a GPU: arithmetic without fast math, and arenas."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tvm_xengine.doctor.check import State
from tvm_xengine.doctor.machine import gpu_checks
from tvm_xengine.errors import CompilationError
from tvm_xengine.kernels.cuda.compiler import compile_cuda
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.store.compile import compile_kernels
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.runtime.storage import Arena

pytestmark = pytest.mark.gpu


def test_functions_are_right_to_the_last_bits() -> None:
    """Fast math has 11 bits of a logarithm near 1, and zero for denormal numbers."""
    x = te.placeholder((1000,), "float32", name="x")
    outputs = [
        te.compute(x.shape, lambda i: te.log(x[i]), name="log"),
        te.compute(x.shape, lambda i: te.sin(x[i]), name="sin"),
        te.compute(x.shape, lambda i: tirx.const(1e-3, "float32") / x[i], name="ratio"),
        te.compute(x.shape, lambda i: te.sqrt(x[i]), name="root_of_x"),
        te.compute(x.shape, lambda i: x[i] / tirx.const(2e38, "float32"), name="small"),
    ]
    target = resolve_target("cuda")
    kernel = prepare_kernel(te.create_prim_func([x, *outputs]), target)
    function = compile_kernels([kernel], target)[kernel.symbol]
    device = tvm.device("cuda", 0)
    given = np.linspace(0.9, 1.1, 1000, dtype="float32")
    made = [tvm.runtime.tensor(np.zeros(1000, "float32"), device) for _ in outputs]
    function(tvm.runtime.tensor(given, device), *made)
    log, sin, ratio, root, small = (each.numpy() for each in made)
    wide = given.astype("float64")
    for found, exact in ((log, np.log(wide)), (sin, np.sin(wide)), (root, np.sqrt(wide))):
        np.testing.assert_allclose(found, exact, rtol=4e-7, atol=1e-12)
    np.testing.assert_array_equal(ratio, np.float32(1e-3) / given)
    np.testing.assert_array_equal(small, given / np.float32(2e38))
    assert small.all()


def test_denormal_constants_are_those_of_float32() -> None:
    """1e-40 has more digits in double precision than in float32."""
    constants = [1e-40, 2.0**-149, 1e-30]
    x = te.placeholder((4,), "float32", name="x")

    def plus(constant: float) -> te.Tensor:
        return te.compute(x.shape, lambda i: x[i] + tirx.const(constant, "float32"), name="sum")

    outputs = [plus(constant) for constant in constants]
    target = resolve_target("cuda")
    kernel = prepare_kernel(te.create_prim_func([x, *outputs]), target)
    function = compile_kernels([kernel], target)[kernel.symbol]
    device = tvm.device("cuda", 0)
    made = [tvm.runtime.tensor(np.ones(4, "float32"), device) for _ in outputs]
    function(tvm.runtime.tensor(np.zeros(4, "float32"), device), *made)
    for constant, found in zip(constants, made, strict=True):
        np.testing.assert_array_equal(found.numpy(), np.full(4, constant, "float32"))


def test_doctor_names_the_gpu_and_its_compiler() -> None:
    (check,) = gpu_checks()
    assert check.state is State.WORKS
    assert check.detail.startswith(str(tvm.device("cuda", 0).device_name))


def test_what_the_compiler_says_is_said() -> None:
    with resolve_target("cuda"), pytest.raises((CompilationError, RuntimeError), match="mistake"):
        compile_cuda("__global__ void kernel() { mistake; }")


def test_views_of_an_arena_own_its_memory() -> None:
    arena = Arena(1000, tvm.device("cuda", 0), guard_bytes=64)
    arena.poison()
    views = [arena.view(ArenaView("gpu", 64 * k, (4, 4), "float32")) for k in range(4)]
    del arena
    for number, view in enumerate(views):
        view.copyfrom(np.full((4, 4), number, "float32"))
    assert [int(view.numpy().sum()) for view in views] == [0, 16, 32, 48]


def test_a_step_that_writes_too_far_is_seen() -> None:
    arena = Arena(256, tvm.device("cuda", 0), guard_bytes=64)
    arena.poison()
    assert arena.guard_is_intact()
    arena.view(ArenaView("gpu", 256, (4,), "uint8")).copyfrom(np.zeros(4, "uint8"))
    assert not arena.guard_is_intact()
    assert arena.touched_bytes() == 260
