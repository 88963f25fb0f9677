"""The named operations that are fused in a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from tvm_xengine.kernels.library.call import OptionValue
from tvm_xengine.relax_ir.kernel_attributes import KERNEL_ATTR, OPTIONS_ATTR, PARTS_ATTR


@dataclass(frozen=True)
class Part:
    """One of the kernels that were fused.

    Attributes
    ----------
    inputs
        Numbers of the values it reads: the inputs of the fused kernel come first, then what each
        part makes.
    """

    func: tirx.PrimFunc
    inputs: tuple[int, ...]

    @property
    def name(self) -> str:
        """What it computes; empty where that is unknown."""
        return str(_attribute(self.func, KERNEL_ATTR) or "")

    @property
    def options(self) -> tuple[tuple[str, OptionValue], ...]:
        """Its options, sorted by name."""
        options = _attribute(self.func, OPTIONS_ATTR) or {}
        if not isinstance(options, Mapping):
            raise ValueError(f"{OPTIONS_ATTR} must be a map, got {options!r}")
        return tuple(sorted((str(name), _plain(value)) for name, value in options.items()))

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of what it makes."""
        return tuple(int(extent) for extent in self.func.params[-1].ty.shape)


@dataclass(frozen=True)
class KernelParts:
    """The operations fused in a kernel; its only output is that of the last one."""

    num_inputs: int
    parts: tuple[Part, ...]

    def value_of(self, part: int) -> int:
        """Number of what a part makes."""
        return self.num_inputs + part


def kernel_parts(func: tirx.PrimFunc) -> KernelParts | None:
    """The parts of a kernel, None where it is unknown what it computes.

    A kernel that was not fused is its own only part.
    """
    if (recorded := _attribute(func, PARTS_ATTR)) is not None:
        parts = tuple(
            Part(part, tuple(int(number) for number in inputs))
            for part, inputs in zip(recorded["funcs"], recorded["inputs"], strict=True)
        )
        return KernelParts(int(recorded["num_inputs"]), parts)
    if _attribute(func, KERNEL_ATTR) is None:
        return None
    num_inputs = len(func.params) - 1
    return KernelParts(num_inputs, (Part(func, tuple(range(num_inputs))),))


def with_parts(func: tirx.PrimFunc, made_of: KernelParts) -> tirx.PrimFunc:
    """The fused kernel, which remembers what it was made of."""
    recorded = {
        "num_inputs": made_of.num_inputs,
        "funcs": [part.func for part in made_of.parts],
        "inputs": [list(part.inputs) for part in made_of.parts],
    }
    return func.with_attr(PARTS_ATTR, recorded)


def name_attributes(kernel: str, **options: OptionValue) -> dict[str, object]:
    """Attributes that say what a kernel computes."""
    recorded = {
        name: list(value) if isinstance(value, tuple) else value for name, value in options.items()
    }
    return {KERNEL_ATTR: kernel, OPTIONS_ATTR: recorded}


def _attribute(func: tirx.PrimFunc, name: str) -> Any:
    return func.attrs[name] if func.attrs and name in func.attrs else None


def _plain(value: Any) -> OptionValue:
    """An attribute's value, which TVM may have wrapped."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tirx.IntImm | tirx.FloatImm | ir.StringImm):
        return _plain(value.value)
    return tuple(_plain(part) for part in value)
