"""What more memory can buy at most, from the duals of a proven bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tvm_xengine.errors import SolverUnavailableError
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions
from tvm_xengine.solvers.backends.process import run_backend
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.relaxation.memory_duals import memory_duals
from tvm_xengine.solvers.result import Scope, SolveResult, Status

_MIB = 2**20
_SAME_RATIO = 1e-6
"""Of the objective. A smaller price for all of a budget is the tolerance of the simplex method."""


@dataclass(frozen=True)
class BoundPrice:
    """The proven bound of a linear relaxation as a function of the budget of one device.

    No schedule whose budget there is ``budget_bytes + x`` is better than ``bound - x * per_mib / MiB``,
    whatever the sign of ``x``.

    Attributes
    ----------
    bound
        At the planned budget, in the unit of the objective.
    per_mib
        By how much it falls with one more MiB, in the unit of the objective.
    """

    device: str
    budget_bytes: int
    bound: float
    per_mib: float

    def at(self, budget_bytes: int) -> float:
        """The bound for another budget of the device."""
        return max(0.0, self.bound - (budget_bytes - self.budget_bytes) * self.per_mib / _MIB)


def bound_prices(plan: Plan, time_limit_s: float) -> Mapping[str, BoundPrice]:
    """The price of each device whose memory is limited; empty where none is known in time."""
    limited = [d for d in plan.problem.platform.devices if d.budget_bytes < UNLIMITED_BYTES]
    if not limited:
        return {}
    try:
        duals = memory_duals(
            plan.problem,
            plan.result.objective,
            plan.schedule,
            run=partial(_solved, "highs"),
            limit_s=time_limit_s,
        )
    except SolverUnavailableError:
        return {}
    if duals is None:
        return {}
    value = plan.result.objective.of(plan.simulation)
    found = {}
    for device in limited:
        per_mib = duals.per_byte[device.name] * _MIB
        if per_mib * device.budget_bytes / _MIB <= _SAME_RATIO * value:
            per_mib = 0.0
        found[device.name] = BoundPrice(
            device.name, device.budget_bytes, min(duals.bound, value), per_mib
        )
    return found


def with_better_bound(result: SolveResult, prices: Iterable[BoundPrice]) -> SolveResult:
    """The result with the bound of the relaxation where that says more, which is of every schedule."""
    proven = max((price.bound for price in prices), default=0.0)
    is_narrower = result.scope is not Scope.EVERY_SCHEDULE and result.status is not Status.OPTIMAL
    if proven <= 0 or (proven <= result.bound and not is_narrower):
        return result
    return replace(
        result, bound=max(proven, 0.0 if is_narrower else result.bound), scope=Scope.EVERY_SCHEDULE
    )


def _solved(backend: str, program: Program, options: BackendOptions, floor: float) -> Answer:
    return run_backend(backend, program, options, floor=floor)
