"""The machines that a package can be exported for."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from tvm_xengine.errors import InvalidPlatformError

_SOFTWARE_CYCLES = 60.0
"""Of a float operation by the routines of libgcc, in round numbers."""


@dataclass(frozen=True)
class EmbeddedTarget:
    """A processor, how to compile for it, and what its instructions cost.

    Attributes
    ----------
    compiler, package
        C compiler, and the Debian package that has it.
    flags
        Compiler options that choose the processor.
    llvm
        LLVM's triple, processor and features; empty where LLVM cannot be used.
    clock_mhz
        Typical clock.
    cycles
        Cycles per float operation and per other instruction; where there is no
        floating-point unit the first is the cost of the library call.
    has_fpu
        Whether it adds and multiplies floats itself.
    """

    name: str
    compiler: str
    package: str
    flags: tuple[str, ...]
    llvm: Mapping[str, str | tuple[str, ...]]
    clock_mhz: float
    cycles: tuple[float, float]
    has_fpu: bool = True

    def __post_init__(self) -> None:
        if self.clock_mhz <= 0 or min(self.cycles) <= 0:
            raise ValueError(f"{self.name}: clock_mhz and cycles must be > 0")

    @property
    def has_helium(self) -> bool:
        """Whether the processor has vectors of float32 that its C compiler seldom finds a use for."""
        return "+mve.fp" in self.llvm.get("mattr", ())

    @property
    def has_dsp(self) -> bool:
        """Whether the processor multiplies two pairs of 16-bit numbers at once (Armv7E-M, Armv8-M)."""
        return str(self.llvm.get("mtriple")).startswith(("thumbv7em", "thumbv8"))

    def find_compiler(self) -> str:
        """Path of the C compiler.

        Raises
        ------
        InvalidPlatformError
            If it is not installed.
        """
        path = shutil.which(self.compiler)
        if path is None:
            raise InvalidPlatformError(
                f"target {self.name} needs {self.compiler}, which is not installed; on Debian:"
                f" apt-get install {self.package}"
            )
        return path

    @property
    def has_compiler(self) -> bool:
        """Whether the C compiler is installed."""
        return shutil.which(self.compiler) is not None


def embedded_target(name: str) -> EmbeddedTarget:
    """The target called `name`.

    Raises
    ------
    InvalidPlatformError
        If there is none; the message lists those there are.
    """
    if name not in TARGETS:
        raise InvalidPlatformError(f"unknown target {name!r}; expected one of {', '.join(TARGETS)}")
    return TARGETS[name]


_ARCHITECTURES = {
    "cortex-m0": "v6m",
    "cortex-m3": "v7m",
    "cortex-m4": "v7em",
    "cortex-m7": "v7em",
    "cortex-m33": "v8m.main",
    "cortex-m55": "v8.1m.main",
}
"""Of each core, as LLVM calls it."""


def _cortex_m(
    name: str,
    core: str,
    fpu: tuple[str, ...],
    mattr: tuple[str, ...],
    *,
    clock_mhz: float,
    cycles: float,
) -> EmbeddedTarget:
    hard = bool(fpu)
    abi = ("-mfloat-abi=hard", *fpu, "-mfp16-format=ieee") if hard else ("-mfloat-abi=soft",)
    llvm: dict[str, str | tuple[str, ...]] = {
        "mtriple": f"thumb{_ARCHITECTURES[core]}-none-eabi" + ("hf" if hard else ""),
        "mcpu": core,
        "mfloat-abi": "hard" if hard else "soft",
    }
    if mattr:
        llvm["mattr"] = mattr
    return EmbeddedTarget(
        name=name,
        compiler="arm-none-eabi-gcc",
        package="gcc-arm-none-eabi libnewlib-arm-none-eabi",
        flags=(f"-mcpu={core}", "-mthumb", *abi),
        llvm=llvm,
        clock_mhz=clock_mhz,
        cycles=(cycles, 1.0),
        has_fpu=hard,
    )


def _riscv32(name: str, extensions: str, abi: str, *, cycles: float) -> EmbeddedTarget:
    """A microcontroller with RISC-V's base of 32 bits and the C library picolibc."""
    return EmbeddedTarget(
        name=name,
        compiler="riscv64-unknown-elf-gcc",
        package="gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
        flags=(f"-march=rv32i{extensions}", f"-mabi={abi}", "--specs=picolibc.specs"),
        llvm={
            "mtriple": "riscv32-unknown-elf",
            "mcpu": "generic-rv32",
            "mabi": abi,
            "mattr": tuple(f"+{letter}" for letter in extensions),
        },
        clock_mhz=160.0,
        cycles=(cycles, 1.0),
        has_fpu="f" in extensions,
    )


