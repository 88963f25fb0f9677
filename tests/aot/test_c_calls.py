"""Any sequence of calls with any arguments returns a code, and reads and writes nothing else."""

import shutil
from pathlib import Path

import pytest

from tests.aot.examples import export, need_tools, tiny_mlp
from tests.aot.test_package import SANITIZED
from tvm_xengine.aot.check.emulation import Build, build_program, run_program
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
    package = report.package
    given = {
        "PACKAGE": package.name,
        "MACRO": package.macro,
        "HEADER": f'"{package.name}.h"',
        "SEED": seed,
        "CALLS": calls,
    }
    flags = [*SANITIZED, *(f"-D{name}={value}" for name, value in given.items()), *more_flags]
    build = Build(Path(__file__).with_name("fuzz_calls.c"), flags, compiler)
    build_program(report.directory, package, build, folder / "fuzz")
    done = run_program(folder / "fuzz", package.target)
    return done.stderr or f"exit {done.returncode}" * bool(done.returncode)


@pytest.mark.parametrize("seed", range(3))
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
