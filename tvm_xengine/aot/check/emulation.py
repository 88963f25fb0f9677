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
from tvm_xengine.processes.tools import run_tool

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
    sources, flags
        What a program for it is linked with, and how.
    """

    command: tuple[str, ...] = ()
    package: str = ""
    sources: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def is_installed(self) -> bool:
        """Whether it can be run."""
        return not self.command or shutil.which(self.command[0]) is not None


_QUIET = ("-nographic", "-monitor", "none")
_SEMIHOSTING = ("-semihosting-config", "enable=on,target=native")


def _process(architecture: str) -> Emulator:
    """Linux processes of another architecture."""
    return Emulator((f"qemu-{architecture}-static",), "qemu-user-static", flags=("-static",))


def _cortex_m(machine: str, linker_script: str) -> Emulator:
    command = ("qemu-system-arm", "-M", machine, *_QUIET, *_SEMIHOSTING, "-kernel")
    scripts = (f"-L{BARE_METAL}", f"-T{BARE_METAL / linker_script}", "-Wl,--gc-sections")
    sections = ("-ffunction-sections", "-fdata-sections")
    flags = (*sections, "-nostartfiles", *scripts, "--specs=rdimon.specs")
    return Emulator(command, "qemu-system-arm", (BARE_METAL / "startup.c",), flags)


def _riscv32() -> Emulator:
    """QEMU's board of RISC-V: code, data and stack in its memory, where picolibc's script is told."""
    console = ("-serial", "none", "-chardev", "stdio,id=console")
    semihosting = (*_SEMIHOSTING[:1], f"{_SEMIHOSTING[1]},chardev=console")
    command = (
        "qemu-system-riscv32",
        "-M",
        "virt",
        "-bios",
        "none",
        *_QUIET,
        *console,
        *semihosting,
    )
    memory = {
        "flash": 0x80000000,
        "flash_size": 8 << 20,
        "ram": 0x80800000,
        "ram_size": 16 << 20,
        "stack_size": 64 << 10,
    }
    places = (f"-Wl,--defsym=__{name}={value:#x}" for name, value in memory.items())
    flags = ("--crt0=hosted", "--oslib=semihost", "-Tpicolibc.ld", *places)
    return Emulator((*command, "-kernel"), "qemu-system-misc", flags=flags)


EMULATORS: Mapping[str, Emulator] = {
    "host": Emulator(),
    "aarch64": _process("aarch64"),
    "armhf": _process("arm"),
    "riscv64": _process("riscv64"),
    "cortex-m0": _cortex_m("microbit", "microbit.ld"),
    "cortex-m3": _cortex_m("mps2-an385", "mps2.ld"),
    "cortex-m4": _cortex_m("mps2-an386", "mps2.ld"),
    "cortex-m7": _cortex_m("mps2-an500", "mps2.ld"),
    "cortex-m33": _cortex_m("mps2-an505", "an505.ld"),
    "cortex-m55": _cortex_m("mps3-an547", "an547.ld"),
    "rv32imc": _riscv32(),
    "rv32imafc": _riscv32(),
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
    emulator = EMULATORS[target.name]
    files = [str(source) for source in (*sources, *emulator.sources)]
    command = [compiler, *flags, *files, "-o", str(program), "-lm", *emulator.flags]
    done = run_tool(command)
    if done.returncode:
        raise CompilationError(f"{compiler} refuses the program: {reason(done.stderr)}")


def run_program(
    program: Path, target: EmbeddedTarget, *options: str, processor_s: float = 600.0
) -> subprocess.CompletedProcess[str]:
    """Run a program of `target`, ended after so much computing; `options` are for the emulator.

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
    return run_tool(command, processor_s=processor_s)


def printed_losses(done: subprocess.CompletedProcess[str]) -> list[float]:
    """The losses that a self-test compiled with ``-D<NAME>_SELFTEST_PRINT`` has printed."""
    bits = np.array([int(line, 16) for line in done.stdout.split()], np.uint32)
    return [float(value) for value in bits.view(np.float32)]
