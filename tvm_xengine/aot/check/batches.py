"""Batches that Python and C make alike, without a file and without rounding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.aot.emit_c.types_in_c import is_float, stored_type
from tvm_xengine.aot.plan.places import Field

Array = NDArray[np.generic]

# Numerical Recipes' linear congruential generator modulo 2^32.
_FACTOR, _STEP, _SEED = 1664525, 1013904223, 2026


@dataclass(frozen=True)
class BatchInput:
    """An input of the self-test.

    Attributes
    ----------
    bound
        Integers are drawn below this.
    """

    field: Field
    bound: int


def seeded_batches(inputs: Sequence[BatchInput]) -> Iterator[Mapping[str, Array]]:
    """Batches without end: floats are multiples of 2^-14 in -2..2, integers lie below their bound."""
    state = _SEED
    while True:
        batch: dict[str, Array] = {}
        for entry in inputs:
            count = int(np.prod(entry.field.shape, dtype=np.int64))
            drawn = np.empty(count, np.int64)
            for at in range(count):
                state = (state * _FACTOR + _STEP) % 2**32
                drawn[at] = state >> 16
            if is_float(entry.field.dtype):
                values = ((drawn - 32768) / 16384).astype(entry.field.dtype)
            else:
                values = (drawn % entry.bound).astype(entry.field.dtype)
            batch[entry.field.name] = values.reshape(entry.field.shape)
        yield batch


def draw_functions(name: str) -> str:
    """The same generator in C."""
    return f"""\
static uint32_t {name}_draw(uint32_t *state) {{
  *state = *state * {_FACTOR}u + {_STEP}u;
  return *state >> 16;
}}"""


def seed_literal() -> str:
    """The state that the generator starts from, in C."""
    return f"{_SEED}u"


def fill_loop(name: str, entry: BatchInput) -> str:
    """C that fills an input's array with the next numbers of the generator."""
    field = entry.field
    count = int(np.prod(field.shape, dtype=np.int64))
    kind = stored_type(field.dtype)
    if is_float(field.dtype):
        value = f"({kind})((int32_t){name}_draw(&random) - 32768) / 16384"
    else:
        value = f"({kind})({name}_draw(&random) % {entry.bound}u)"
    return f"    for (size_t i = 0; i < {count}u; i++) {field.c_name}[i] = {value};"
