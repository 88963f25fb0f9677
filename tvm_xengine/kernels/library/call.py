"""Descriptions of library calls, from which any process can set them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OptionValue = int | float | bool | str | None | tuple["OptionValue", ...]


@dataclass(frozen=True)
class LibraryCall:
    """An operation of float32 tensors (positions are int32) that a library has.

    Attributes
    ----------
    operation
        Name of the training kernel it stands for, such as ``conv_weight_gradient``.
    options
        That kernel's options, sorted by name.
    shapes
        Of the inputs, then of the outputs. With `bias` an input follows the operation's own that is
        added to every channel of the result, and with `residual` one of the result's shape.
    num_outputs
        How many of the shapes are outputs.
    bias, residual, relu
        What the library does to the result on its way out, in this order.
    threads
        Number of threads it may use.
    source
        Name of the kernel source whose library it is.
    """

    operation: str
    options: tuple[tuple[str, OptionValue], ...]
    shapes: tuple[tuple[int, ...], ...]
    threads: int
    source: str
    bias: bool = False
    relu: bool = False
    num_outputs: int = 1
    residual: bool = False

    @property
    def residual_input(self) -> int:
        """Number of the input that is added to the result, where there is one."""
        return len(self.shapes) - self.num_outputs - 1

    @property
    def option(self) -> Mapping[str, OptionValue]:
        """The options by name."""
        return dict(self.options)

    def numbers(self, name: str) -> tuple[int, ...]:
        """An option that is a list of numbers."""
        value = self.option[name]
        if not isinstance(value, tuple):
            raise ValueError(f"{self.operation}: {name} must be a tuple, got {value!r}")
        return tuple(int(str(part)) for part in value)

    def number(self, name: str) -> int:
        """An option that is a number."""
        return int(str(self.option[name]))
