"""The data from which the files of a package are generated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.aot.c_names import c_identifier
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.package.layout import CMAKE, Layout
from tvm_xengine.aot.plan.kernels import Backend, Optimize
from tvm_xengine.aot.targets import EmbeddedTarget
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.program.step_program import ArenaView, Outside, OutsideView, StepProgram
from tvm_xengine.program.transfers import Channel

Array = NDArray[np.generic]

SCHEMA = 3
"""Version of the plan document."""

INTERFACE = 3
"""Version of the C interface: raised when a program that compiled no longer does."""

GRADIENT_WEIGHT = "gradient_weight"
"""Result of an accumulation: how much its sample counts; one where there is none."""
GRADIENT_SCALE = "gradient_scale"
"""Setting of an update by accumulated gradients: one over the sum of the weights."""


@dataclass(frozen=True)
class KernelCode:
    """How a kernel is called from C.

    Attributes
    ----------
    name, prototype
        Of the C function; the prototype is without semicolon.
    arguments
        Which of ``(inputs..., outputs..., workspace)`` it takes, in order.
    source
        Its definition; empty when it comes as an object file.
    helpers
        Names of the shared helpers it calls.
    first
        Elements of each argument that lie in front of where the function begins; empty for none.
    """

    name: str
    prototype: str
    arguments: tuple[int, ...]
    source: str = ""
    helpers: frozenset[str] = frozenset()
    first: tuple[int, ...] = ()


def is_zero_bytes(value: Array) -> bool:
    """Whether clearing memory makes a value; -0.0 has a bit that is set."""
    return not any(value.tobytes())


@dataclass(frozen=True)
class StateTensor:
    """A state tensor with its place and its initial value.

    Attributes
    ----------
    saved_as
        Its names in checkpoints, its own first.
    """

    name: str
    place: ArenaView
    initial: Array
    saved_as: tuple[str, ...]

    @property
    def c_name(self) -> str:
        """What it is called in C."""
        return c_identifier(self.name)

    @property
    def saved_name(self) -> str:
        """What it is called in checkpoints."""
        return self.saved_as[0]

    @property
    def starts_as_zero_bytes(self) -> bool:
        """Whether clearing its memory makes its initial value."""
        return is_zero_bytes(self.initial)


@dataclass(frozen=True)
class Package:
    """A training step, ready to be written as C.

    Attributes
    ----------
    name
        Prefix of every file and C name.
    regions
        Bytes of each region that is used, by name, fastest first.
    kept_bytes
        For each region, the leading bytes that hold state between calls.
    functions
        The programs of its entry points.
    budget_bytes
        What each region has for the package.
    summed_bytes
        For each region, the leading bytes that hold state and sums of gradients.
    sums
        Sums of gradients, which live from the first sample that is accumulated to the update.
    hyper
        Initial value of each setting.
    constants
        Arrays in flash, by name.
    frozen
        Which of them are tensors of the model, by their names in checkpoints.
    origin
        Hash of the values that the model was exported with.
    channels
        Between which regions copies run beside computations; empty where the processor makes them.
    kernels, codes
        By `DeviceKernel.symbol`.
    storage_error
        Largest difference that short storage makes to a loss of the self-test, relative to one
        plus its size; None where everything is stored as it is computed.
    """

    name: str
    target: EmbeddedTarget
    backend: Backend
    optimize: Optimize
    alignment_bytes: int
    regions: Mapping[str, int]
    kept_bytes: Mapping[str, int]
    functions: Mapping[Entry, StepProgram]
    state: tuple[StateTensor, ...]
    hyper: Mapping[str, float]
    constants: Mapping[str, Array]
    kernels: Mapping[str, DeviceKernel]
    codes: Mapping[str, KernelCode]
    storage_error: float | None = None
    budget_bytes: Mapping[str, int] = field(default_factory=dict)
    summed_bytes: Mapping[str, int] = field(default_factory=dict)
    sums: Mapping[str, ArenaView] = field(default_factory=dict)
    frozen: Mapping[str, str] = field(default_factory=dict)
    origin: int = 0
    layout: Layout = CMAKE
    channels: tuple[Channel, ...] = ()

    @property
    def macro(self) -> str:
        """Prefix of every macro."""
        return self.name.upper()

    @property
    def kernel_functions(self) -> Sequence[KernelCode]:
        """Each C function once, whichever kernels it computes."""
        return tuple({code.name: code for code in self.codes.values()}.values())

    @property
    def accumulates(self) -> bool:
        """Whether gradients can be added up over single samples."""
        return Entry.ACCUMULATE in self.functions

    @property
    def state_bytes(self) -> int:
        """Bytes of all state tensors, without padding."""
        return sum(tensor.place.size_bytes for tensor in self.state)

    @property
    def frozen_values(self) -> dict[str, Array]:
        """Values of the tensors of the model that lie in flash, by their names in checkpoints."""
        return {name: self.constants[constant] for name, constant in self.frozen.items()}

    @property
    def flash_bytes(self) -> int:
        """Bytes of all constants."""
        return sum(int(array.nbytes) for array in self.constants.values())

    @cached_property
    def plan_hash(self) -> int:
        """A hash of the memory layout and the calls: what the header and the source agree on."""
        document = [
            SCHEMA,
            self.name,
            dict(self.regions),
            [asdict(call) for program in self.functions.values() for call in program.calls],
            [[t.name, asdict(t.place)] for t in self.state],
            sorted(self.hyper),
            {name: hashlib.sha256(a.tobytes()).hexdigest() for name, a in self.constants.items()},
            *([self.channels] if self.channels else []),
        ]
        digest = hashlib.sha256(
            json.dumps(document, sort_keys=True, default=_plain).encode()
        ).digest()
        return int.from_bytes(digest[:8], "little")


def library_sources(package: Package) -> list[str]:
    """The files that an application compiles or links, in the folder of the package."""
    name = package.name
    kernels = f"{name}_kernels.c" if package.backend.value == "c" else f"{name}_kernels.o"
    return [package.layout.source(file) for file in (f"{name}.c", kernels, f"{name}_data.c")]


def arguments_of(program: StepProgram) -> tuple[OutsideView, ...]:
    """The tensors that the caller of a function hands over, in order."""
    return tuple(inputs_of(program).values())


def inputs_of(program: StepProgram) -> Mapping[str, OutsideView]:
    """The caller's tensors, by their names in the model."""
    outside = program.interface.outside
    return {name: view for name, view in outside.items() if view.kind is Outside.CALLER}


def _plain(value: object) -> object:
    assert isinstance(value, Enum)
    return value.value
