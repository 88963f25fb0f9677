"""Inputs and attributes of ONNX operators, of which any may be left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError

Inputs = Sequence[relax.Expr | None]
Attributes = Mapping[str, object]


def padded(inputs: Inputs, count: int) -> list[relax.Expr | None]:
    """As many inputs as an operator can have; None for those left out at the end."""
    return [*inputs, *[None] * (count - len(inputs))]


def given(value: relax.Expr | None) -> relax.Expr:
    """An input that an operator cannot do without.

    Raises
    ------
    UnsupportedModelError
        When it was left out.
    """
    if value is None:
        raise UnsupportedModelError("its input must be given")
    return value
