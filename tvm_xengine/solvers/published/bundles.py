"""A problem as the published stage models see it: one bundle of bytes for each op.

What they do not know is folded in: all resident state stays at home and is subtracted from the
budgets; an op that reads state elsewhere pays for copies of it each time and needs their bytes
as workspace; updates run at home; a reader of state is not repeated after its update.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import UnsupportedProblemError
from tvm_xengine.solvers.indexed import NOWHERE, IndexedProblem


@dataclass(frozen=True)
class Bundles:
    """Ops ``i`` with the bytes they make; devices ``d`` are those that may be used.

    Attributes
    ----------
    devices
        Positions of the devices in the problem.
    compute_value, workspace
        Of one run, copies of state included, shape (n, D); the value is infinite where it cannot
        run.
    size
        Units that the results of an op occupy together; updates occupy none, shape (n,).
    budget
        Units of memory left by the state at home, shape (D,).
    edges
        Pairs (u, v): v reads what u makes.
    last_run
        The last stage in which an op may run, shape (n,).
    survives
        Whether results must be there at the end, shape (n,).
    """

    indexed: IndexedProblem
    devices: tuple[int, ...]
    compute_value: NDArray[np.float64]
    workspace: NDArray[np.float64]
    size: NDArray[np.float64]
    budget: NDArray[np.float64]
    edges: tuple[tuple[int, int], ...]
    last_run: tuple[int, ...]
    survives: tuple[bool, ...]

    @property
    def op_count(self) -> int:
        """Number of ops, n."""
        return len(self.size)

    def inputs(self, v: int) -> list[int]:
        """The ops whose results op v reads."""
        return self._inputs[v]

    def users(self, u: int) -> list[int]:
        """The ops that read the results of op u."""
        return self._users[u]

    @cached_property
    def _inputs(self) -> list[list[int]]:
        return _others_of(((v, u) for u, v in self.edges), self.op_count)

    @cached_property
    def _users(self) -> list[list[int]]:
        return _others_of(self.edges, self.op_count)

    def passed(self, u: int, v: int) -> list[int]:
        """The tensors that op u makes and op v reads."""
        return [j for j in self.indexed.reads[v] if self.indexed.producer[j] == u]

    def transfer_value(self, u: int, v: int, d: int, e: int) -> float:
        """Value of copying from device d to e what v reads of u; infinite without a link."""
        a, b = self.devices[d], self.devices[e]
        return float(sum(self.indexed.transfer_value[a, b, j] for j in self.passed(u, v)))


def _others_of(pairs: Iterable[tuple[int, int]], count: int) -> list[list[int]]:
    """For each first of the pairs, its seconds."""
    found: list[list[int]] = [[] for _ in range(count)]
    for one, other in pairs:
        found[one].append(other)
    return found


def bundle(indexed: IndexedProblem, devices: tuple[int, ...]) -> Bundles:
    """The bundles of `indexed` on some of its devices."""
    n = indexed.op_count
    value = indexed.compute_value[:, devices].copy()
    workspace = indexed.workspace[:, devices].astype(np.float64)
    size = np.zeros(n)
    last_run = np.where(indexed.recomputable, n - 1, np.arange(n))
    for i in range(n):
        size[i] = sum(indexed.size[j] for j in indexed.makes[i] if indexed.update_of[j] < 0)
        for j in indexed.reads[i]:
            if indexed.home[j] >= 0:
                value[i] += [
                    0.0 if d == indexed.home[j] else indexed.transfer_value[indexed.home[j], d, j]
                    for d in devices
                ]
                workspace[i] += [0 if d == indexed.home[j] else indexed.size[j] for d in devices]
            if indexed.updated_by[j] >= 0:
                last_run[i] = min(last_run[i], indexed.updated_by[j])
        for j in indexed.makes[i]:
            if indexed.update_of[j] >= 0:
                home = int(indexed.home[indexed.update_of[j]])
                value[i] = [
                    w if d == home else np.inf for w, d in zip(value[i], devices, strict=True)
                ]
    at_home = [int(indexed.size[indexed.home == d].sum()) for d in devices]
    edges = {
        (int(indexed.producer[j]), v)
        for v, tensors in enumerate(indexed.reads)
        for j in tensors
        if indexed.producer[j] >= 0
    }
    return Bundles(
        indexed=indexed,
        devices=devices,
        compute_value=value,
        workspace=workspace,
        size=size,
        budget=(indexed.budget[list(devices)] - at_home).astype(np.float64),
        edges=tuple(sorted(edges)),
        last_run=tuple(last_run.tolist()),
        survives=tuple(
            any(indexed.must_end_on[j] != NOWHERE for j in tensors) for tensors in indexed.makes
        ),
    )


def best_single_device(indexed: IndexedProblem) -> int | None:
    """The device on which running every op once weighs least; None when none runs them all."""
    total = indexed.compute_value.sum(axis=0)
    for d in range(indexed.device_count):
        homes = np.unique(indexed.home[(indexed.home >= 0) & (indexed.update_of < 0)])
        if any(h != d and not np.isfinite(indexed.transfer_value[h, d]).all() for h in homes):
            total[d] = np.inf
    return int(total.argmin()) if np.isfinite(total.min()) else None


def bundle_on_one_device(indexed: IndexedProblem) -> Bundles:
    """The problem on its best device.

    Raises
    ------
    UnsupportedProblemError
        If no device can run every op, or updated state is at home on another one.
    """
    device = best_single_device(indexed)
    if device is None:
        raise UnsupportedProblemError(
            "the solver works on one device, and no device can run every op; use solver auto"
        )
    bundles = bundle(indexed, (device,))
    if not np.isfinite(bundles.compute_value).all():
        raise UnsupportedProblemError(
            "the solver works on one device, and some state that is updated is at home on another; use"
            " solver auto"
        )
    return bundles
