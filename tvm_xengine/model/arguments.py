"""Arguments of the public functions, refused where they cannot be what was meant."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TypeVar

_E = TypeVar("_E", bound=Enum)

MOST_SEED = 2**31 - 1
"""Seeds are 32-bit numbers in kernels."""


def patterns(name: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """Patterns of names; a text is one pattern, not a sequence of letters."""
    found = (given,) if isinstance(given, str) else tuple(given)
    if wrong := [one for one in found if not isinstance(one, str)]:
        raise TypeError(f"expected patterns of names for {name}, got {wrong[0]!r}")
    return found


def pins(
    given: Mapping[str, str] | Iterable[tuple[str, str]] | None,
) -> tuple[tuple[str, str], ...]:
    """Pairs of a pattern and the only device for what it matches."""
    found = tuple(given.items() if isinstance(given, Mapping) else given or ())
    for pair in found:
        if not (
            isinstance(pair, tuple | list)
            and len(pair) == 2
            and all(isinstance(one, str) for one in pair)
        ):
            raise TypeError(f"expected pairs of a pattern and a device for pin, got {pair!r}")
    return tuple((pattern, device) for pattern, device in found)


def whole_number(name: str, given: object, least: int, most: int = MOST_SEED) -> int:
    """A whole number within bounds."""
    try:
        number = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"expected a whole number for {name}, got {given!r}") from None
    if not least <= number <= most:
        raise ValueError(f"expected {name} from {least} to {most}, got {number}")
    return number


def limit(name: str, given: float | None) -> float | None:
    """A limit above 0, or None for no limit."""
    if given is not None and not given > 0:
        raise ValueError(f"expected {name} above 0, or None for no limit, got {given}")
    return given


def learning_rate(given: object, step: int) -> float:
    """What a schedule or a user gives as the rate of a step."""
    try:
        rate = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        rate = math.nan
    if not 0 <= rate < math.inf:
        raise ValueError(
            f"expected a learning rate of at least 0 for step {step + 1}, got {given!r}"
        )
    return rate


def one_of(name: str, choices: type[_E], given: str) -> _E:
    """The member of an enumeration that a text names."""
    try:
        return choices(given)
    except ValueError:
        names = ", ".join(str(one.value) for one in choices)
        raise ValueError(f"unknown {name} {given!r}, expected one of {names}") from None
