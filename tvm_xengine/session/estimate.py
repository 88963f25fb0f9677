"""Estimates of the memory of a training step, without running anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tvm_xengine.checks.arguments import checked
from tvm_xengine.compiler.costing.costed import CostedStep, cost_step
from tvm_xengine.compiler.lean.forms import LESS_RATIO, forms
from tvm_xengine.compiler.options import CostChoice
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.explain.categories import CATEGORIES, WORKSPACE, categories
from tvm_xengine.planning.any_plan import any_plan, any_plan_s
from tvm_xengine.planning.keep_all import keep_all_on
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.residency import trace_residency
from tvm_xengine.scheduling.schedule import Schedule, scratch_bytes
from tvm_xengine.scheduling.sizes import format_bytes, parse_bytes
from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.solvers.diagnosis import diagnose_from_home
from tvm_xengine.solvers.result import Limits
from tvm_xengine.solvers.working_set import working_sets

_ANY_GAP_RATIO = 0.99
"""The first schedule is good enough, because only its memory counts."""

_ASKED_S = 5.0
"""Time for a schedule in a budget that a person asks about, who can wait longer for a yes."""

_MORE = (1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5)
"""Budgets, times the bytes that a schedule needs, in which its address layout may fit."""

_FORMS_ASKED = 2
"""So many forms are searched for that budget: those with the smallest known schedules."""

_MOST_TRIES = 16
"""Batch sizes that are looked at; steps of an eighth and halves of them need fewer."""


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
        Smallest budget in which every run finds a plan; less may be possible, and `fits` looks for
        it. Devices that only store are used, others that compute are not.
    peak_bytes
        Live bytes by category at the peak of keep-all. Layout adds to their sum.
    least_bytes
        Below it no schedule exists, with any kernels that are offered and in any number of slices that
        is tried: one op alone needs so much, or the state does.
    """

    device: str
    batch_size: int
    keep_all_bytes: int
    smallest_bytes: int
    peak_bytes: Mapping[str, int]
    _of_batch: Callable[[int], Estimate] | None = field(default=None, repr=False, compare=False)
    _has_plan: Callable[[int], bool] | None = field(default=None, repr=False, compare=False)
    """Whether a search finds a plan within so many bytes, fewer than the smallest known budget."""
    least_bytes: int = 0

    @checked
    def fits(self, size: str | int) -> bool:
        """Whether a schedule is known that needs at most `size`, or is found within it now.

        Below `least_bytes` a no is proven. From there to `smallest_bytes` a search of some seconds
        answers: a yes may need as long a search again, and a no may be one that has not found it.
        """
        limit_bytes = parse_bytes(size)
        if limit_bytes >= self.smallest_bytes:
            return True
        return self._has_plan is not None and self._has_plan(limit_bytes)

    @checked
    def largest_batch(self, size: str | int) -> int:
        """The largest batch for which a schedule within `size` was found; 0 if not even one sample.

        Other batch sizes are estimated in turn, guided by the line through those that are known. All
        samples run at once: in slices a larger batch may fit, at the cost of time.

        Raises
        ------
        ValueError
            If the model has one batch size only, as an exported file does.
        """
        if self._of_batch is None:
            raise ValueError("the model comes with one batch size; give its PyTorch module instead")
        limit_bytes = parse_bytes(size)
        own = self._of_batch(self.batch_size)
        known = {self.batch_size: own.smallest_bytes}
        fits = own.fits(limit_bytes)
        fitting, beyond = (self.batch_size, None) if fits else (0, self.batch_size)
        for _ in range(_MOST_TRIES):
            if beyond is not None and beyond - fitting <= 1:
                break
            tried = _next_batch(known, limit_bytes, fitting, beyond)
            found = self._of_batch(tried)
            known[tried] = found.smallest_bytes
            if found.fits(limit_bytes):
                fitting = tried
            else:
                beyond = tried
        return fitting

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
    lowered: Lowered,
    of_batch: Callable[[int], Estimate] | None = None,
    *,
    in_slices: bool = True,
) -> Estimate:
    """The memory of a step lowered for one device that computes; its kernels are not compiled.

    Parameters
    ----------
    of_batch
        Estimates the step for another batch size.
    in_slices
        Whether to look at slices of the batch, too.
    """
    costed = cost_step(lowered.step, CostChoice.ROOFLINE, lowered.stores, lowered.reporter)
    device = lowered.platform.home
    problem, schedule = keep_all_on(costed.problem, device)
    keep_all = plan_arenas(problem, schedule).arena_bytes[device]
    known = _in_all_forms(costed, device, lowered, most=None if in_slices else 1)
    least_bytes = _least_of_all_forms([one.problem for one in known], device)
    known.sort(key=lambda one: one.live_bytes)
    found = (_laid_out(one.problem, device, one.live_bytes) for one in known)
    smallest_bytes = next((size for size in found if size is not None), keep_all)

    def has_plan(budget_bytes: int) -> bool:
        able = [one for one in known if one.least_bytes <= budget_bytes]
        for one in able[:_FORMS_ASKED]:
            tight = one.problem.with_budgets({device: budget_bytes})
            limits = Limits(time_limit_s=_ASKED_S, gap_ratio=_ANY_GAP_RATIO)
            try:
                plan_schedule(tight, PlanOptions(limits=limits))
            except NoScheduleError:
                continue
            return True
        return False

    return Estimate(
        device,
        lowered.training.source.training.batch_size,
        keep_all,
        min(keep_all, smallest_bytes),
        _peak_by_category(problem, schedule),
        of_batch,
        has_plan,
        least_bytes,
    )


