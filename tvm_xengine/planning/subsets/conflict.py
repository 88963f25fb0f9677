"""A smallest part of a subset that has no plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def smallest_conflict(
    items: Sequence[int],
    has_plan: Callable[[frozenset[int]], bool],
    is_over: Callable[[], bool] = lambda: False,
) -> frozenset[int] | None:
    """A part of `items` that has no plan, of which every smaller part has one.

    QuickXplain: Junker, Preferred explanations and relaxations for over-constrained problems, AAAI 2004.
    Of several such parts it finds one of items that come early. It asks for about
    ``k log2(n / k) + 2 k`` plans, k items of n being in conflict.

    Parameters
    ----------
    items
        Have no plan together.
    is_over
        Asked before each plan; None is returned once it says so.
    """

    def conflict(base: frozenset[int], is_new: bool, rest: Sequence[int]) -> frozenset[int]:
        if is_over():
            raise _OverError
        if is_new and not has_plan(base):
            return frozenset()
        if len(rest) == 1:
            return frozenset(rest)
        half = len(rest) // 2
        first, second = frozenset(rest[:half]), rest[half:]
        later = conflict(base | first, True, second)
        earlier = conflict(base | later, bool(later), rest[:half])
        return later | earlier

    try:
        return conflict(frozenset(), False, items)
    except _OverError:
        return None


class _OverError(Exception):
    """The limit came first."""
