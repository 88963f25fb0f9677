from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import te, topi

from tests.kernels.kernels import (
    BASELINE,
    NATIVE,
    centred_twice,
    matmul,
    momentum,
    reversed_copy,
    run_kernel,
    scale_and_shift,
)
from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.device_kernel import TensorSpec, prepare_kernel
from tvm_xengine.kernels.store.compile import compile_kernels
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.relax_ir.kernel_attributes import kernel_hash


def test_compiled_kernel_computes_what_the_function_says():
    x = np.arange(7, dtype="float32")
    (y,) = run_kernel(scale_and_shift(7), NATIVE, x)
    np.testing.assert_array_equal(y, x * 2 + 1)


def test_memory_for_intermediates_comes_in_as_workspace():
    target = resolve_target(BASELINE)
    kernel = prepare_kernel(centred_twice(8, 1000), target)
    assert kernel.workspace_bytes == 4032  # 1000 floats, rounded up to 64 bytes
    assert kernel.inputs == kernel.outputs == (TensorSpec((8, 1000), "float32"),)
    text = compile_kernels([kernel], target).inspect_source("ll")
    assert "AllocWorkspace" not in text


def test_workspace_does_not_change_the_numbers():
    x = np.random.default_rng(0).standard_normal((8, 1000)).astype("float32")
    (y,) = run_kernel(centred_twice(8, 1000), NATIVE, x)
    np.testing.assert_allclose(y, x - x.mean(axis=0), rtol=1e-5, atol=1e-6)


def test_an_intermediate_without_elements_is_no_memory_of_the_kernel():
    nothing = te.compute((0,), lambda i: te.const(0.0, "float32"), name="nothing")
    x = te.placeholder((3,), "float32", name="x")
    joined = topi.concatenate([topi.concatenate([nothing, x]), x])
    values = np.arange(3, dtype="float32")
    (y,) = run_kernel(te.create_prim_func([x, joined]), NATIVE, values)
    np.testing.assert_array_equal(y, np.concatenate([values, values]))


def test_small_intermediates_need_no_workspace():
    assert prepare_kernel(centred_twice(8, 10), resolve_target(BASELINE)).workspace_bytes == 0


def test_inplace_kernel_writes_over_its_inputs():
    p, v, g = (np.full(100, value, "float32") for value in (1.0, 2.0, 3.0))
    new_p, new_v = run_kernel(momentum(100), NATIVE, p, v, g)
    np.testing.assert_array_equal(new_v, np.full(100, 4.0))
    np.testing.assert_array_equal(new_p, np.full(100, -3.0))


def test_inplace_kernel_that_reads_what_it_overwrote_is_refused():
    with pytest.raises(UnsupportedModuleError, match="y cannot be written over input x"):
        prepare_kernel(reversed_copy(10), resolve_target(BASELINE))


def test_function_that_stores_to_an_input_is_refused():
    func = scale_and_shift(4)
    swapped = tvm.tirx.PrimFunc(list(reversed(func.params)), func.body, func.ret_type, func.attrs)
    with pytest.raises(UnsupportedModuleError, match="store to its last parameters"):
        prepare_kernel(swapped, resolve_target(BASELINE))


def test_code_for_the_baseline_uses_no_avx():
    text = code_of(matmul(32, 32, 32), BASELINE)
    assert set(re.findall(r'"target-cpu"="([^"]*)"', text)) == {"x86-64"}
    assembly = assembly_of(matmul(32, 32, 32), BASELINE)
    assert not re.search(r"%ymm|%zmm|\tvmulps|\tvfmadd", assembly)


def test_variants_of_a_kernel_for_two_targets_have_two_symbols():
    symbols = {
        prepare_kernel(matmul(4, 4, 4), resolve_target(t)).symbol for t in (BASELINE, NATIVE)
    }
    assert len(symbols) == 2


def test_kernels_of_another_target_are_refused():
    kernel = prepare_kernel(matmul(4, 4, 4), resolve_target(BASELINE))
    with pytest.raises(ValueError, match="was prepared for"):
        compile_kernels([kernel], resolve_target("llvm -mcpu=x86-64-v3"))


def test_one_core_means_no_parallel_loop():
    assert not prepare_kernel(matmul(256, 256, 256), resolve_target(NATIVE)).is_parallel


def test_hash_ignores_names_and_sees_shapes():
    assert kernel_hash(scale_and_shift(8, "x")) == kernel_hash(scale_and_shift(8, "data"))
    assert kernel_hash(scale_and_shift(8)) != kernel_hash(scale_and_shift(9))
    named = scale_and_shift(8).with_attr("global_symbol", "somebody")
    assert kernel_hash(named) == kernel_hash(scale_and_shift(8))


def test_hash_sees_the_body():
    x = te.placeholder((8,), "float32", name="x")
    y = te.compute((8,), lambda i: x[i] * 2.0 + 2.0, name="x_scaled")
    assert kernel_hash(te.create_prim_func([x, y])) != kernel_hash(scale_and_shift(8))


@pytest.mark.slow
def test_hash_is_the_same_in_another_process():
    program = (
        "from tests.kernels.kernels import matmul\n"
        "from tvm_xengine.relax_ir.kernel_attributes import kernel_hash\n"
        "print(kernel_hash(matmul(3, 4, 5)))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == kernel_hash(matmul(3, 4, 5))


def code_of(func, description):
    target = resolve_target(description)
    return compile_kernels([prepare_kernel(func, target)], target).inspect_source("ll")


def assembly_of(func, description):
    target = resolve_target(description)
    return compile_kernels([prepare_kernel(func, target)], target).inspect_source("s")


@pytest.mark.parametrize("error", [TypeError, RuntimeError, ValueError])
def test_a_schedule_that_fails_is_named_and_the_loops_as_written_run(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_func: tvm.tirx.PrimFunc, _target: tvm.target.Target) -> tvm.tirx.PrimFunc:
        raise error("expected a loop, got None")

    func, target = scale_and_shift(7), resolve_target(BASELINE)
    kernel = prepare_kernel(func, target, f"scaled by {error.__name__}", schedule=broken)
    assert kernel.workspace_bytes == 0
    assert f"scaled by {error.__name__} keeps the loops it was written with" in caplog.text
    assert f"its schedule failed: {error.__name__}: expected a loop" in caplog.text


def test_an_interrupt_that_became_another_error_is_one_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def interrupted(func: tvm.tirx.PrimFunc, _target: tvm.target.Target) -> tvm.tirx.PrimFunc:
        @tvm.tirx.transform.prim_func_pass(opt_level=0)
        def transformed(*_given: object) -> tvm.tirx.PrimFunc:
            raise KeyboardInterrupt

        return transformed(tvm.IRModule({"kernel": func}))["kernel"]

    with pytest.raises(KeyboardInterrupt):
        prepare_kernel(scale_and_shift(9), resolve_target(BASELINE), "x", schedule=interrupted)
    assert not caplog.text
