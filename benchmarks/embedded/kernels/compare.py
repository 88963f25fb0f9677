"""Instructions of generated kernels beside kernels written by hand, on emulated processors.

    python -m benchmarks.embedded.kernels.compare [CMSIS_DSP]

CMSIS_DSP is a folder with the sources of CMSIS-DSP, whose matrix functions make up the dense layer on
Cortex-M, too; pip downloads them where none is given. Each kernel runs once on each target, and the results
are compared. The rows replace those in `benchmarks/results/kernel_instructions.jsonl`, and the table is
written anew. Nothing is written where a compiler, an emulator or the sources are missing.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import nn

import tvm_xengine as xe
from benchmarks import record, tables
from tvm_xengine.aot.check.emulation import compile_program, missing_tool, run_program
from tvm_xengine.aot.emit_c.kernel import CKernel, c_kernel
from tvm_xengine.aot.emit_c.math_functions import helper_definitions
from tvm_xengine.aot.options import ExportOptions, machine_of
from tvm_xengine.aot.package.code_size import compile_flags
from tvm_xengine.aot.plan.kernels import Optimize, lower_for_target
from tvm_xengine.aot.plan.regions import Region
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.relax_ir.signature import TRAIN_STEP

HERE = Path(__file__).parent
TABLE = "kernel_instructions"
CMSIS_DSP = "1.10.3"
TARGETS = ("cortex-m4", "cortex-m7", "cortex-m55", "rv32imafc")
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """One kernel of a layer.

    Attributes
    ----------
    word
        Stands in its name.
    by_hand
        The function in C that does the same.
    taken
        Shapes of what that takes, in order.
    made
        Shape of the result.
    """

    word: str
    by_hand: str
    taken: Sequence[Shape]
    made: Shape


@dataclass(frozen=True)
class Layer:
    """The second layer of a network, all of whose kernels are generated.

    Attributes
    ----------
    macros
        Its shapes, for the kernels by hand.
    """

    make: Callable[[], nn.Module]
    example: Shape
    macros: Mapping[str, int]
    parts: Sequence[Part]


def _parts(words: Sequence[str], x: Shape, w: Shape, bias: Shape, y: Shape) -> Sequence[Part]:
    forward, weight, data = words
    return (
        Part(forward, "hand_forward", (x, w, bias), y),
        Part(weight, "hand_weight_gradient", (x, y), w),
        Part(data, "hand_data_gradient", (y, w), x),
    )


LAYERS: Mapping[str, Layer] = {
    "dense 64 to 32, batch 8": Layer(
        lambda: nn.Sequential(nn.Linear(48, 64), nn.Linear(64, 32)),
        (8, 48),
        {"DENSE": 1, "M": 8, "K": 64, "N": 32},
        _parts(
            ("linear", "linear_weight_gradient", "linear_data_gradient"),
            *((8, 64), (32, 64), (32,), (8, 32)),
        ),
    ),
    "convolution 3 x 3, 8 to 16, 12 x 12": Layer(
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1), nn.Flatten()
        ),
        (1, 4, 12, 12),
        {"CONV": 1, "C": 8, "O": 16, "H": 12},
        _parts(
            ("conv2d", "conv_weight_gradient", "conv_data_gradient"),
            *((1, 8, 12, 12), (16, 8, 3, 3), (1, 16, 1, 1), (1, 16, 12, 12)),
        ),
    ),
}


def kernels_of(layer: Layer, target: str = "host") -> Mapping[str, DeviceKernel]:
    """The kernel of each part, by the function that does the same."""
    example = torch.zeros(layer.example)
    training = xe.training_step(layer.make(), example, loss="cross_entropy", optimizer="sgd")
    machine = machine_of(ExportOptions(target, (Region("sram", 1 << 20),)))
    given = (training.step.mod, machine.platform, machine.code, Optimize.SPEED, TRAIN_STEP)
    step = lower_for_target(*given, fuses_updates=False)
    found = {}
    for part in layer.parts:
        found[part.by_hand] = next(
            kernel
            for kernel in step.kernels.values()
            if part.word in kernel.name
            and kernel.outputs[0].shape == part.made
            and {*part.taken} <= {spec.shape for spec in kernel.inputs}
        )
    return found


def header(kernel: DeviceKernel, text: CKernel, part: Part) -> str:
    """What `main.c` includes: the kernel, its arrays, and both calls."""
    arrays = [(f"in_{k}", spec.shape) for k, spec in enumerate(kernel.inputs)]
    names = [*(name for name, _ in arrays), "found", "workspace"]
    given = ", ".join(names[position] for position in text.arguments)
    taken = [next(name for name, shape in arrays if shape == wanted) for wanted in part.taken]
    lines = [
        "#include <string.h>",
        *helper_definitions(set(text.helpers)),
        text.source,
        *(f"static float {name}[{prod(shape)}];" for name, shape in arrays),
        f"static float found[{prod(part.made)}], expected[{prod(part.made)}];",
        f"static _Alignas(16) uint8_t workspace[{max(kernel.workspace_bytes, 1)}];",
        "static const struct { float *values; unsigned count; } inputs[] = {",
        *(f"  {{{name}, {prod(shape)}}}," for name, shape in arrays),
        "};",
        f"void {part.by_hand}({', '.join(['const float *'] * len(taken))}, float *);",
        f"#define GENERATED (void)workspace, {text.name}({given})",
        f"#define BY_HAND {part.by_hand}({', '.join(taken)}, expected)",
        f"#define RESULTS {prod(part.made)}u",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Other:
    """Where the other kernels are.

    Attributes
    ----------
    sources, flags
        What is compiled for them, and how.
    """

    sources: Sequence[Path]
    flags: Sequence[str] = ()


BY_HAND = Other([HERE / "by_hand.c"])


def downloaded(folder: Path) -> Path:
    """The sources of CMSIS-DSP in `folder`, from its package for Python."""
    package = f"cmsisdsp=={CMSIS_DSP}"
    command = ["pip", "download", "--quiet", "--no-deps", "--no-binary", "cmsisdsp", package]
    if subprocess.run([sys.executable, "-m", *command, "--dest", folder], check=False).returncode:
        sys.exit(f"pip cannot download {package}; give a folder with the sources of CMSIS-DSP")
    with tarfile.open(folder / f"cmsisdsp-{CMSIS_DSP}.tar.gz") as sources:
        sources.extractall(folder, filter="data")
    return folder / f"cmsisdsp-{CMSIS_DSP}"


def cmsis_dsp(folder: Path) -> Other:
    """The matrix functions of CMSIS-DSP, loops unrolled as its makers advise for cores without vectors."""
    matrix = [f"MatrixFunctions/arm_mat_{name}_f32.c" for name in ("init", "mult", "trans")]
    files = [folder / "Source" / name for name in (*matrix, "BasicMathFunctions/arm_add_f32.c")]
    includes = [f"-I{folder / name}" for name in ("Include", "PrivateInclude")]
    # Without the headers of CMSIS-Core, as its own package for Python is built.
    return Other(
        [HERE / "cmsis_dsp.c", *files], [*includes, "-D__GNUC_PYTHON__", "-DARM_MATH_LOOPUNROLL"]
    )


def counted(
    kernel: DeviceKernel,
    part: Part,
    macros: Mapping[str, int],
    target: str,
    folder: Path,
    other: Other = BY_HAND,
) -> tuple[int, int]:
    """Instructions of the generated kernel, and of the other one."""
    machine = embedded_target(target)
    (folder / "kernel.h").write_text(header(kernel, c_kernel(kernel, "generated"), part))
    flags = [*compile_flags(machine, Optimize.SPEED), f"-I{folder}", "-DXE_COUNT_INSTRUCTIONS"]
    flags += ["-DXE_SEMIHOSTING_FILES", *other.flags]
    flags += [f"-DXE_{name}={value}" for name, value in macros.items()]
    sources = [HERE / "main.c", *other.sources]
    compile_program(machine, sources, flags, folder / "program")
    done: subprocess.CompletedProcess[str] = run_program(
        folder / "program", machine, "-icount", "shift=0"
    )
    if done.returncode:
        raise RuntimeError(f"the program for {target} ended with {done.returncode}: {done.stderr}")
    generated, by_hand, millionths = (int(word) for word in done.stdout.split())
    if millionths > 10:
        raise RuntimeError(f"{kernel.name} differs from {part.by_hand} by {millionths}e-6")
    return generated, by_hand


def rows(dsp: Other) -> Sequence[Mapping[str, record.Cell]]:
    """One row for each kernel: instructions on each target."""
    made = []
    for name, layer in LAYERS.items():
        kernels = {target: kernels_of(layer, target) for target in TARGETS}
        for part in layer.parts:
            row: dict[str, record.Cell] = {"layer": name, "kernel": part.by_hand.partition("_")[2]}
            for target in TARGETS:
                with tempfile.TemporaryDirectory() as folder:
                    given = (
                        kernels[target][part.by_hand],
                        part,
                        layer.macros,
                        target,
                        Path(folder),
                    )
                    row[target], row[f"{target} by hand"] = counted(*given)
                    if target.startswith("cortex"):
                        is_dense = "DENSE" in layer.macros
                        row[f"{target} CMSIS-DSP"] = counted(*given, dsp)[1] if is_dense else None
            made.append(row)
    return made


def require_tools(targets: Sequence[str]) -> None:
    """Check that there are compilers and emulators for all targets, without which a table lacked columns."""
    for name in targets:
        if packages := missing_tool(embedded_target(name)):
            sys.exit(f"{name} needs the Debian packages {packages}; install them")


def main(sources: Sequence[str]) -> None:
    """Count, and write the table."""
    require_tools(TARGETS)
    with tempfile.TemporaryDirectory() as folder:
        found = Path(sources[0]) if sources else downloaded(Path(folder))
        if not (found / "Include" / "arm_math.h").is_file():
            sys.exit(f"expected the sources of CMSIS-DSP, found no Include/arm_math.h in {found}")
        tables.rewrite(TABLE, rows(cmsis_dsp(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
