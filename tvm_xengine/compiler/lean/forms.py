"""The forms of a step that need less memory: with lean kernels, and in slices of the batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.lean.kernels import with_lean_kernels
from tvm_xengine.compiler.lean.slices import costed_in_slices, slicings
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.planning.any_plan import any_plan
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.working_set import working_sets

LESS_RATIO = 0.9
"""Where only memory counts, slices that save less than a tenth are no reason to look at more of them."""


@dataclass(frozen=True)
class Form:
    """One form of a step.

    Attributes
    ----------
    fast, lean
        With the fastest kernels, and with those that run in this form.
    plan
        A plan of any cost for the latter; None where none is known.
    """

    fast: CostedStep
    lean: CostedStep
    plan: Plan | None = None


def forms(
    costed: CostedStep, stores: Stores, reporter: Reporter, *, only_lean: bool = False
) -> Iterator[Form]:
    """The step with lean kernels, then in more and more slices, with fast and with lean ones.

    Slices need less for activations only, so there are none where a budget has no room for the state.
    """
    lean = with_lean_kernels(costed, stores, reporter)
    yield Form(costed, lean)
    home_bytes = working_sets(costed.problem).home_bytes
    if any(home_bytes[one.name] > one.budget_bytes for one in costed.problem.platform.devices):
        return
    for parts in slicings(costed.offered):
        reporter.status(f"dividing the batch in {parts} slices")
        sliced = costed_in_slices(costed, parts, stores, reporter)
        reporter.status("")
        if sliced is None:
            return
        if not only_lean:
            yield Form(sliced, sliced)
        lean = with_lean_kernels(sliced, stores, reporter)
        if only_lean or lean is not sliced:
            yield Form(sliced, lean)


def cheapest_form(
    costed: CostedStep, objective: Objective, stores: Stores, reporter: Reporter
) -> Form:
    """Of the forms for which a plan is found the one whose plan is best.

    More slices are not looked at once the fast kernels fit in some, since each slice more costs time.
    Where no plan is found it is the form whose largest op needs the smallest share of a budget.
    """
    found: list[Form] = []
    without: list[tuple[float, Form]] = []
    for form in forms(costed, stores, reporter):
        problem = form.lean.problem
        share, is_infeasible = largest_share(problem), working_sets(problem).is_infeasible()
        plan = None if is_infeasible else any_plan(problem, objective)
        if plan is None:
            without.append((share, form))
            continue
        found.append(Form(form.fast, form.lean, plan))
        if form.lean is form.fast and form.fast is not costed:
            break
    if found:
        return min(found, key=lambda form: _value(form, objective))
    return min(without, key=lambda pair: pair[0])[1]


def largest_share(problem: Problem) -> float:
    """The largest share of a budget that ops which can run nowhere else need alone, or the state."""
    budgets = {device.name: device.budget_bytes for device in problem.platform.devices}
    least_bytes = working_sets(problem).least_bytes()
    return max((size / budgets[device] for device, size in least_bytes.items()), default=0.0)


def _value(form: Form, objective: Objective) -> float:
    assert form.plan is not None
    return objective.of(form.plan.simulation)
