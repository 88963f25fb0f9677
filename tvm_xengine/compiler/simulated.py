"""Plan a step of many equal machines without them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.lean.slices import costed_in_shares
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.passes.slices.batch import batch_extent
from tvm_xengine.passes.slices.slice_kernels import JOIN_OF_SLICES, SUM_OF_SHARES
from tvm_xengine.planning.any_plan import any_plan
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.planning.shares.one_of_many import (
    NETWORK,
    Exchanges,
    one_of_many,
    places_of_one,
)
from tvm_xengine.planning.shares.order import placed_in_order
from tvm_xengine.scheduling.durations import format_us
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut
from tvm_xengine.scheduling.replicas.group import ReplicaGroup
from tvm_xengine.scheduling.sizes import format_bytes

_BUCKETS_BYTES = (0, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
"""Sizes of buckets that are tried: PyTorch's DDP has 25 MiB, of which this is the neighbourhood below."""


@dataclass(frozen=True)
class SimulatedPlan:
    """The plan of one machine of a group, and of the network between all.

    Attributes
    ----------
    bucket_bytes
        Gradients are added in buckets of this size.
    ops
        Of all machines together.
    """

    plan: Plan
    group: ReplicaGroup
    bucket_bytes: int

    @property
    def ops(self) -> int:
        """Ops of all machines together."""
        return self.group.count * len(self.plan.problem.graph.ops)

    @property
    def compute_us(self) -> float:
        """How long the busiest device of a machine computes."""
        busy = self.plan.simulation.busy_us
        return max(time for device, time in busy.items() if device != NETWORK)

    @property
    def network_us(self) -> float:
        """How long the network is busy."""
        return self.plan.simulation.busy_us.get(NETWORK, 0.0)


def plan_one_of_many(
    costed: CostedStep,
    group: ReplicaGroup,
    options: PlanOptions,
    stores: Stores,
    reporter: Reporter,
) -> SimulatedPlan:
    """Plan what each machine of a group does, all the same at the same time.

    Parameters
    ----------
    costed
        The step of two machines, or, where the group has one, of that.

    Raises
    ------
    UnsupportedModelError
        If the step cannot be divided along its batch.
    NoScheduleError
        If no schedule fits the budgets.
    """
    if group.count == 1:
        return SimulatedPlan(_best([costed.problem], options, reporter)[1], group, 0)
    share = batch_extent(costed.offered.mod[costed.offered.func_name]) // 2
    cut = BatchCut.in_shares((share, share))
    made = costed_in_shares(costed, cut, stores, reporter)
    kernels, lowered = made.lowered.extraction.kernels, made.lowered
    exchanges = Exchanges(
        {op for op, kernel in kernels.items() if kernel.startswith(SUM_OF_SHARES)},
        {op for op, kernel in kernels.items() if kernel.startswith(JOIN_OF_SLICES)},
    )
    problems = [
        one_of_many(made.problem, lowered.share_of, exchanges, group, size)
        for size in _BUCKETS_BYTES
    ]
    number, plan = _best(problems, options, reporter)
    return SimulatedPlan(plan, group, _BUCKETS_BYTES[number])


def _best(problems: list[Problem], options: PlanOptions, reporter: Reporter) -> tuple[int, Plan]:
    """The plan of the problem whose first plan is best, and which one that is."""
    firsts: list[tuple[float, int, Plan]] = []
    for number, problem in enumerate(problems):
        places = places_of_one(problem, problem.platform.home)
        first = any_plan(
            placed_in_order(problem, places), options.objective, clock=options.limits.clock
        )
        if first is not None:
            firsts.append((options.objective.of(first.simulation), number, first))
    if not firsts:
        raise NoScheduleError("no schedule of a machine of the group was found within its budgets")
    _, number, first = min(firsts, key=lambda one: one[:2])
    reporter.status("solving")
    plan = plan_schedule(
        problems[number],
        options,
        lambda text: reporter.status(f"solving: {text}"),
        start=first.schedule,
    )
    reporter.status("")
    return number, plan


def saying_what_is_simulated(found: SimulatedPlan) -> Plan:
    """The plan with a sentence on the group."""
    group, result = found.group, found.plan.result
    size = found.bucket_bytes
    added = f"in buckets of {format_bytes(size)}" if size else "one by one"
    sentence = (
        f"simulated: {group.count} machines of {found.ops} ops in all do the same at the same time, and the"
        f" bound is for schedules in which they do; gradients are added {added}; of"
        f" {format_us(found.plan.simulation.makespan_us)} a machine computes for"
        f" {format_us(found.compute_us)}, and the network is busy for {format_us(found.network_us)}"
    )
    message = f"{result.message}; {sentence}" if result.message else sentence
    return replace(found.plan, result=replace(result, message=message))
