"""Build a package for its target and run it, here or under qemu."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tvm_xengine.aot.package.code_size import compile_flags
from tvm_xengine.aot.package.compiler_messages import reason
from tvm_xengine.aot.package.contents import Package, library_sources
from tvm_xengine.aot.targets import EmbeddedTarget
from tvm_xengine.errors import CompilationError, InvalidPlatformError

BARE_METAL = Path(__file__).parent / "bare_metal"


@dataclass(frozen=True)
class Emulator:
    """The emulator of a target.

    Attributes
    ----------
    command
        Command line that runs a program; empty for this machine itself.
    package
        The Debian package that contains it.
    linker_script
        Memory of a board without operating system.
    """

    command: tuple[str, ...] = ()
    package: str = ""
    linker_script: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether it can be run."""
        return not self.command or shutil.which(self.command[0]) is not None


def _board(machine: str, linker_script: str) -> Emulator:
    semihosting = ("-semihosting-config", "enable=on,target=native")
    command = ("qemu-system-arm", "-M", machine, "-nographic", "-monitor", "none", *semihosting)
    return Emulator((*command, "-kernel"), "qemu-system-arm", linker_script)


EMULATORS: Mapping[str, Emulator] = {
    "host": Emulator(),
    "aarch64": Emulator(("qemu-aarch64-static",), "qemu-user-static"),
    "armhf": Emulator(("qemu-arm-static",), "qemu-user-static"),
    "riscv64": Emulator(("qemu-riscv64-static",), "qemu-user-static"),
    "cortex-m0": _board("microbit", "microbit.ld"),
    "cortex-m3": _board("mps2-an385", "mps2.ld"),
    "cortex-m4": _board("mps2-an386", "mps2.ld"),
    "cortex-m7": _board("mps2-an500", "mps2.ld"),
}
"""The emulator of each target."""


def missing_tool(target: EmbeddedTarget) -> str | None:
    """The Debian packages that are missing for building and running; None when all are installed."""
    missing = [] if target.has_compiler else [target.package]
    emulator = EMULATORS[target.name]
    missing += [] if emulator.is_installed else [emulator.package]
    return " ".join(missing) or None


@dataclass(frozen=True)
class Build:
    """What to build besides the package itself.

    Attributes
    ----------
    main
        File with ``main``.
    flags
        Further options, e.g. definitions.
    compiler
        Another compiler than the target's.
    """

    main: Path
    flags: Sequence[str] = ()
    compiler: str = ""


def selftest_build(directory: Path, package: Package, *flags: str, compiler: str = "") -> Build:
    """The self-test of the package in `directory`."""
    main = directory / package.layout.test(f"{package.name}_selftest.c")
    return Build(main, flags, compiler)


def build_program(directory: Path, package: Package, build: Build, program: Path) -> None:
    """Compile and link the package in `directory` with a main file.

    Raises
    ------
    InvalidPlatformError
        If the compiler is not installed.
    CompilationError
        If it refuses a file.
    """
    sources = [build.main, *(directory / source for source in library_sources(package))]
    headers = directory / package.layout.source_folder
    flags = [*compile_flags(package.target, package.optimize), f"-I{headers}", *build.flags]
    compile_program(package.target, sources, flags, program, build.compiler)


def compile_program(
    target: EmbeddedTarget,
    sources: Sequence[Path],
    flags: Sequence[str],
    program: Path,
    compiler: str = "",
) -> None:
    """Compile and link `sources` to a program that `run_program` can run.

    Raises
    ------
    InvalidPlatformError
        If the compiler is not installed.
    CompilationError
        If it refuses a file.
    """
    compiler = compiler or target.find_compiler()
    files = [str(source) for source in sources]
    options = list(flags)
    libraries = ["-lm"]
    script = EMULATORS[target.name].linker_script
    if script:
        files.append(str(BARE_METAL / "startup.c"))
        options += ["-ffunction-sections", "-fdata-sections"]
        libraries += ["-nostartfiles", f"-L{BARE_METAL}", f"-T{BARE_METAL / script}"]
        libraries += ["-Wl,--gc-sections", "--specs=rdimon.specs"]
    elif target.name != "host":
        options.append("-static")
    command = [compiler, *options, *files, "-o", str(program), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilationError(f"{compiler} refuses the program: {reason(done.stderr)}")


def run_program(
    program: Path, target: EmbeddedTarget, *options: str, timeout_s: float = 600.0
) -> subprocess.CompletedProcess[str]:
    """Run a program of `target`; `options` are for the emulator.

    Raises
    ------
    InvalidPlatformError
        If the emulator is not installed.
    """
    emulator = EMULATORS[target.name]
    if not emulator.is_installed:
        raise InvalidPlatformError(
            f"running programs for {target.name} needs {emulator.command[0]}; on Debian:"
            f" apt-get install {emulator.package}"
        )
    command = [*emulator.command[:1], *options, *emulator.command[1:], str(program)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    )


def printed_losses(done: subprocess.CompletedProcess[str]) -> list[float]:
    """The losses that a self-test compiled with ``-D<NAME>_SELFTEST_PRINT`` has printed."""
    bits = np.array([int(line, 16) for line in done.stdout.split()], np.uint32)
    return [float(value) for value in bits.view(np.float32)]
