"""Subsets by limits alone, without plans: a 0/1 program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Subset = frozenset[int]
Line = tuple[NDArray[np.float64], float, float]
"""Factors of a row, and its least and greatest value."""

_INFEASIBLE = 2
"""Status of `scipy.optimize.milp`."""


@dataclass(frozen=True)
class Row:
    """A limit that every subset with a plan obeys: ``amount_of(subset) <= limit``.

    Attributes
    ----------
    amounts
        At least 0, by group: what a subset takes that holds one or more of the group.
    limit
        Of the sum.
    base
        What every subset takes.
    """

    amounts: Mapping[Subset, float]
    limit: float
    base: float = 0.0

    @classmethod
    def of_each(cls, amounts: Sequence[float], limit: float) -> Row:
        """A limit of the sum of what each member takes."""
        return cls({frozenset({i}): amount for i, amount in enumerate(amounts)}, limit)

    def amount_of(self, subset: Subset) -> float:
        """What a subset takes."""
        return self.base + sum(amount for group, amount in self.amounts.items() if group & subset)


def best_relaxed(
    scores: Sequence[float], rows: Sequence[Row], conflicts: Sequence[Subset]
) -> Subset | None:
    """A subset of greatest score that obeys rows and contains no conflict; None if that is the empty one.

    Besides ``x[i]``, whether i is chosen, there is ``y[G]`` for each group G of several members, with
    ``y[G] >= x[i]`` for each of them.
    """
    count, total = len(scores), sum(scores)
    if not total > 0:
        return None
    from scipy.optimize import Bounds, milp  # half a second, which other exports save

    groups = list(dict.fromkeys(g for row in rows for g in row.amounts if len(g) > 1))
    column = {group: count + at for at, group in enumerate(groups)}
    column |= {frozenset({i}): i for i in range(count)}
    width = count + len(groups)
    limits = [_scaled(row, column, width) for row in rows if any(row.amounts.values())]
    limits += [_line(dict.fromkeys(one, 1.0), len(one) - 1, width) for one in conflicts]
    limits += [_line({i: 1.0, column[g]: -1.0}, 0.0, width) for g in groups for i in g]
    upper = np.ones(width)
    for i, score in enumerate(
        scores
    ):  # what does not fit alone: exactly, and not within a tolerance
        is_open = score > 0 and all(row.amount_of(frozenset({i})) <= row.limit for row in rows)
        upper[i] = float(is_open)
    found = milp(
        np.concatenate([-np.asarray(scores) / total, np.zeros(len(groups))]),
        integrality=np.arange(width) < count,
        bounds=Bounds(0, upper),
        constraints=limits,
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        if found.status == _INFEASIBLE:  # the base of a row is above its limit
            return None
        raise RuntimeError(f"the program of subsets was not solved: {found.message}")
    return frozenset(int(i) for i in np.flatnonzero(found.x[:count] > 0.5)) or None


def _scaled(row: Row, column: Mapping[Subset, int], width: int) -> Line:
    """The row divided by its largest amount, so that the solver's tolerances mean the same in all."""
    largest = max(row.amounts.values())
    amounts = {column[group]: amount / largest for group, amount in row.amounts.items()}
    return _line(amounts, (row.limit - row.base) / largest, width)


def _line(amounts: Mapping[int, float], limit: float, width: int) -> Line:
    line = np.zeros(width)
    line[list(amounts)] = list(amounts.values())
    return line, -np.inf, limit
