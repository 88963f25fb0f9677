"""Making leaner forms of a step keeps the time limit, on a clock that the test turns."""

from __future__ import annotations

from typing import cast

import pytest

import tvm_xengine as xe
from tests.planning.turned_time import TurnedTime
from tvm_xengine.compiler import plan as planning
from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.lean import forms
from tvm_xengine.compiler.plan import plan_costed
from tvm_xengine.compiler.plan_kernels import PlannedStep
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.session.stages.problem import StepProblem
from tvm_xengine.solvers.result import Limits, Objective

_CUTTING_S = 2.0
"""For each slice, of a step that is said to be so large."""


@pytest.fixture(scope="module")
def problem() -> StepProblem:
    lowered = xe.lower(xe.training_step("mlp", batch_size=8), xe.processor())
    return xe.make_problem(lowered, costs="roofline").with_budget_ratio(0.5)


@pytest.fixture(scope="module")
def planned(problem: StepProblem) -> PlannedStep:
    """Of the whole batch, where there is room."""
    return xe.plan(problem.with_budget_ratio(1.0), time_limit_s=0.5).planned


@pytest.fixture
def turned(problem: StepProblem, monkeypatch: pytest.MonkeyPatch) -> TurnedTime:
    """Time in which each slice takes as said and a plan of any cost, of which there is none, all it may."""
    turned, cut = TurnedTime(), forms.costed_in_slices

    def slowly_cut(costed, parts, stores, reporter):  # type: ignore[no-untyped-def]
        turned.at_s += _CUTTING_S * parts
        return cut(costed, parts, stores, reporter)

    def none(*_given: object, processor_s: float, clock: object) -> None:
        turned.at_s += processor_s

    monkeypatch.setattr(forms, "costed_in_slices", slowly_cut)
    monkeypatch.setattr(forms, "any_plan", none)
    ops = len(problem.costed.offered.extraction.graph.ops)
    monkeypatch.setattr(forms, "_CUT_S_PER_OP", _CUTTING_S / ops)
    monkeypatch.setattr(forms, "_CUT_S_PER_KERNEL", 0.0)
    return turned


@pytest.mark.parametrize("limit_s", [1.0, 5.0, 20.0])
def test_forms_are_looked_at_within_a_tenth_and_two_seconds(
    limit_s: float, problem: StepProblem, turned: TurnedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(_costed: object, options: PlanOptions, *_rest: object) -> None:
        turned.at_s += options.limits.time_limit_s * options.limits.give_up_share
        raise NoScheduleError("no schedule")

    monkeypatch.setattr(planning, "plan_kernels", nothing)
    stores = problem.lowered.stores
    with pytest.raises(NoScheduleError, match="no time to try all slices"):
        plan_costed(
            problem.costed, PlanOptions(limits=Limits(limit_s, clock=turned)), stores, Reporter()
        )
    assert turned.at_s <= 1.1 * limit_s + 2


@pytest.mark.parametrize(("share", "looks"), [(0.5, True), (1.0, False), (1.1, False)])
def test_no_other_form_is_begun_when_the_limit_is_over(
    share: float,
    looks: bool,
    planned: PlannedStep,
    problem: StepProblem,
    turned: TurnedTime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    def whole(*_given: object) -> PlannedStep:
        turned.at_s += share * 20.0
        return planned

    monkeypatch.setattr(planning, "plan_kernels", whole)
    monkeypatch.setattr(planning, "planned_forms", lambda *_given: asked.append(True) or [])
    stores = problem.lowered.stores
    costed = problem.with_budget_ratio(1.0).costed
    plan_costed(costed, PlanOptions(limits=Limits(20.0, clock=turned)), stores, Reporter())
    assert bool(asked) == looks


def test_time_for_measuring_is_not_taken_from_the_limit(
    problem: StepProblem, turned: TurnedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, asked = problem.lowered.stores, []

    def measured(_costed: object, options: PlanOptions, *_rest: object) -> None:
        turned.at_s += 100.0
        stores.measurements.measured_s += 100.0
        raise NoScheduleError("no schedule")

    def best_forms(*given: object, **_: object) -> list[forms.Form[CostedStep]]:
        asked.append(cast("forms.TimeLeft", given[-1]).left_s)
        return [forms.Form(problem.costed)]

    monkeypatch.setattr(planning, "plan_kernels", measured)
    monkeypatch.setattr(planning, "best_forms", best_forms)
    with pytest.raises(NoScheduleError, match=r"^no schedule$"):
        plan_costed(
            problem.costed, PlanOptions(limits=Limits(20.0, clock=turned)), stores, Reporter()
        )
    assert asked == [pytest.approx(0.8 * (1.1 * 20.0 + 2))]


def test_without_time_only_the_whole_batch_is_looked_at(problem: StepProblem) -> None:
    costed, stores = problem.costed, problem.lowered.stores
    time_left = forms.TimeLeft(0.0)
    every = forms.forms(costed, stores, Reporter(), time_left)
    found = forms.best_forms(every, Objective.COST, time_left)
    assert time_left.is_cut_short
    assert [form.step.lowered.slices for form in found] == [1]


@pytest.mark.parametrize("spare_s", [0.5, 60.0])
def test_slices_come_first_where_time_is_too_short_for_the_whole_batch(
    spare_s: float, problem: StepProblem
) -> None:
    """Any variants of the whole batch may come to nothing, and making them takes the time of the slices."""
    costed, stores = problem.with_budget_ratio(1.0).costed, problem.lowered.stores
    time_left = forms.TimeLeft(forms.cut_s(costed.offered, 2) + spare_s)
    every = forms.forms(costed, stores, Reporter(), time_left)
    assert (next(every).lowered.slices > 1) == (spare_s < 1.0)


def test_variants_of_a_whole_batch_that_has_a_plan_come_before_slices(
    problem: StepProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "variants_s", lambda _costed: 0.0)
    costed, stores = problem.with_budget_ratio(1.0).costed, problem.lowered.stores
    time_left = forms.TimeLeft(forms.cut_s(costed.offered, 2) + 0.5)
    every = forms.forms(costed, stores, Reporter(), time_left, has_plan=True)
    first_s = forms.any_plan_s(costed.problem) + forms.cut_s(costed.offered, 2)
    assert time_left.left_s < first_s and next(every).lowered.slices == 1


def test_without_time_for_variants_the_whole_batch_is_looked_at_as_it_is(
    problem: StepProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "costed_in_slices", lambda *_given: None)
    monkeypatch.setattr(forms, "variants_s", lambda _costed: 60.0)
    costed = problem.with_budget_ratio(1.0).costed
    time_left = forms.TimeLeft(10.0)
    assert [*forms.forms(costed, problem.lowered.stores, Reporter(), time_left)] == [costed]
