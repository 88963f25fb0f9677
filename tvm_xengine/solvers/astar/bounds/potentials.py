"""Bounds on the rest of a schedule that are linear in the state it starts from.

Whatever is where, the rest of a schedule obeys, without regard to memory,

    run[d,i] <= there[d,j] + copies of j into d + run[d,producer of j],  for every j that i reads
    copy[ab,j] <= there[a,j] + copies of j into a from others + run[a,producer of j]
    copy[ah,o] <= there[h,w] + copies of w into h,     for the result o of state w with home h
    sum_d run[d,i] >= needed[i];  what must be at home in the end: there + copies + run >= 1

The state only stands on the right-hand side, so a dual solution found for one state bounds all
others: ``constant + sum of y[i] over the needed ops - sum of z[d,j] over what is there``. These
are potentials in the sense of planning (Pommerening et al., From Non-Negative to General
Operator Cost Partitioning, AAAI 2015).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, linprog
from scipy.sparse import coo_matrix

from tvm_xengine.solvers.indexed import ANYWHERE, NONE, NOWHERE, IndexedProblem

_ROUNDING = 1e-7
"""By how much a bound is lowered for the tolerances of the linear program."""
_REPEATS = 8.0
"""No op runs and nothing is copied over one link more often than this, as far as rounding goes."""


@dataclass(frozen=True)
class Potential:
    """A bound, linear in the state.

    Attributes
    ----------
    constant
        Infinite where no schedule exists at all.
    needed
        Added for each op that is still needed, shape (n,).
    there
        Taken off for each tensor on each device, shape (D, J).
    """

    constant: float
    needed: NDArray[np.float64]
    there: NDArray[np.float64]


class Rest:
    """The linear program of the rest of a schedule, solved for the start with some changes."""

    def __init__(self, indexed: IndexedProblem) -> None:
        self.p = p = indexed
        devices = range(p.device_count)
        self.run = {(d, i): v for v, (d, i) in enumerate(np.argwhere(p.can_run.T).tolist())}
        pairs = [
            (a, b, j) for a in devices for b in devices if a != b for j in range(p.tensor_count)
        ]
        self.copy = {key: len(self.run) + v for v, key in enumerate(pairs)}
        self._entries: list[tuple[int, int, float]] = []
        self._lower: list[float] = []
        self._there: list[tuple[int, int, int]] = []
        self._write()
        weights = [p.compute_value[i, d] for d, i in self.run]
        self.weights = np.array(weights + [p.transfer_value[key] for key in self.copy])
        rows, columns, values = (np.array(axis) for axis in zip(*self._entries, strict=True))
        size = (len(self._lower), len(self.weights))
        self.matrix = coo_matrix((values, (rows, columns)), size).tocsr()
        self.lower = np.array(self._lower)
        self.there = np.array(self._there, np.int64).reshape(-1, 3)

    def potential(
        self, *, not_run: Iterable[tuple[int, int]] = (), free: Iterable[tuple[int, int, int]] = ()
    ) -> Potential:
        """The best bound at the start when the (d, i) of `not_run` do not run, and the copies
        (a, b, j) of `free` cost nothing.
        """
        p = self.p
        weights = self.weights.copy()
        weights[[self.copy[key] for key in free]] = 0.0
        upper = np.full(len(weights), np.inf)
        upper[[self.run[key] for key in not_run if key in self.run]] = 0.0
        answer = self._solve(weights, np.zeros_like(upper), upper)
        needed, taken = np.zeros(p.op_count), np.zeros((p.device_count, p.tensor_count))
        if answer.status != 0:
            constant = np.inf if answer.status == 2 else 0.0
            return Potential(constant, needed, taken)
        row, device, tensor = self.there.T
        dual = np.maximum(-answer.ineqlin.marginals, 0.0)
        reduced = np.minimum(weights - self.matrix.T @ dual, 0.0)
        constant = float(dual @ self.lower + _REPEATS * reduced[upper > 0.0].sum())
        np.add.at(taken, (device, tensor), dual[row])
        return Potential(constant, dual[: p.op_count], taken)

    def least_with(self, device: int, op: int) -> float:
        """What every schedule that runs `op` on `device` costs at least; infinite if none does."""
        if (device, op) not in self.run:
            return np.inf
        lower = np.zeros_like(self.weights)
        lower[self.run[device, op]] = 1.0
        answer = self._solve(self.weights, lower, np.full_like(lower, np.inf))
        if answer.status == 2:
            return np.inf
        return float(answer.fun) * (1.0 - _ROUNDING) if answer.status == 0 else 0.0

    def _solve(
        self, weights: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]
    ) -> OptimizeResult:
        row, device, tensor = self.there.T
        right = self.lower.copy()
        np.subtract.at(right, row, self.p.at_home[device, tensor])
        right[: self.p.op_count] += 1.0
        bounds = np.column_stack([lower, upper])
        return linprog(weights, A_ub=-self.matrix, b_ub=-right, bounds=bounds, method="highs-ds")

    def _write(self) -> None:
        p = self.p
        devices = range(p.device_count)
        for i in range(p.op_count):
            self._row([(self.run[d, i], 1.0) for d in devices if (d, i) in self.run])
        for (d, i), column in self.run.items():
            for j in p.reads[i]:
                self._row([(column, -1.0), *self._arrives(d, j)], at=(d, j))
        for (a, b, j), column in self.copy.items():
            self._row([(column, -1.0), *self._arrives(a, j, but_from=b)], at=(a, j))
            old = int(p.update_of[j])
            if old >= 0 and p.home[old] == b:
                self._row([(column, -1.0), *self._arrives(b, old)], at=(b, old))
        for j, end in enumerate(p.must_end_on.tolist()):
            if end not in (ANYWHERE, NOWHERE):  # the op of an output that is nowhere is needed
                self._row(self._arrives(end, j), at=(end, j), lower=1.0)

    def _arrives(self, d: int, j: int, *, but_from: int = NONE) -> list[tuple[int, float]]:
        terms = [
            (self.copy[a, d, j], 1.0) for a in range(self.p.device_count) if a not in (d, but_from)
        ]
        producer = int(self.p.producer[j])
        if (d, producer) in self.run:
            terms.append((self.run[d, producer], 1.0))
        return terms

    def _row(
        self,
        terms: list[tuple[int, float]],
        *,
        at: tuple[int, int] | None = None,
        lower: float = 0.0,
    ) -> None:
        """Terms, and whether the tensor of `at` is there, are at least `lower`."""
        row = len(self._lower)
        self._entries += [(row, column, value) for column, value in terms]
        self._lower.append(lower)
        if at is not None:
            self._there.append((row, *at))
