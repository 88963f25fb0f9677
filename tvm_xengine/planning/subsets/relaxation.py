"""Subsets by linear limits alone: a 0/1 program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

Subset = frozenset[int]

_INFEASIBLE = 2
"""Status of `scipy.optimize.milp`."""


@dataclass(frozen=True)
class Row:
    """A limit that every subset with a plan obeys: ``sum of amounts[i] over the subset <= limit``.

    Attributes
    ----------
    amounts
        At least 0.
    """

    amounts: tuple[float, ...]
    limit: float


def best_relaxed(
    scores: Sequence[float], rows: Sequence[Row], conflicts: Sequence[Subset]
) -> Subset | None:
    """A subset of greatest score that obeys rows and contains no conflict; None if that is the empty one."""
    count, total = len(scores), sum(scores)
    if not total > 0:
        return None
    cuts = [
        Row(tuple(float(i in conflict) for i in range(count)), len(conflict) - 1)
        for conflict in conflicts
    ]
    upper = np.array([float(score > 0) for score in scores])
    for row in rows:  # what does not fit alone: fixed exactly, and not within a tolerance
        upper[[amount > row.limit for amount in row.amounts]] = 0
    found = milp(
        -np.asarray(scores) / total,
        integrality=np.ones(count),
        bounds=Bounds(0, upper),
        constraints=[_scaled(row) for row in (*rows, *cuts) if any(row.amounts)],
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        if found.status == _INFEASIBLE:  # a limit below 0
            return None
        raise RuntimeError(f"the program of subsets was not solved: {found.message}")
    return frozenset(int(i) for i in np.flatnonzero(found.x > 0.5)) or None


def _scaled(row: Row) -> LinearConstraint:
    """The row divided by its largest amount, so that the solver's tolerances mean the same in all."""
    largest = max(row.amounts)
    return LinearConstraint(np.asarray(row.amounts) / largest, -np.inf, row.limit / largest)
