"""Products of int8 are written as dot products, and make the same bits on every core."""

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import pytest
from tvm import te, tirx
from tvm.target import Target

from tests.aot.examples import need_tools
from tests.aot.kernels.test_c_kernel import compiled
from tests.kernels.kernels import BASELINE, run_unscheduled
from tvm_xengine.aot.check.emulation import compile_program, run_program
from tvm_xengine.aot.emit_c.kernel import c_kernel
from tvm_xengine.aot.emit_c.math_functions import helper_definitions
from tvm_xengine.aot.package.code_size import compile_flags
from tvm_xengine.aot.plan.kernels import Backend, Optimize, code_target, prepare_for_target
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.te.integers.products import integer_convolution, integer_dense
from tvm_xengine.kernels.te.integers.rounding import Rounding
from tvm_xengine.kernels.te.integers.windows import Window

ROUNDING = Rounding(zero=-5, lowest=-100, highest=127)


@dataclass(frozen=True)
class Image:
    """A convolution: shape of the data, filters, window, stride, groups."""

    data: tuple[int, ...]
    filters: int
    window: tuple[int, ...]
    stride: int = 1
    groups: int = 1

    def func(self) -> tirx.PrimFunc:
        padding = tuple(extent // 2 for extent in self.window)
        space = [
            (extent + 2 * p - k) // self.stride + 1
            for extent, p, k in zip(self.data[2:], padding, self.window, strict=True)
        ]
        x = te.placeholder(self.data, "int8", "data")
        w = te.placeholder(
            (self.filters, self.data[1] // self.groups, *self.window), "int8", "weight"
        )
        bias, factor = channels(self.filters)
        made = integer_convolution(
            *(x, w, bias, factor),
            window=Window(
                self.window, (self.stride,) * len(padding), padding * 2, (1,) * len(padding), 7
            ),
            rounding=ROUNDING,
            output_shape=(self.data[0], self.filters, *space),
        )
        return te.create_prim_func([x, w, bias, factor, made])


def channels(count: int) -> tuple[te.Tensor, te.Tensor]:
    bias = te.placeholder((count,), "int32", "bias")
    return bias, te.placeholder((count,), "float32", "factor")


def dense(rows: int, inner: int, out: int) -> tirx.PrimFunc:
    x, w = (
        te.placeholder((n, inner), "int8", name) for n, name in ((rows, "data"), (out, "weight"))
    )
    bias, factor = channels(out)
    made = integer_dense(x, w, bias, factor, rounding=ROUNDING)
    return te.create_prim_func([x, w, bias, factor, made])


FUNCS = {
    "point": Image((1, 16, 5, 5), 8, (1, 1)).func(),
    "point, nothing even": Image((1, 7, 3, 5), 5, (1, 1)).func(),
    "windows": Image((1, 6, 5, 7), 8, (3, 3)).func(),
    "windows, first layer": Image((1, 3, 9, 9), 7, (3, 3), 2).func(),
    "windows over a batch": Image((2, 5, 4, 4), 4, (3, 3)).func(),
    "windows along a line": Image((1, 9, 21), 12, (5,)).func(),
    "groups": Image((1, 8, 5, 5), 12, (3, 3), groups=2).func(),
    "depthwise": Image((1, 6, 7, 5), 6, (3, 3), groups=6).func(),
    "depthwise, strided": Image((1, 4, 9, 12), 4, (3, 3), 2, 4).func(),
    "depthwise, large windows": Image((1, 3, 9, 10), 3, (7, 7), groups=3).func(),
    "dense": dense(4, 19, 6),
    "dense, more than a register": dense(3, 40, 9),
    "dense, one sample": dense(1, 21, 10),
}
TARGETS = [
    "cortex-m4",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("cortex-m33", "cortex-m55", "rv32imafc")
    ),
]


def kernels_for(name: str) -> list[DeviceKernel]:
    code = code_target(embedded_target(name), Backend.C)
    return [
        prepare_for_target(func, code, f"k{at}", Optimize.SPEED)
        for at, func in enumerate(FUNCS.values())
    ]


def header(kernels: Sequence[DeviceKernel]) -> str:
    texts = [c_kernel(kernel, f"k{at}") for at, kernel in enumerate(kernels)]
    names = ("data", "weight", "bias", "factor", "made", "workspace")
    sizes = [[prod(spec.shape) for spec in (*k.inputs, *k.outputs)] for k in kernels]
    most = [max(column) for column in zip(*sizes, strict=True)]
    lines = [
        "#include <string.h>",
        f"#define CHANNELS {most[2]}",
        f"static int8_t data[{most[0]}], weight[{most[1]}], made[{most[4]}];",
        "static int32_t bias[CHANNELS];",
        "static float factor[CHANNELS];",
        f"static _Alignas(64) uint8_t workspace[{max(1, *(k.workspace_bytes for k in kernels))}];",
        *helper_definitions({name for text in texts for name in text.helpers}),
    ]
    rows = []
    for text, (*_, results) in zip(texts, sizes, strict=True):
        given = ", ".join(names[at] for at in text.arguments)
        lines += [f"static {text.source}"]
        lines += [f"static void run_{text.name}(void) {{ {text.name}({given}); }}"]
        rows.append(f"  {{run_{text.name}, {results}}},")
    struct = "static const struct { void (*run)(void); unsigned results; } kernels[] = {"
    return "\n".join([*lines, struct, *rows, "};"]) + "\n"


def hashes(target: str, written_for: str, folder: Path) -> list[str]:
    """Of the results of each kernel that is written for one target, on another one."""
    machine = embedded_target(target)
    folder.mkdir()
    (folder / "dots.h").write_text(header(kernels_for(written_for)))
    flags = [*compile_flags(machine, Optimize.SPEED), f"-I{folder}"]
    flags += ["-DXE_SEMIHOSTING_FILES"] * target.startswith("cortex")
    compile_program(machine, [Path(__file__).parent / "dots.c"], flags, folder / "program")
    done: subprocess.CompletedProcess[str] = run_program(folder / "program", machine)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("target", TARGETS)
def test_cores_make_the_bits_that_plain_c_makes(target: str, tmp_path: Path) -> None:
    need_tools(target)
    there = hashes(target, target, tmp_path / "there")
    here = hashes("host", target, tmp_path / "here")
    plain = hashes("host", "host", tmp_path / "plain")
    assert dict(zip(FUNCS, there, strict=True)) == dict(zip(FUNCS, plain, strict=True))
    assert here == plain


@pytest.mark.parametrize("target", TARGETS)
def test_results_are_those_of_loops_as_written(target: str, tmp_path: Path) -> None:
    need_tools("host")
    kernels = kernels_for(target)
    texts = [c_kernel(kernel, f"k{at}") for at, kernel in enumerate(kernels)]
    library = compiled(texts, tmp_path)
    random = np.random.default_rng(0)
    for (name, func), kernel, text in zip(FUNCS.items(), kernels, texts, strict=True):
        data, weight, bias, factor = (spec.shape for spec in kernel.inputs)
        inputs = [
            *(random.integers(-128, 128, shape).astype("int8") for shape in (data, weight)),
            random.integers(-5000, 5000, bias).astype("int32"),
            random.uniform(0, 0.005, factor).astype("float32"),
        ]
        found = np.full(kernel.outputs[0].shape, 77, "int8")
        scratch = np.full(kernel.workspace_bytes, 0xA5, "uint8")
        arrays = [*inputs, found, scratch]
        pointers = [arrays[at].ctypes.data_as(ctypes.c_void_p) for at in text.arguments]
        getattr(library, text.name)(*pointers)
        (exact,) = run_unscheduled(func, BASELINE, *inputs)
        np.testing.assert_array_equal(found, exact, err_msg=f"{name}\n{text.source}")


def test_products_use_what_the_core_has_and_keep_a_few_columns() -> None:
    wide = Image((1, 64, 25, 5), 32, (3, 3)).func()
    helpers = {"cortex-m4": "xe_dot4", "cortex-m55": "xe_dots4", "rv32imafc": None}
    for target, helper in helpers.items():
        code: Target = code_target(embedded_target(target), Backend.C)
        kernel = prepare_for_target(wide, code, "wide", Optimize.SPEED)
        used = {name for name in c_kernel(kernel, "wide").helpers if "dot" in name}
        assert used == ({helper} if helper else set())
        assert kernel.workspace_bytes <= 2 * 64 * 9
