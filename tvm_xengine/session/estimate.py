"""Estimates of the memory of a training step, without running anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tvm_xengine.checks.arguments import checked
from tvm_xengine.compiler.costed import cost_step
from tvm_xengine.compiler.lean_kernels import with_lean_kernels
from tvm_xengine.compiler.options import CostChoice
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.explain.categories import CATEGORIES, WORKSPACE, categories
from tvm_xengine.planning.keep_all import keep_all_on
from tvm_xengine.planning.planner import Plan, PlanOptions, plan_schedule
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.residency import trace_residency
from tvm_xengine.scheduling.schedule import Compute, Schedule
from tvm_xengine.scheduling.sizes import format_bytes, parse_bytes
from tvm_xengine.session.stages import Lowered
from tvm_xengine.solvers.presolve import without_device
from tvm_xengine.solvers.result import Limits
from tvm_xengine.solvers.solve import solve

_SEARCH_S = 1.0
"""Time for a schedule in little memory; greedy ones come within it, and only memory counts."""

_ANY_GAP_RATIO = 0.99
"""The first schedule is good enough, because only its memory counts."""

_MORE = (1.0, 1.02, 1.05, 1.1, 1.2)
"""Budgets, times the bytes that a schedule needs, in which its address layout may fit."""

_MOST_TRIES = 12
"""Batch sizes that are looked at; bisection between neighbours of the line needs fewer."""


@dataclass(frozen=True)
class Estimate:
    """Memory of a training step on its home device.

    Attributes
    ----------
    device
        Name of the home device.
    batch_size
        Leading dimension of the first input.
    keep_all_bytes
        Arena of the step that keeps every tensor until its last use.
    smallest_bytes
        Smallest budget in which a plan was found; less may be possible. Devices that only store
        are used, others that compute are not.
    peak_bytes
        Live bytes by category at the peak of keep-all. Layout adds to their sum.
    """

    device: str
    batch_size: int
    keep_all_bytes: int
    smallest_bytes: int
    peak_bytes: Mapping[str, int]
    _of_batch: Callable[[int], Estimate] | None = field(default=None, repr=False, compare=False)

    @checked
    def fits(self, size: str | int) -> bool:
        """Whether a schedule is known that needs at most `size`."""
        return self.smallest_bytes <= parse_bytes(size)

    @checked
    def largest_batch(self, size: str | int) -> int:
        """The largest batch for which a schedule within `size` was found; 0 if not even one sample.

        Other batch sizes are estimated in turn, guided by the line through those that are known.

        Raises
        ------
        ValueError
            If the model has one batch size only, as an exported file does.
        """
        if self._of_batch is None:
            raise ValueError("the model comes with one batch size; give its PyTorch module instead")
        limit, known = parse_bytes(size), {self.batch_size: self.smallest_bytes}
        for _ in range(_MOST_TRIES):
            fitting = max((n for n, need in known.items() if need <= limit), default=0)
            beyond = min((n for n, need in known.items() if need > limit), default=None)
            if beyond is not None and beyond - fitting <= 1:
                break
            tried = _next_batch(known, limit, fitting, beyond)
            known[tried] = self._of_batch(tried).smallest_bytes
        return max((n for n, need in known.items() if need <= limit), default=0)

    def report(self) -> str:
        """The figures in lines."""
        lines = [
            f"batch of {self.batch_size} on {self.device}:"
            f" {format_bytes(self.keep_all_bytes)} keeping all tensors,"
            f" {format_bytes(self.smallest_bytes)} in the smallest known schedule"
        ]
        lines += [f"  {name}: {format_bytes(size)}" for name, size in self.peak_bytes.items()]
        return "\n".join(lines)


def estimate_lowered(
    lowered: Lowered, of_batch: Callable[[int], Estimate] | None = None
) -> Estimate:
    """The memory of a lowered step; its kernels are neither compiled nor run."""
    costed = cost_step(lowered.step, CostChoice.ROOFLINE, lowered.stores, lowered.reporter)
    names = [device.name for device in lowered.platform.computing]
    home = lowered.platform.home
    device = home if home in names else names[0]
    problem, schedule = keep_all_on(costed.problem, device)
    keep_all = plan_arenas(problem, schedule).arena_bytes[device]
    lean = with_lean_kernels(costed, lowered.stores, lowered.reporter)
    smallest = _smallest_budget(_of_one_computing_device(lean.problem, device), device)
    return Estimate(
        device,
        lowered.training.source.training.batch_size,
        keep_all,
        keep_all if smallest is None else min(keep_all, smallest),
        _peak_by_category(problem, schedule),
        of_batch,
    )


def _of_one_computing_device(problem: Problem, device: str) -> Problem:
    """The problem whose ops run on `device`, which holds the state; storage is left."""
    problem = replace(problem, home=dict.fromkeys(problem.home, device))
    for other in problem.platform.computing:
        if other.name != device:
            problem = without_device(problem, other.name)
    return problem


def _smallest_budget(problem: Problem, device: str) -> int | None:
    """The smallest budget in which a short search finds a plan."""
    room = problem.platform.alignment_bytes
    tight = problem.with_budgets({device: problem.home_bytes[device] + room})
    limits = Limits(time_limit_s=_SEARCH_S, gap_ratio=_ANY_GAP_RATIO)
    answer = solve(tight, limits=limits)
    if answer.diagnosis is None or answer.diagnosis.working_budget_bytes is None:
        return None
    needed = answer.diagnosis.working_budget_bytes[device]
    for more in _MORE:
        if plan := _plan_within(problem, device, budget := int(needed * more)):
            # A budget of this arena may still make the search prefer schedules without a layout.
            arena_bytes = plan.arenas.arena_bytes[device]
            return arena_bytes if _plan_within(problem, device, arena_bytes) else budget
    return None


def _plan_within(problem: Problem, device: str, budget_bytes: int) -> Plan | None:
    # The planner falls back on this solver, which finds the same in every run.
    options = PlanOptions("greedy", limits=Limits(time_limit_s=_SEARCH_S, gap_ratio=_ANY_GAP_RATIO))
    try:
        return plan_schedule(problem.with_budgets({device: budget_bytes}), options)
    except NoScheduleError:
        return None


def _peak_by_category(problem: Problem, schedule: Schedule) -> dict[str, int]:
    """Bytes that are live at the peak of a schedule on one device, by category."""
    residency = trace_residency(problem, schedule)
    workspace = [
        problem.costs[step.op][step.device].workspace_bytes if isinstance(step, Compute) else 0
        for step in schedule.steps
    ]
    live = list(workspace)
    for instance in residency.instances:
        for position in range(max(instance.start, 0), min(instance.end + 1, len(live))):
            live[position] += instance.size_bytes
    peak = max(range(len(live)), key=live.__getitem__)
    category = categories(problem.graph)
    totals = dict.fromkeys(CATEGORIES, 0)
    for instance in residency.instances:
        if instance.start <= peak <= instance.end:
            totals[category[instance.tensor]] += instance.size_bytes
    totals[WORKSPACE] = workspace[peak]
    return totals


def _next_batch(
    known: Mapping[int, int], limit_bytes: int, fitting: int, beyond: int | None
) -> int:
    """A batch size between those that are known to fit and not to fit."""
    low, high = fitting + 1, (beyond - 1) if beyond is not None else 2 * max(known)
    if len(known) > 1:
        (small, small_bytes), *_, (large, large_bytes) = sorted(known.items())
        slope = (large_bytes - small_bytes) / (large - small)
        if slope > 0:
            guess = int(large + (limit_bytes - large_bytes) / slope)
            # Without an upper end the line may be trusted further than by doubling.
            return max(low, guess if beyond is None else min(guess, high))
    return max(low, (low + high) // 2 if beyond is not None else high)
