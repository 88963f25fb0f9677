"""Of many equal tests those that every run takes; ``make test-slow`` takes the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest


def share(every: Iterable[Any], fast: Collection[Any]) -> list[Any]:
    """Parameters of a test: all of `every`, slow but for those in `fast`."""
    parameters = list(every)
    unknown = [one for one in fast if one not in parameters]
    assert not unknown, f"no parameters of this test: {unknown}"
    return [one if one in fast else slow(one) for one in parameters]


def first(count: int, every: Iterable[Any]) -> list[Any]:
    """Parameters of a test: all of `every`, slow but for the first `count`."""
    parameters = list(every)
    return [*parameters[:count], *map(slow, parameters[count:])]


def slow(one: Any) -> Any:
    """A parameter of a slow test; a tuple is one for each argument."""
    values: Sequence[Any] = one if isinstance(one, tuple) else (one,)
    return pytest.param(*values, marks=pytest.mark.slow)