# Clocks are typical of the parts that carry these cores. Cycles per float operation: the cores'
# technical reference manuals for those with an FPU (VADD and VMUL take one, two with the moves),
# otherwise those of the software routines.
TARGETS: Mapping[str, EmbeddedTarget] = {
    target.name: target
    for target in (
        EmbeddedTarget("host", "gcc", "gcc", (), {"mcpu": "x86-64"}, 2000.0, (0.5, 0.5)),
        _cortex_m("cortex-m0", "cortex-m0", (), (), clock_mhz=48.0, cycles=_SOFTWARE_CYCLES),
        _cortex_m("cortex-m3", "cortex-m3", (), (), clock_mhz=72.0, cycles=_SOFTWARE_CYCLES),
        _cortex_m(
            "cortex-m4",
            "cortex-m4",
            ("-mfpu=fpv4-sp-d16",),
            ("+vfp4d16sp",),
            clock_mhz=120.0,
            cycles=2.0,
        ),
        _cortex_m(
            "cortex-m7",
            "cortex-m7",
            ("-mfpu=fpv5-sp-d16",),
            ("+fp-armv8d16sp",),
            clock_mhz=400.0,
            cycles=1.0,
        ),
        _cortex_m(
            "cortex-m33",
            "cortex-m33",
            ("-mfpu=fpv5-sp-d16",),
            ("+fp-armv8d16sp",),
            clock_mhz=110.0,
            cycles=2.0,
        ),
        _cortex_m(
            "cortex-m55",
            "cortex-m55",
            ("-mfpu=auto",),
            ("+mve.fp", "+fp-armv8d16sp"),
            clock_mhz=250.0,
            cycles=1.0,
        ),
        EmbeddedTarget(
            "aarch64",
            "aarch64-linux-gnu-gcc",
            "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
            (),
            {"mtriple": "aarch64-linux-gnu", "mattr": ("+neon",)},
            1500.0,
            (0.5, 0.5),
        ),
        EmbeddedTarget(
            "armhf",
            "arm-linux-gnueabihf-gcc",
            "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross",
            ("-march=armv7-a", "-mfpu=neon-vfpv4", "-mfloat-abi=hard", "-mfp16-format=ieee"),
            {"mtriple": "armv7a-linux-gnueabihf", "mattr": ("+neon",), "mfloat-abi": "hard"},
            1000.0,
            (1.0, 1.0),
        ),
        EmbeddedTarget(
            "riscv64",
            "riscv64-linux-gnu-gcc",
            "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross",
            (),
            {
                "mtriple": "riscv64-linux-gnu",
                "mcpu": "generic-rv64",
                "mabi": "lp64d",
                "mattr": ("+m", "+a", "+f", "+d", "+c"),
            },
            1000.0,
            (1.0, 1.0),
        ),
        _riscv32("rv32imc", "mc", "ilp32", cycles=_SOFTWARE_CYCLES),
        _riscv32("rv32imafc", "mafc", "ilp32f", cycles=2.0),
    )
}
"""Every target, by name."""
