"""Compilers have nothing to say about a package, asked for what MISRA C and its like forbid."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tvm_xengine as xe
from benchmarks.embedded.parity.networks import CASES, Attention
from tests.aot.examples import need_compiler, need_tools
from tvm_xengine.aot.check.emulation import compile_flags, library_sources
from tvm_xengine.aot.export import ExportReport

BOTH = (
    *("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wfloat-conversion"),
    *("-Wfloat-equal", "-Wdouble-promotion", "-Wshadow", "-Wcast-align", "-Wcast-qual", "-Wundef"),
    *("-Wswitch-default", "-Wswitch-enum", "-Wstrict-prototypes", "-Wmissing-prototypes"),
    *("-Wmissing-declarations", "-Wredundant-decls", "-Wold-style-definition", "-Wnested-externs"),
    *("-Wwrite-strings", "-Wpointer-arith", "-Wbad-function-cast", "-Wunused-macros", "-Wvla"),
    *("-Wformat=2", "-Winit-self", "-Wnull-dereference", "-Waggregate-return"),
)
GCC = (
    *("-Wlogical-op", "-Wduplicated-cond", "-Wduplicated-branches", "-Wstrict-overflow=2"),
    *("-Wjump-misses-init", "-Warith-conversion", "-Wcast-align=strict"),
)
CLANG = ("-Weverything", "-Wno-padded", "-Wno-declaration-after-statement", "-Wno-c++98-compat")
"""All but: padding is meant, C11 allows declarations anywhere, and no file is C++98."""


def warnings_of(report: ExportReport, compiler: str) -> str:
    """What `compiler` says about the sources and the self-test of a package."""
    need_compiler(compiler)
    package, directory = report.package, report.directory
    sources = [str(directory / name) for name in library_sources(package)]
    sources.append(str(directory / f"{package.name}_selftest.c"))
    flags = [*compile_flags(package.target, package.optimize), *BOTH]
    flags += CLANG if compiler == "clang" else GCC
    said: list[str] = []
    for source in sources:
        command = [compiler, *flags, f"-I{directory}", "-c", source, "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        said.append(done.stderr)
    return "".join(said)


class Tokens(nn.Module):
    """Many operators: a table, a convolution, a pool, a maximum that has to be found again."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.attention = Attention(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.avg_pool1d(F.gelu(self.conv(self.table(x).transpose(1, 2))), 2).transpose(1, 2)
        return self.fc(F.elu(self.attention(x)).amax(1))


def _lenet(optimizer: str) -> xe.Training:
    case = CASES["lenet"]
    example = torch.zeros(case.shape)
    return xe.training_step(case.module(), example, loss=case.loss, optimizer=optimizer)


def _tokens() -> xe.Training:
    torch.manual_seed(0)
    example = torch.zeros((4, 12), dtype=torch.int64)
    return xe.training_step(Tokens(), example, loss="cross_entropy", optimizer="adam")


def _int8() -> xe.Training:
    case = CASES["resnet"]
    samples = np.random.default_rng(0).normal(size=(16, 3, 12, 12)).astype("float32")
    return xe.training_step(
        case.module(),
        torch.zeros(case.shape),
        train=["4.*"],
        loss=case.loss,
        optimizer="sgd",
        frozen=xe.Int8(samples),
    )


ALL = ("train_step", "accumulate", "apply", "eval", "infer")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "target", "options"),
    [
        (_tokens, "host", {"entries": ALL}),
        (_tokens, "cortex-m55", {}),
        (_int8, "rv32imc", {}),
        (_int8, "cortex-m55", {}),
        (
            lambda: _lenet("momentum"),
            "cortex-m4",
            {"regions": {"sram": "24KiB", "psram": "1MiB"}, "objective": "makespan"},
        ),
    ],
    ids=["tokens", "helium", "int8", "int8-helium", "dma"],
)
def test_no_compiler_warns_of_a_package(
    make: Callable[[], xe.Training], target: str, options: Mapping[str, Any], tmp_path: Path
) -> None:
    need_tools(target)
    report = xe.export_for_target(
        make(),
        tmp_path / "out",
        target=target,
        time_limit_s=2.0,
        **{"regions": {"sram": "1MiB"}, **options},
    )
    assert warnings_of(report, report.package.target.find_compiler()) == ""
    if target == "host":
        assert warnings_of(report, "clang") == ""
