"""What several kernels of a package compute is one C function."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.tirx import Expr

from tests.aot.examples import attention, export, need_tools
from tests.aot.kernels.test_c_kernel import C, compiled, elementwise
from tvm_xengine.aot.check.emulation import build_program, run_program, selftest_build
from tvm_xengine.aot.emit_c.kernel import c_kernel
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.plan.instructions import kernel_instructions
from tvm_xengine.aot.plan.kernels import Optimize, prepare_for_target
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import Layers, build_network

FUNCTIONS: dict[str, Callable[[Expr], Expr]] = {
    **{
        name: getattr(tirx, name)
        for name in ["exp", "log", "log1p", "sigmoid", "tanh", "erf", "cosh", "sinh"]
    },
    "of one another": lambda a: tirx.log1p(tirx.exp(tirx.tanh(a))) * tirx.exp(a),
}


def passes_its_selftest(report: ExportReport, folder: Path) -> bool:
    build = selftest_build(report.directory, report.package)
    build_program(report.directory, report.package, build, folder / "selftest")
    return run_program(folder / "selftest", report.package.target).returncode == 0


def made_by(
    function: Callable[[Expr], Expr], optimize: Optimize, dtype: str, x: np.ndarray, folder: Path
):
    """What the kernel in C computes, and its text."""
    func = elementwise(dtype, of=function, shape=x.shape)
    kernel = prepare_for_target(func, C, "kernel", optimize)
    text = c_kernel(kernel, "made")
    folder.mkdir()
    y = np.zeros_like(x)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (x, y)]
    compiled([text], folder).made(*pointers)
    return y, text


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_is_called_computes_the_bits_of_one_that_is_written_out(
    name: str, dtype: str, tmp_path: Path
) -> None:
    need_tools("host")
    every = np.arange(0, 2**32, 104729, dtype=np.uint32).view(np.float32)  # of all magnitudes
    x = np.concatenate([every, np.linspace(-4, 4, 4001, dtype=np.float32)])
    with np.errstate(over="ignore", invalid="ignore"):
        x = x.astype(dtype)
    small, called = made_by(FUNCTIONS[name], Optimize.SIZE, dtype, x, tmp_path / "size")
    fast, written = made_by(FUNCTIONS[name], Optimize.SPEED, dtype, x, tmp_path / "speed")
    np.testing.assert_array_equal(np.isnan(small), np.isnan(fast))
    is_number = ~np.isnan(fast)
    assert small[is_number].tobytes() == fast[is_number].tobytes()
    assert len(called.source) < len(written.source)


@pytest.mark.slow
def test_a_package_for_size_has_the_polynomial_of_an_exponential_once(tmp_path: Path) -> None:
    """It is in softmax, tanh and the loss; instructions are counted where it is called, too."""
    need_tools("host")
    counts = {}
    for optimize in ("size", "speed"):
        report = export(attention(), tmp_path / optimize, optimize=optimize, name="net")
        text = (report.directory / "net_kernels.c").read_text()
        counts[optimize] = text.count(float.hex(1.9875691500e-4).rstrip("0")[:16])
        assert passes_its_selftest(report, tmp_path)
    assert counts["size"] == 1
    assert counts["speed"] > 2


def test_a_call_takes_the_instructions_of_what_it_calls() -> None:
    func = elementwise("float32", of=lambda a: tirx.tanh(a), shape=(64,))
    size, speed = (
        kernel_instructions(
            prepare_for_target(func, C, "k", optimize), embedded_target("cortex-m4")
        )
        for optimize in (Optimize.SIZE, Optimize.SPEED)
    )
    calls = 64 * 2 * 2  # of tanh and exp: a jump there, and one back
    assert size == pytest.approx(speed + calls, rel=0.05)


def steps(count: int = 5) -> ForwardModel:
    """A recurrence over the steps of a sequence, each a slice of what one dense layer makes."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.input("x", (2, count, 6))
        x = layers.linear("into", x, 8)
        h = layers.linear(
            "first", layers.emit("zero", relax.op.squeeze(part(layers, x, 0), [1])), 8
        )
        for step in range(1, count):
            taken = layers.emit(f"step{step}", relax.op.squeeze(part(layers, x, step), [1]))
            h = layers.emit(f"h{step}", relax.op.tanh(layers.add(f"sum{step}", taken, h)))
        return layers.linear("fc", h, 3)

    def part(layers: Layers, x: relax.Expr, step: int) -> relax.Expr:
        return layers.emit(f"slice{step}", relax.op.strided_slice(x, [1], [step], [step + 1]))

    return build_network("steps", 0, body)


def test_steps_of_a_recurrence_share_their_functions(tmp_path: Path) -> None:
    """Kernels that read other parts of a tensor are called with where the part begins."""
    need_tools("host")
    functions = {}
    for count in (5, 9):
        folder = tmp_path / str(count)
        report = export(steps(count), folder, optimize="size", name="net")
        functions[count] = len(report.package.kernel_functions)
        text = (folder / "net_kernels.c").read_text()
        assert len(re.findall("^void ", text, re.MULTILINE)) == functions[count]
        assert passes_its_selftest(report, tmp_path)
    assert functions[9] == functions[5]
