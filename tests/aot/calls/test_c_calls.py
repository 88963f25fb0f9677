"""Any sequence of calls with any arguments returns a code, and reads and writes nothing else."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.aot.examples import export, need_tools, tiny_mlp
from tests.aot.test_package import SANITIZED
from tests.shares import first
from tvm_xengine.aot.check.emulation import Build, build_program, run_program
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.export import ExportReport

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
    if shutil.which(compiler) is None:
        pytest.skip(f"needs the Debian package {compiler}")
    assert run_calls(report, tmp_path, compiler, 100, 50 * CALLS) == ""


@pytest.fixture(scope="module")
def all_entries(tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    need_tools("host")
    folder = tmp_path_factory.mktemp("all") / "tiny"
    entries = [entry.value for entry in Entry]
    return export(tiny_mlp(), folder, optimizer="momentum", entries=entries)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "calls"), [(0, CALLS), (1, CALLS), (100, 50 * CALLS)])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_sequence_of_calls_of_any_entry_point_touches_other_memory(
    compiler: str, seed: int, calls: int, all_entries: ExportReport, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs the Debian package {compiler}")
    assert run_calls(all_entries, tmp_path, compiler, seed, calls, "-DENTRIES") == ""


@pytest.fixture(scope="module")
def two_regions(tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    """State and what does not fit lie in a larger memory beside a small one."""
    need_tools("host")
    folder = tmp_path_factory.mktemp("two") / "tiny"
    regions = "sram=1KiB,psram=64KiB"
    report = export(tiny_mlp(), folder, optimizer="momentum", regions=regions, time_limit_s=2)
    assert len(report.package.regions) == 2
    return report


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "calls"), [(0, CALLS), (1, CALLS), (100, 50 * CALLS)])
def test_no_sequence_of_calls_touches_other_memory_of_two_regions(
    seed: int, calls: int, two_regions: ExportReport, tmp_path: Path
) -> None:
    assert run_calls(two_regions, tmp_path, "gcc", seed, calls, "-DTWO") == ""


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs the Debian package valgrind")
def test_no_call_depends_on_a_value_that_was_never_set(
    report: ExportReport, tmp_path: Path
) -> None:
    """The sanitizers see wrong addresses, valgrind also what is read before it is written."""
    program = build_calls(report, tmp_path, "gcc", 5, 2000, "-std=c11", "-g", "-O1")
    command = ["valgrind", "--quiet", "--error-exitcode=9", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
