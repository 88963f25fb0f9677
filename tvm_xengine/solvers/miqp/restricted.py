"""A program in which some columns are free and the others keep the values of a solution."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.program import Program

_SLACK = 1e-9
"""Rounding when the least and greatest values of a row are added up, relative to its bounds."""


@dataclass(frozen=True)
class Restricted:
    """A program over the free columns, and which columns of the whole these are.

    Attributes
    ----------
    constant
        What the fixed columns add to the objective.
    """

    program: Program
    free: NDArray[np.int64]
    constant: float

    def extended(self, x: NDArray[np.float64], part: NDArray[np.float64]) -> NDArray[np.float64]:
        """The solution `x` of the whole with the free columns set to `part`."""
        whole = x.copy()
        whole[self.free] = part
        return whole


def restricted(program: Program, x: NDArray[np.float64], is_free: NDArray[np.bool_]) -> Restricted:
    """The program over the columns `is_free`, without rows that no value of them can break."""
    free = np.flatnonzero(is_free)
    number = np.full(program.column_count, -1, np.int64)
    number[free] = np.arange(len(free))
    row_of = np.repeat(np.arange(program.row_count), np.diff(program.starts))
    inside = is_free[program.columns]
    rows, columns, values = row_of[inside], program.columns[inside], program.values[inside]
    count = program.row_count
    fixed = np.bincount(
        row_of[~inside],
        weights=program.values[~inside] * x[program.columns[~inside]],
        minlength=count,
    )
    lower, upper = program.row_lower - fixed, program.row_upper - fixed
    ends = values * program.lower[columns], values * program.upper[columns]
    least = np.bincount(rows, weights=np.minimum(*ends), minlength=count)
    greatest = np.bincount(rows, weights=np.maximum(*ends), minlength=count)
    touched = np.bincount(rows, minlength=count) > 0
    binds = touched & (
        (least < lower - _SLACK * np.abs(lower)) | (greatest > upper + _SLACK * np.abs(upper))
    )
    kept = binds[rows]
    sizes = np.bincount(rows[kept], minlength=count)[binds]
    cost, products = _objective(program, x, is_free, number)
    constant = program.objective(x) - float(cost @ x[free])
    u, v, weights = products
    constant -= float((weights * x[free][u] * x[free][v]).sum())
    part = replace(
        program,
        cost=cost,
        lower=program.lower[free],
        upper=program.upper[free],
        is_integer=program.is_integer[free],
        row_lower=lower[binds],
        row_upper=upper[binds],
        starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        columns=number[columns[kept]],
        values=values[kept],
        quadratic_columns=np.stack([u, v], axis=1),
        quadratic_values=weights,
    )
    return Restricted(part, free, constant)


def _objective(
    program: Program, x: NDArray[np.float64], is_free: NDArray[np.bool_], number: NDArray[np.int64]
) -> tuple[NDArray[np.float64], tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]:
    """Costs of the free columns, and the products of two of them; others are costs of one."""
    cost = program.cost.copy()
    u, v = program.quadratic_columns.T
    weights = program.quadratic_values
    for one, other in ((u, v), (v, u)):
        alone = is_free[one] & ~is_free[other]
        np.add.at(cost, one[alone], weights[alone] * x[other[alone]])
    both = is_free[u] & is_free[v]
    return cost[is_free], (number[u[both]], number[v[both]], weights[both])
