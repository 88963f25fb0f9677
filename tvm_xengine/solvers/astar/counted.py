"""Chooses tensors whose bytes are counted, so that small tensors do not multiply the states.

What fits when only some sizes are counted is more than what fits, so its optimum is a bound. Where
a schedule found this way exceeds a budget, the tensors that cause the excess are counted as
well (counterexample-guided abstraction refinement, Clarke et al., CAV 2000).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.residency import Residency, trace_residency
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import live_bytes
from tvm_xengine.solvers.astar.view import StateView
from tvm_xengine.solvers.indexed import IndexedProblem

Counted = NDArray[np.bool_]
"""Whether the bytes of each tensor are counted, shape (J,)."""


def counted_first(view: StateView, share: float) -> Counted:
    """The tensors that take at least `share` of the smallest budget that is short."""
    if not view.is_capacitated.any():
        return np.ones(view.size.size, np.bool_)
    return np.asarray(view.size >= share * view.budget[view.is_capacitated].min(), np.bool_)


def with_counted(view: StateView, counted: Counted) -> StateView:
    """The view in which all other tensors take no memory."""
    size = np.where(counted, view.size, 0)
    return view._replace(size=size, by_size=np.argsort(-size, kind="stable"))


def to_count(
    indexed: IndexedProblem, counted: Counted, schedule: Schedule, factor: float
) -> Counted:
    """What must be counted too, none where `schedule` fits: at every step that needs too much the
    largest tensors there, until they take `factor` times what is missing.
    """
    problem = indexed.problem
    residency = trace_residency(problem, schedule)
    more = np.zeros_like(counted)
    for device, series in live_bytes(problem, schedule, residency).items():
        budget_bytes = problem.platform.device(device).budget_bytes
        for position, bytes_there in enumerate(series):
            if bytes_there <= budget_bytes:
                continue
            missing = factor * (bytes_there - budget_bytes) / indexed.unit_bytes
            there = _tensors_there(indexed, residency, device, position)
            missing -= indexed.size[[j for j in there if more[j]]].sum()
            for j in sorted(there, key=lambda j: -indexed.size[j]):
                if missing > 0 and not (counted[j] or more[j]):
                    more[j] = True
                    missing -= indexed.size[j]
    results = np.flatnonzero(indexed.update_of >= 0)
    more[results] |= more[indexed.update_of[results]]  # they take over the bytes of the state
    return np.asarray(more & ~counted, np.bool_)


def _tensors_there(
    indexed: IndexedProblem, residency: Residency, device: str, position: int
) -> list[int]:
    index = indexed.tensor_index
    return [
        index[instance.tensor]
        for instance in residency.instances
        if instance.device == device
        and instance.tensor in index
        and max(instance.start, 0) <= position <= instance.end
    ]
