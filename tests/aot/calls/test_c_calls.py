"""Any sequence of calls with any arguments returns a code, and reads and writes nothing else."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.aot.examples import export, need_compiler, need_tools, tiny_mlp
from tests.aot.test_package import SANITIZED
from tests.shares import first
from tvm_xengine.aot.check.emulation import Build, build_program, run_program
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.processes.tools import run_tool

CALLS = 20_000
"""Of each seed; about a third of them are good."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    need_tools("host")
    return export(tiny_mlp(), tmp_path_factory.mktemp("calls") / "tiny", optimizer="momentum")


def run_calls(
    report: ExportReport, folder: Path, compiler: str, seed: int, calls: int, *more_flags: str
) -> str:
    """What the program says about `calls` random calls; nothing where all were as they must be."""
    program = build_calls(report, folder, compiler, seed, calls, *SANITIZED, *more_flags)
    done = run_program(program, report.package.target)
    return done.stderr or f"exit {done.returncode}" * bool(done.returncode)


def build_calls(
    report: ExportReport, folder: Path, compiler: str, seed: int, calls: int, *flags: str
) -> Path:
    package = report.package
    given = {
        "PACKAGE": package.name,
        "MACRO": package.macro,
        "HEADER": f'"{package.name}.h"',
        "SEED": seed,
        "CALLS": calls,
    }
    defined = (f"-D{name}={value}" for name, value in given.items())
    build = Build(Path(__file__).with_name("fuzz_calls.c"), [*flags, *defined], compiler)
    build_program(report.directory, package, build, folder / "fuzz")
    return folder / "fuzz"


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_no_sequence_of_calls_touches_other_memory(
    seed: int, report: ExportReport, tmp_path: Path
) -> None:
    assert run_calls(report, tmp_path, "gcc", seed, CALLS) == ""


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_sequence_of_a_million_calls_touches_other_memory(
    compiler: str, report: ExportReport, tmp_path: Path
) -> None:
    need_compiler(compiler)
    assert run_calls(report, tmp_path, compiler, 100, 50 * CALLS) == ""


ENTRIES = [entry.value for entry in Entry]


def every_entry(folder: Path) -> ExportReport:
    return export(tiny_mlp(), folder, optimizer="momentum", entries=ENTRIES)


def two_regions(folder: Path) -> ExportReport:
    """State and what does not fit lie in a larger memory beside a small one."""
    regions = "sram=1KiB,psram=64KiB"
    report = export(tiny_mlp(), folder, optimizer="momentum", regions=regions, time_limit_s=2)
    assert len(report.package.regions) == 2
    return report


def copied_by_dma(folder: Path) -> ExportReport:
    report = xe.export_for_target(
        training_step(),
        folder,
        regions={"sram": "2KiB", "psram": "64KiB"},
        entries=ENTRIES,
        time_limit_s=2,
        objective="makespan",
    )
    assert report.package.channels
    return report


def int8_backbone(folder: Path) -> ExportReport:
    samples = np.random.default_rng(0).normal(size=(64, 16)).astype("float32")
    training = training_step(train=["2.*"], frozen=xe.Int8(samples))
    report = xe.export_for_target(training, folder, regions={"sram": "64KiB"}, entries=ENTRIES)
    assert {str(value.dtype) for value in report.package.constants.values()} > {"int8"}
    return report


def int8_behind_a_trained_layer(folder: Path) -> ExportReport:
    samples = np.random.default_rng(0).normal(size=(64, 16)).astype("float32")
    training = training_step(train=["0.*"], frozen=xe.Int8(samples, behind=True))
    report = xe.export_for_target(training, folder, regions={"sram": "64KiB"}, entries=ENTRIES)
    assert {str(value.dtype) for value in report.package.constants.values()} > {"int8"}
    return report


def chosen_layers(folder: Path) -> ExportReport:
    """The first layer has a greater score, and there is no room for both."""
    report = xe.export_for_target(
        training_step(),
        folder,
        regions={"sram": "3KiB"},
        entries=ENTRIES,
        train_budget=xe.TrainBudget({"0": 2.0, "2": 1.0}),
    )
    assert report.choice is not None
    assert sorted(report.choice.is_trained.values()) == [False, True]
    return report


def training_step(**options: Any) -> xe.Training:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4))
    optimizer = xe.SGD(0.01, momentum=0.9)
    example = torch.zeros(2, 16)
    return xe.training_step(module, example, loss="cross_entropy", optimizer=optimizer, **options)


KINDS: dict[str, tuple[Callable[[Path], ExportReport], list[str]]] = {
    "entries": (every_entry, ["-DENTRIES"]),
    "regions": (two_regions, ["-DTWO"]),
    "dma": (copied_by_dma, ["-DENTRIES", "-DTWO", "-DDMA"]),
    "int8": (int8_backbone, ["-DENTRIES"]),
    "int8-behind": (int8_behind_a_trained_layer, ["-DENTRIES"]),
    "train-budget": (chosen_layers, ["-DENTRIES"]),
}
"""How packages are made, and what the program has to know of them."""


@pytest.fixture(scope="module", params=KINDS)
def kind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ExportReport, list[str]]:
    need_tools("host")
    make, flags = KINDS[request.param]
    return make(tmp_path_factory.mktemp("kind") / "package"), flags


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "calls"), [(0, CALLS), (1, CALLS), (100, 50 * CALLS)])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_sequence_of_calls_of_any_package_touches_other_memory(
    compiler: str, seed: int, calls: int, kind: tuple[ExportReport, list[str]], tmp_path: Path
) -> None:
    need_compiler(compiler)
    package, flags = kind
    assert run_calls(package, tmp_path, compiler, seed, calls, *flags) == ""


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs the Debian package valgrind")
def test_no_call_depends_on_a_value_that_was_never_set(
    report: ExportReport, tmp_path: Path
) -> None:
    """The sanitizers see wrong addresses, valgrind also what is read before it is written."""
    program = build_calls(report, tmp_path, "gcc", 5, 2000, "-std=c11", "-g", "-O1")
    command = ["valgrind", "--quiet", "--error-exitcode=9", str(program)]
    done = run_tool(command, processor_s=300)
    assert (done.returncode, done.stderr) == (0, "")
