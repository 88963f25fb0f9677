"""C code with which self-tests compare results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_xengine.aot.emit_c.types_in_c import float_literal

MAX_OUTPUTS = 64
"""Number of output values that are compared; more would only lengthen the file."""

DIFFER = """static float size_of(float value) { return value < 0 ? -value : value; }

static int differ(float a, float b, float tolerance) {
  return !(size_of(a - b) <= tolerance * (1.0f + size_of(b)));
}"""
"""Whether two values differ by more than a tolerance relative to one plus the size of the second."""


def single(value: float) -> str:
    """A float32 constant; what float32 does not hold, as losses of a run that diverges, is infinite."""
    with np.errstate(over="ignore"):
        rounded = np.float32(value).item()
    return float_literal(rounded, "float32")


def rows_of(values: Sequence[float]) -> str:
    """The body of an array initialiser, one float32 constant per line."""
    return ",\n".join(f"    {single(value)}" for value in values)
