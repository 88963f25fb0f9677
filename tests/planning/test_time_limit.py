"""A plan keeps its time limit whatever the arenas need, on a clock that the test turns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.planning.turned_time import TurnedTime
from tests.solvers.samples.chains import training_chain
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning import any_plan, clock, planner, question
from tvm_xengine.planning.messages import time_limit_message, time_limit_warning
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.scheduling.arena.plan import ArenaPlan, plan_arenas
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.result import Limits, SolveResult, StopReason
from tvm_xengine.solvers.solve import answer, solve


@pytest.mark.parametrize("give_up_share", [0.8, 1.0])
@pytest.mark.parametrize("limit_s", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("layout_s", [0.05, 0.25, 0.5, 1.0])
def test_layouts_that_never_fit_end_within_a_tenth_and_two_seconds(
    layout_s: float, limit_s: float, give_up_share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or soon after the share of the limit by which something else is tried."""
    problem, turned = training_chain(12, 60), TurnedTime()

    def too_large(
        asked: Problem,
        schedule: Schedule,
        *,
        effort: int,
        seed: int = 0,
        reserve_home: bool = False,
    ) -> ArenaPlan:
        turned.at_s += layout_s
        plan = plan_arenas(asked, schedule, effort=1000, seed=seed, reserve_home=reserve_home)
        return replace(
            plan, arena_bytes={name: size + 1000 for name, size in plan.arena_bytes.items()}
        )

    def answered(asked: Problem, request: Request) -> SolveResult:
        turned.at_s += request.limits.time_limit_s
        return answer(asked, replace(request, limits=Limits(0.2)))

    def greedy(asked: Problem, **how: Any) -> Schedule | None:
        turned.at_s += 0.1  # on a hundred ops
        return greedy_schedule(asked, **how)

    def solved(
        asked: Problem, *names: str | None, limits: Limits, **options: object
    ) -> SolveResult:
        turned.at_s += limits.time_limit_s
        return solve(asked, "greedy", limits=Limits(0.2), start=None)

    for module in (planner, question, any_plan):
        monkeypatch.setattr(module, "plan_arenas", too_large)
    monkeypatch.setattr(any_plan, "greedy_schedule", greedy)
    monkeypatch.setattr(question, "answer", answered)
    monkeypatch.setattr(question, "solve", solved)
    with pytest.raises(NoScheduleError, match=r"raise the budgets by cpu="):
        limits = Limits(limit_s, give_up_share=give_up_share, clock=turned)
        plan_schedule(problem, PlanOptions(limits=limits))
    after_s = 2.0 if give_up_share == 1 else 3 * clock.LEAST_SOLVE_S + 5 * layout_s
    assert turned.at_s <= (give_up_share if give_up_share < 1 else 1.1) * limit_s + after_s


def test_plans_for_one_answer_share_the_grace() -> None:
    turned = TurnedTime()
    whole = clock.Clock.shared(2.0, turned)
    turned.at_s = 3.0
    part = clock.Clock(2.0, whole.over_at_s, turned)
    assert part.left_s == 2.0
    assert not part.is_over and part.until_over_s == pytest.approx(0.1)
    assert not part.may_retry
    turned.at_s = 3.2
    assert part.is_over and part.is_late


def test_state_comes_to_lie_at_the_bottom_though_a_busy_machine_took_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, turned = training_chain(12, 60), TurnedTime()
    reserved: list[Schedule] = []

    def laid_out(
        asked: Problem,
        schedule: Schedule,
        *,
        effort: int,
        seed: int = 0,
        reserve_home: bool = False,
    ) -> ArenaPlan:
        plan = plan_arenas(asked, schedule, effort=1000, seed=seed, reserve_home=reserve_home)
        if not reserve_home:
            return plan
        reserved.append(schedule)
        size = 61 if len(reserved) == 1 else 60
        return replace(plan, arena_bytes=dict.fromkeys(plan.arena_bytes, size))

    def solved(
        asked: Problem, *names: str | None, limits: Limits, **options: object
    ) -> SolveResult:
        turned.at_s += 10 * limits.time_limit_s
        return solve(asked, "greedy", limits=Limits(0.2), start=None)

    monkeypatch.setattr(planner, "plan_arenas", laid_out)
    monkeypatch.setattr(question, "plan_arenas", laid_out)
    monkeypatch.setattr(question, "solve", solved)
    plan = plan_schedule(
        problem, PlanOptions(limits=Limits(1.0, clock=turned)), prefer_reserved_home=True
    )
    assert len(reserved) == 2
    assert plan.schedule == reserved[1]


def test_a_plan_that_the_limit_ended_says_how_far_it_may_be_from_the_optimum() -> None:
    problem = training_chain(6, 60)
    proven = solve(problem)
    assert time_limit_message(proven) == time_limit_warning(proven) == ""
    assert proven.value is not None
    stopped = replace(proven, bound=proven.value * 0.75, stopped_by=StopReason.LIMIT)
    assert "at most 25.0 % from the optimum; a longer one" in time_limit_warning(stopped)
    near = replace(stopped, value=1.0, bound=1 - 1e-4)
    assert "at most 0.01 % from the optimum" in time_limit_warning(near)
    assert "a longer one" in time_limit_message(near)
    assert "%" not in time_limit_message(near)
    unproven = replace(stopped, bound=0.0)
    assert "nothing is proven of the plan; a longer one" in time_limit_warning(unproven)


def test_a_busy_machine_that_took_all_the_time_leaves_a_plan_of_any_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, turned = training_chain(12, 60), TurnedTime()

    def nothing(asked: Problem, *_: str | None, limits: Limits, **__: object) -> SolveResult:
        turned.at_s += 10 * limits.time_limit_s
        found = solve(asked, "keep-all", limits=Limits(0.2))
        return replace(found, stopped_by=StopReason.LIMIT)

    monkeypatch.setattr(question, "solve", nothing)
    plan = plan_schedule(problem, PlanOptions(limits=Limits(1.0, clock=turned)))
    assert plan.arenas.arena_bytes["cpu"] <= 60
    with pytest.raises(NoScheduleError):  # other plans wait for the time
        plan_schedule(problem, PlanOptions(limits=Limits(1.0, clock=turned), over_at_s=turned.at_s))
