"""Where tensors lie, and the calls that a planned function makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm_xengine.aot.emit_c.names_in_c import c_identifier


@dataclass(frozen=True)
class InRegion:
    """Bytes in a memory region of the caller."""

    region: str
    offset_bytes: int


@dataclass(frozen=True)
class FromCaller:
    """An argument of the function, read where the caller has it."""

    name: str


@dataclass(frozen=True)
class InFlash:
    """A constant array."""

    name: str


@dataclass(frozen=True)
class InContext:
    """A setting kept in the context, such as the learning rate."""

    name: str


Place = InRegion | FromCaller | InFlash | InContext


@dataclass(frozen=True)
class KernelCall:
    """One run of a kernel.

    Attributes
    ----------
    op
        What the op is called in the plan.
    symbol
        Of the `DeviceKernel`.
    places
        Of its inputs, outputs and workspace.
    is_repeat
        Whether the op ran before.
    """

    op: str
    symbol: str
    region: str
    places: tuple[Place, ...]
    is_repeat: bool
    updates_state: bool


@dataclass(frozen=True)
class CopyCall:
    """A copy between two regions."""

    tensor: str
    src: InRegion
    dst: InRegion
    size_bytes: int


Call = KernelCall | CopyCall


@dataclass(frozen=True)
class Field:
    """An input or result of a function, or a tensor of the state.

    Attributes
    ----------
    size_bytes
        Without padding.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int

    @property
    def c_name(self) -> str:
        """What it is called in C."""
        return c_identifier(self.name)


@dataclass(frozen=True)
class Program:
    """A straight-line function on fixed memory.

    Attributes
    ----------
    inputs
        What the caller hands over, in order.
    results
        What is copied to the caller in the end, by name.
    region_bytes
        Bytes of each region that it touches.
    """

    inputs: tuple[Field, ...]
    results: Mapping[str, tuple[Field, Place]]
    calls: tuple[Call, ...]
    region_bytes: Mapping[str, int]