@dataclass(frozen=True)
class _KnownForm:
    """A form of the step on one device.

    Attributes
    ----------
    least_bytes
        One op alone needs so much, or the state does.
    live_bytes
        Peak of the smallest known schedule, without what its layout adds; infinite where none is known.
    """

    problem: Problem
    least_bytes: int
    live_bytes: float


def _in_all_forms(
    costed: CostedStep, device: str, lowered: Lowered, most: int | None
) -> list[_KnownForm]:
    """The step with lean kernels, and in slices of the batch; of these forms the first `most`.

    There are no further forms once more slices do not need less.
    """
    known: list[_KnownForm] = []
    best_bytes = math.inf
    every = forms(costed, lowered.stores, lowered.reporter)
    for form in islice(every, most):
        problem = form.problem
        least_bytes = working_sets(problem).least_bytes()[device]
        live_bytes = _smallest_live_bytes(problem, device)
        known.append(_KnownForm(problem, least_bytes, live_bytes))
        if len(known) > 1 and live_bytes > LESS_RATIO * best_bytes:
            break
        best_bytes = min(best_bytes, live_bytes)
    return known


def _least_of_all_forms(problems: Sequence[Problem], device: str) -> int:
    """What no number of slices can do with less: an op that stays whole needs it, or the state."""
    whole, *in_slices = problems
    sets = working_sets(whole)
    if not in_slices:
        return sets.least_bytes()[device]
    kept = in_slices[0].graph.op
    needed = (size[device] for op, size in sets.op_bytes.items() if op in kept)
    return max(sets.home_bytes[device], *needed)


def smallest_budget(problem: Problem, device: str) -> int | None:
    """The smallest budget in which every run finds a plan."""
    return _laid_out(problem, device, _smallest_live_bytes(problem, device))


def _smallest_live_bytes(problem: Problem, device: str) -> float:
    working = diagnose_from_home(problem, [device]).working_budget_bytes
    return math.inf if working is None else working[device]


def _laid_out(problem: Problem, device: str, live_bytes: float) -> int | None:
    """The smallest budget with an address layout of a schedule that needs about `live_bytes`."""
    if math.isinf(live_bytes):
        return None

    def found_within(budget_bytes: int) -> Plan | None:
        # What the planner falls back on; it may take twice as long there.
        tight = problem.with_budgets({device: budget_bytes})
        return any_plan(tight, processor_s=any_plan_s(tight) / 2)

    for more in _MORE:
        if plan := found_within(budget := int(live_bytes * more)):
            # A budget of this arena may still make the search prefer schedules without a layout.
            arena_bytes = plan.arenas.arena_bytes[device]
            return arena_bytes if found_within(arena_bytes) else budget
    return None


def _peak_by_category(problem: Problem, schedule: Schedule) -> dict[str, int]:
    """Bytes that are live at the peak of a schedule on one device, by category."""
    residency = trace_residency(problem, schedule)
    workspace = [scratch_bytes(problem, step) for step in schedule.steps]
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
    """A batch size between those that are known to fit and not to fit.

    The line through the bytes of two sizes says which, as long as that is between. Then it is
    some percent off, because less than the smallest known schedule may do, or because kernels of
    other sizes are laid out otherwise: a step of an eighth finds the other end, and halves the rest.
    """
    guess = _on_the_line(known, limit_bytes)
    if beyond is None:
        return max(2 * fitting, 1) if guess is None else max(guess, fitting + 1 + fitting // 8)
    middle = (fitting + beyond) // 2
    if guess is None or not fitting < guess < beyond:
        is_above = guess is not None and guess >= beyond
        near = beyond - max(1, beyond // 8) if is_above else fitting + max(1, fitting // 8)
        return max(near, middle) if is_above else min(near, middle)
    return guess


def _on_the_line(known: Mapping[int, int], limit_bytes: int) -> int | None:
    """The batch that takes `limit_bytes` if bytes grow as between the smallest and largest known."""
    small, large = min(known), max(known)
    small_bytes, large_bytes = known[small], known[large]
    if small_bytes >= large_bytes:
        return None
    return int(large + (limit_bytes - large_bytes) * (large - small) / (large_bytes - small_bytes))
