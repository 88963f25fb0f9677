"""Expected updates of the state, as weighted sums of its tensors that Python and C weigh alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.aot.check.compare_c import single
from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.relax_ir.types import Array

State = Mapping[str, Array]

_ERRORS = 2
"""How many times as far off as sums in float32 may be. What is drawn is five to twelve times too large, and a
weighted sum is off by the error of a whole tensor (its root of squares) times 0.6, as random weights are."""
_FEW = 4
"""A tensor of so many elements tells half as well as a large one how far off they are."""
_CHANGE = 0.01
"""Of the change of a tensor: where rounding takes a value over a kink, its share of a gradient differs."""
_ROUNDING = 4 * 2.0**-24
"""Of the size of a tensor: what is stored is rounded."""

_FACTORS = 2654435769, 2246822519
"""Odd numbers that spread consecutive integers over 32 bits: 2^32 by the golden ratio (Knuth, The Art of
Computer Programming 3, 6.4), and the second prime of xxHash."""


@dataclass(frozen=True)
class Update:
    """The weighted sum of a tensor after the first step of a self-test.

    Attributes
    ----------
    allowed
        By how much it may be off: little more than rounding makes of it.
    """

    total: float
    allowed: float


def expected_updates(before: State, after: State, rounded: Sequence[State]) -> dict[str, Update]:
    """The sums of what a step has updated.

    Parameters
    ----------
    after
        The new state as it is defined.
    rounded
        What it is where sums are off as those in float32 are.
    """
    made = {}
    for name, new in after.items():
        total = float(_weights(new.size) @ np.asarray(new, np.float64).reshape(-1))
        off = max(_distance(other[name], new) for other in rounded)
        allowed = max(
            _ERRORS * (1 + _FEW / max(new.size, 1)) * off,
            _CHANGE * _distance(new, before[name]),
            _ROUNDING * _distance(new, np.zeros_like(new)),
        )
        made[name] = Update(total, allowed)
    return made


def _distance(a: Array, b: Array) -> float:
    return float(np.linalg.norm(np.asarray(a, np.float64) - np.asarray(b, np.float64)))


def _weights(count: int) -> NDArray[np.float64]:
    """For each element one in -1..1 that is not 0, without any order that a wrong result may have, too."""
    hashed = np.arange(1, count + 1, dtype=np.uint32) * np.uint32(_FACTORS[0])
    mixed = (hashed ^ np.right_shift(hashed, 15)) * np.uint32(_FACTORS[1])
    return np.asarray((2.0 * np.right_shift(mixed, 24) - 255.0) / 256.0, np.float64)


def update_check(updates: Mapping[str, Update], places: Mapping[str, ArenaView]) -> str:
    """C functions that compare the sums of the tensors at `places`; `updates_differ` is for the self-test."""
    compared = {name: places[name] for name in updates if name in places}
    floats = {name: place for name, place in compared.items() if place.dtype == "float32"}
    if not floats:
        return "static int updates_differ(void) { return 0; }"
    rows = ",\n".join(
        f"    {{{place.device} + {place.offset_bytes}u, {place.size_bytes // 4}u,"
        f" {single(updates[name].total)}, {single(updates[name].allowed)}}} /* {name} */"
        for name, place in floats.items()
    )
    return _CHECK.format(count=len(floats), rows=rows, first=_FACTORS[0], second=_FACTORS[1])


_CHECK = """\
/* Weighted sums of what the first step updates. */
static const struct {{
  const uint8_t *at;
  uint32_t count;
  float total, allowed;
}} first_updates[{count}] = {{
{rows}}};

/* Adds what rounding loses to the next term (Kahan). */
static float weighted_sum(const uint8_t *at, uint32_t count) {{
  float sum = 0.0f, lost = 0.0f;
  for (uint32_t i = 1; i <= count; i++, at += sizeof(float)) {{
    uint32_t hash = i * {first}u;
    float value, term, next;
    hash = (hash ^ hash >> 15) * {second}u;
    memcpy(&value, at, sizeof value);
    term = value * (2.0f * (float)(hash >> 24) - 255.0f) / 256.0f - lost;
    next = sum + term;
    lost = (next - sum) - term;
    sum = next;
  }}
  return sum;
}}

static int updates_differ(void) {{
  for (size_t k = 0; k < {count}u; k++) {{
    float off = weighted_sum(first_updates[k].at, first_updates[k].count) - first_updates[k].total;
    if (!(size_of(off) <= first_updates[k].allowed)) return 1;
  }}
  return 0;
}}"""
