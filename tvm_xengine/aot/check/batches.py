"""Seeded batches that Python and C generate identically, without files or rounding."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.aot.c_names import c_identifier
from tvm_xengine.aot.emit_c.types_in_c import is_float, stored_type
from tvm_xengine.program.step_program import Operand
from tvm_xengine.scheduling.value_range import ValueRange

Array = NDArray[np.generic]

# Numerical Recipes' linear congruential generator modulo 2^32.
_FACTOR, _STEP, _SEED = 1664525, 1013904223, 2026


@dataclass(frozen=True)
class BatchInput:
    """An input of the self-test.

    Attributes
    ----------
    bound
        Number of the integers that are drawn.
    first
        The least of them.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bound: int
    first: int = 0

    @property
    def c_name(self) -> str:
        """Its name in C."""
        return c_identifier(self.name)

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def batch_inputs(
    inputs: Mapping[str, Operand],
    output: Operand,
    data: Collection[str],
    ranges: Mapping[str, ValueRange],
) -> list[BatchInput]:
    """The inputs of the self-test of a training step; integers are class numbers.

    Parameters
    ----------
    output
        Of the evaluation: one score for each class.
    data
        Names of the inputs that the evaluation reads too.
    ranges
        Allowed values of integers, by name.
    """
    classes = output.shape[1] if len(output.shape) > 1 else 2
    made = []
    for name, view in inputs.items():
        first, count = 0, 2 if name in data else classes
        if (allowed := ranges.get(name)) is not None:
            parts = [allowed] if allowed.parts is None else allowed.parts.ranges
            low, high = max(one.low for one in parts), min(one.high for one in parts)
            count = max(1, min(count, high - low + 1))
            first = min(max(0, low), high - count + 1)
        made.append(BatchInput(name, view.shape, view.dtype, count, first))
    return made


def seeded_batches(inputs: Sequence[BatchInput]) -> Iterator[Mapping[str, Array]]:
    """Endless batches: floats are multiples of 2^-14 in -2..2, integers are those of their input."""
    state = _SEED
    while True:
        batch: dict[str, Array] = {}
        for entry in inputs:
            drawn = np.empty(entry.count, np.int64)
            for at in range(entry.count):
                state = (state * _FACTOR + _STEP) % 2**32
                drawn[at] = state >> 16
            if is_float(entry.dtype):
                values = ((drawn - 32768) / 16384).astype(entry.dtype)
            else:
                values = (entry.first + drawn % entry.bound).astype(entry.dtype)
            batch[entry.name] = values.reshape(entry.shape)
        yield batch


def draw_functions(name: str) -> str:
    """The same generator in C."""
    return f"""\
static uint32_t {name}_draw(uint32_t *state) {{
  *state = *state * {_FACTOR}u + {_STEP}u;
  return *state >> 16;
}}"""


def seed_literal() -> str:
    """The initial state of the generator, in C."""
    return f"{_SEED}u"


def fill_loop(name: str, entry: BatchInput, array: str) -> str:
    """C that fills the array of an input with the next numbers of the generator."""
    kind = stored_type(entry.dtype)
    if is_float(entry.dtype):
        value = f"({kind})((int32_t){name}_draw(&random) - 32768) / 16384"
    else:
        value = f"{name}_draw(&random) % {entry.bound}u"
        if entry.first:
            value = f"{entry.first} + (int32_t)({value})"
        value = f"({kind})({value})"
    return f"    for (size_t i = 0; i < {entry.count}u; i++) {array}[i] = {value};"
