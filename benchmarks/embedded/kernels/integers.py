"""Instructions of generated convolutions of int8 beside those of CMSIS-NN, on emulated processors.

    python -m benchmarks.embedded.kernels.integers CMSIS_NN [NUMBER SEED]

CMSIS_NN is a folder with the sources of CMSIS-NN, a clone of github.com/ARM-software/CMSIS-NN. Each layer
runs once on each target, and the results are compared. The rows replace those in
`benchmarks/results/integer_kernels.jsonl`, and the table is written anew. With NUMBER and SEED so many
layers are drawn instead, and printed.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

from tvm import te

from benchmarks import record, tables
from benchmarks.embedded.kernels.compare import require_tools
from tvm_xengine.aot.check.emulation import compile_program, run_program
from tvm_xengine.aot.emit_c.kernel import c_kernel
from tvm_xengine.aot.emit_c.math_functions import helper_definitions
from tvm_xengine.aot.package.code_size import compile_flags
from tvm_xengine.aot.plan.kernels import Backend, Optimize, code_target, prepare_for_target
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.te.integers.products import integer_convolution
from tvm_xengine.kernels.te.integers.rounding import Rounding
from tvm_xengine.kernels.te.integers.windows import Window

HERE = Path(__file__).parent
TABLE = "integer_kernels"
TARGETS = ("cortex-m4", "cortex-m33", "cortex-m55")


@dataclass(frozen=True)
class Layer:
    """A convolution of one image with square windows; a depthwise one if it has no `filters`."""

    channels: int
    height: int
    width: int
    kernel: int
    filters: int = 0
    stride: int = 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the result."""
        height, width = (
            (extent + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1
            for extent in (self.height, self.width)
        )
        return self.filters or self.channels, height, width

    @property
    def weights(self) -> tuple[int, ...]:
        """Shape of the weights."""
        inner = self.channels if self.filters else 1
        return self.shape[0], inner, self.kernel, self.kernel

    def __str__(self) -> str:
        kind = f"to {self.filters}" if self.filters else "depthwise"
        stride = f", stride {self.stride}" if self.stride > 1 else ""
        window = f"{self.kernel} x {self.kernel}"
        return f"{window}, {self.channels} {kind}, {self.height} x {self.width}{stride}"

    def kernel_for(self, target: str) -> DeviceKernel:
        """The kernel that an export for a target takes."""
        data = te.placeholder((1, self.channels, self.height, self.width), "int8", "data")
        weight = te.placeholder(self.weights, "int8", "weight")
        bias = te.placeholder((self.shape[0],), "int32", "bias")
        factor = te.placeholder((self.shape[0],), "float32", "factor")
        made = integer_convolution(
            *(data, weight, bias, factor),
            window=Window(
                *((self.kernel,) * 2, (self.stride,) * 2, (self.kernel // 2,) * 4, (1, 1)),
                outside=-3,
            ),
            rounding=Rounding(zero=-5),
            output_shape=(1, *self.shape),
        )
        func = te.create_prim_func([data, weight, bias, factor, made])
        code = code_target(embedded_target(target), Backend.C)
        return prepare_for_target(func, code, str(self), Optimize.SPEED)


LAYERS = (
    Layer(64, 25, 5, 1, 64),
    Layer(64, 25, 5, 3),
    Layer(64, 25, 5, 3, 32),
    Layer(3, 48, 48, 3, 8, 2),
    Layer(16, 24, 24, 3, stride=2),
    Layer(96, 6, 6, 1, 16),
)
"""DS-CNN's for keyword spotting, one of 3 x 3 with more to multiply, and three of a small MobileNet."""


def drawn(number: int, seed: int) -> Sequence[Layer]:
    """Layers of random shapes."""
    choose = random.Random(seed)

    def one() -> Layer:
        return Layer(
            choose.choice((1, 3, 4, 7, 8, 12, 16, 24, 40, 64)),
            choose.randint(4, 20),
            choose.randint(4, 20),
            choose.choice((1, 1, 3, 3, 5)),
            choose.choice((0, 0, 3, 4, 8, 10, 16, 24, 40)),
            choose.choice((1, 1, 2)),
        )

    return [one() for _ in range(number)]


def header(layers: Sequence[Layer], target: str) -> str:
    """What `integers.c` includes: the kernels, their arrays, and the layers."""
    kernels = [layer.kernel_for(target) for layer in layers]
    texts = [c_kernel(kernel, f"kernel_{k}") for k, kernel in enumerate(kernels)]
    names = ("data", "weight", "bias", "factor", "result", "workspace")
    helpers = {name for text in texts for name in text.helpers}
    given = (", ".join(names[at] for at in text.arguments) for text in texts)
    calls = [
        f"static void call_{k}(void) {{ {text.name}({arguments}); }}"
        for k, (text, arguments) in enumerate(zip(texts, given, strict=True))
    ]
    rows = []
    for k, layer in enumerate(layers):
        filters, *out = layer.shape
        numbers = (layer.channels, filters, int(not layer.filters), layer.height, layer.width)
        more = (layer.kernel, layer.stride, layer.kernel // 2, *out)
        rows.append(f"  {{call_{k}, {', '.join(map(str, (*numbers, *more)))}}},")
    sizes = {
        "DATA": max(layer.channels * layer.height * layer.width for layer in layers),
        "WEIGHT": max(prod(layer.weights) for layer in layers),
        "RESULT": max(prod(layer.shape) for layer in layers),
        "CHANNELS": max(layer.shape[0] for layer in layers),
        "WORKSPACE": max(1, *(kernel.workspace_bytes for kernel in kernels)),
    }
    lines = [
        "#include <string.h>",
        *(f"#define {name} {size}" for name, size in sizes.items()),
        "static int8_t data[DATA], weight[WEIGHT], result[RESULT];",
        "static int32_t bias[CHANNELS];",
        "static float factor[CHANNELS];",
        "static _Alignas(64) uint8_t workspace[WORKSPACE];",
        *helper_definitions(helpers),
        *(f"__attribute__((noinline)) {text.source}" for text in texts),
        *calls,
        *("static const layer layers[] = {", *rows, "};"),
    ]
    return "\n".join(lines) + "\n"


def counted(
    layers: Sequence[Layer], target: str, cmsis_nn: Path, folder: Path
) -> Sequence[tuple[int, int]]:
    """For each layer the instructions of the generated kernel, and of CMSIS-NN's."""
    machine = embedded_target(target)
    (folder / "integers.h").write_text(header(layers, target))
    flags = [*compile_flags(machine, Optimize.SPEED), f"-I{folder}", f"-I{cmsis_nn / 'Include'}"]
    flags += ["-DXE_COUNT_INSTRUCTIONS", "-DXE_SEMIHOSTING_FILES", "-w"]
    kinds = ("Convolution", "NNSupport", "Transpose")
    found = (cmsis_nn / "Source" / f"{kind}Functions" for kind in kinds)
    theirs = [path for part in found for path in sorted(part.glob("*.c"))]
    theirs = [path for path in theirs if not path.stem.endswith(("f16", "f32"))]
    compile_program(machine, [HERE / "integers.c", *theirs], flags, folder / "program")
    done = run_program(folder / "program", machine, "-icount", "shift=0")
    if done.returncode:
        raise RuntimeError(f"the program for {target} ended with {done.returncode}: {done.stderr}")
    numbers = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    for layer, (_, _, difference) in zip(layers, numbers, strict=True):
        if difference > 1:
            raise RuntimeError(f"{layer} differs from CMSIS-NN's by {difference} on {target}")
    return [(ours, their) for ours, their, _ in numbers]


def rows(layers: Sequence[Layer], cmsis_nn: Path) -> Sequence[Mapping[str, record.Cell]]:
    """One row for each layer: instructions on each target."""
    made: list[dict[str, record.Cell]] = [{"layer": str(layer)} for layer in layers]
    for target in TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            found = counted(layers, target, cmsis_nn, Path(folder))
        for row, (ours, theirs) in zip(made, found, strict=True):
            row[target], row[f"{target} CMSIS-NN"] = ours, theirs
    return made


def main(cmsis_nn: str, number: str = "", seed: str = "0") -> None:
    """Count, and write the table; or print the rows of random layers."""
    require_tools(TARGETS)
    measure = partial(rows, cmsis_nn=Path(cmsis_nn))
    if number:
        for row in measure(drawn(int(number), int(seed))):
            print(row)
        return
    tables.rewrite(TABLE, measure(LAYERS))


if __name__ == "__main__":
    main(*sys.argv[1:])
