"""One node of an ONNX graph, as the input of its converter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.relax_ir.types import Array, constant_value, static_shape


@dataclass(frozen=True)
class OnnxNode:
    """A node whose inputs are Relax values already.

    Attributes
    ----------
    inputs
        None for those that are left out. What no training changes is a Relax constant.
    attributes
        As TVM's importer reads them: numbers, bytes, tuples, TensorProtos.
    opset
        The version of the operator set of the model.
    output_count
        Number of results that the node names.
    """

    builder: relax.BlockBuilder
    inputs: Sequence[relax.Expr | None]
    attributes: Mapping[str, object]
    opset: int
    output_count: int

    def emit(self, value: relax.Expr) -> relax.Expr:
        """The variable that `value` is bound to."""
        return self.builder.emit(value)

    def has(self, position: int) -> bool:
        """Whether the input at a position is given."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def input(self, position: int) -> relax.Expr:
        """An input that the operator cannot do without.

        Raises
        ------
        UnsupportedModelError
            If it is left out.
        """
        value = self.optional(position)
        if value is None:
            raise UnsupportedModelError(f"its input {position} must be given")
        return value

    def optional(self, position: int) -> relax.Expr | None:
        """An input that may be left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def shape(self, position: int = 0) -> tuple[int, ...]:
        """The dimensions of an input."""
        return static_shape(self.input(position).ty)

    def dtype(self, position: int = 0) -> str:
        """The type of the elements of an input."""
        return str(self.input(position).ty.dtype)

    def value(self, position: int, what: str) -> Array | None:
        """The value of an input that must be constant; None if it is left out.

        Parameters
        ----------
        what
            What the input holds, for the message.

        Raises
        ------
        UnsupportedModelError
            If the input is computed.
        """
        given = self.optional(position)
        if given is None:
            return None
        constant = constant_value(given)
        if constant is None:
            raise UnsupportedModelError(
                f"{what} must be constant in the file, found computed values"
            )
        return constant

    def integers(self, position: int, name: str) -> list[int] | None:
        """Integers from a constant input or, in old versions, from the attribute `name`."""
        found = self.value(position, name)
        if found is None and name in self.attributes:
            found = np.asarray(self.attributes[name])
        return None if found is None else [int(one) for one in found.reshape(-1)]

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        return int(self.attributes.get(name, default))  # type: ignore[call-overload,no-any-return]

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        return float(self.attributes.get(name, default))  # type: ignore[arg-type]

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        found = self.attributes.get(name, default)
        return found.decode() if isinstance(found, bytes) else str(found)


Converter = Callable[[OnnxNode], "relax.Expr | None"]
"""Returns one value, or a tuple of the values of all outputs; None leaves the node to TVM."""


def literal(value: object, dtype: str) -> relax.Expr:
    """A constant of a type."""
    return relax.const(np.asarray(value, dtype), dtype)
