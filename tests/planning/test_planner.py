import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings

from tests.scheduling.test_simulate import chain
from tests.solvers.samples.chains import training_chain
from tests.strategies import problems
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning import keep_all, planner, question
from tvm_xengine.planning.any_plan import any_plan
from tvm_xengine.planning.clock import Clock
from tvm_xengine.planning.keep_all import (
    budgets_for_ratio,
    budgets_for_ratios,
    keep_all_on,
    kept_bytes,
)
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.planning.streams import overlapped
from tvm_xengine.planning.streams.in_time import as_it_runs, in_streams
from tvm_xengine.scheduling.arena.plan import ArenaPlan, plan_arenas
from tvm_xengine.scheduling.graph import Op, OpGraph, Tensor
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, with_frees
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES, parse_bytes
from tvm_xengine.solvers.request import Proof, Request, conclude
from tvm_xengine.solvers.result import Limits, Objective, SolveResult, Status, StopReason

QUICK = PlanOptions(limits=Limits(time_limit_s=2.0))


def test_keeping_all_runs_each_op_once_on_one_device() -> None:
    problem, schedule = keep_all_on(chain(devices=2), "d1")
    result = simulate(problem, schedule)
    assert result.busy_us == {"d0": 0.0, "d1": 40.0}
    assert schedule.transfers == schedule.recomputed_ops == 0


def test_keeping_all_on_a_device_that_cannot_is_refused() -> None:
    problem = chain(devices=2)
    costs = {**problem.costs, "b": {"d1": problem.costs["b"]["d1"]}}
    with pytest.raises(ValueError, match=r"d0 cannot run \['b'\]"):
        keep_all_on(Problem(problem.graph, problem.platform, costs), "d0")


def test_the_budget_ratio_counts_from_the_resident_state() -> None:
    """State is 200 bytes, keeping all needs 408 (the arena of the chain)."""
    assert budgets_for_ratio(chain(devices=2), 0.5) == {"d0": 304, "d1": 304}
    assert budgets_for_ratio(chain(), 1.0) == {"d0": 408}
    with pytest.raises(ValueError, match=">= 0"):
        budgets_for_ratio(chain(), -0.1)


def test_keep_all_is_laid_out_once_for_all_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, laid_out = chain(devices=2), []
    alone = [budgets_for_ratio(problem, ratio) for ratio in (1.0, 0.5, 0.0)]
    plain = keep_all.plan_arenas

    def noted(alone: Problem, schedule: Schedule, **options: int) -> ArenaPlan:
        laid_out.append(options)
        return plain(alone, schedule, **options)

    monkeypatch.setattr(keep_all, "plan_arenas", noted)
    assert budgets_for_ratios(problem, (1.0, 0.5, 0.0)) == alone
    assert len(laid_out) == len(problem.platform.devices)


def test_a_ratio_of_a_long_step_is_known_as_soon_as_that_of_2000_ops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each item is looked past all others that are there, so that fewer are placed."""
    efforts: list[int] = []

    def noted(alone: Problem, schedule: Schedule, *, effort: int) -> ArenaPlan:
        efforts.append(effort)
        return plan_arenas(alone, schedule, effort=0)

    monkeypatch.setattr(keep_all, "plan_arenas", noted)
    for ops in (10, 2000, 8000):
        budgets_for_ratio(training_chain(ops // 2, 60), 0.5)
    assert efforts[:2] == pytest.approx([efforts[0], 4 * efforts[2]], rel=0.01)
    assert efforts[1] == pytest.approx(efforts[0], rel=0.01)


def test_at_ratio_one_keeping_all_fits() -> None:
    problem = chain()
    plan = plan_schedule(problem.with_budgets(budgets_for_ratio(problem, 1.0)), QUICK)
    assert plan.result.status is Status.OPTIMAL
    assert plan.simulation.cost_us == 40.0


@given(problem=problems())
def test_what_a_step_keeps_is_known_before_its_costs(problem: Problem) -> None:
    """To the byte where kernels need no scratch and every tensor is read."""
    assume(
        all(
            problem.graph.consumers[tensor.name]
            for tensor in problem.graph.bases
            if tensor.role.is_resident
        )
    )
    plain = {
        op: {
            device: replace(cost, workspace_bytes=0, variants={}) for device, cost in costs.items()
        }
        for op, costs in problem.costs.items()
    }
    platform = replace(problem.platform, alignment_bytes=1)
    problem = replace(problem, costs=plain, platform=platform)
    device = problem.platform.home
    if all(device in there for there in plain.values()):
        simulation = simulate(*keep_all_on(problem, device))
        assert kept_bytes(problem.graph) == simulation.peak_bytes[device]


def test_a_step_keeps_what_an_output_is_a_view_of() -> None:
    kept, view, last = Tensor("kept", 64), Tensor("view", 64, alias_of="kept"), Tensor("last", 32)
    ops = (Op("a", "k", (), ("kept",)), Op("b", "k", (), ("last",)))
    assert kept_bytes(OpGraph((kept, view, last), ops, outputs=("last", "view"))) == 96


def test_a_budget_below_the_working_set_names_what_would_work() -> None:
    with pytest.raises(NoScheduleError, match="infeasible") as caught:
        plan_schedule(chain(300), QUICK)
    message = str(caught.value)
    assert "--budget d0=300B" in message
    assert message.count("300") <= 2
    assert "{" not in message
    working = message.partition("these budgets work: --budget ")[2]
    device, _, size = working.partition("=")
    assert plan_schedule(chain(parse_bytes(size)), QUICK).problem.platform.device(device)


def test_an_interrupted_plan_has_the_best_schedule_so_far() -> None:
    stop = threading.Event()
    stop.set()
    plan = plan_schedule(training_chain(12, 80), QUICK, stop=stop)
    assert plan.result.stopped_by in (StopReason.INTERRUPTED, StopReason.PROOF)


@settings(max_examples=10)
@given(problems(max_ops=4))
def test_a_plans_arenas_fit_the_budgets(problem: Problem) -> None:
    try:
        plan = plan_schedule(problem, QUICK)
    except NoScheduleError:
        return
    again = plan_arenas(problem, plan.schedule)
    for device in problem.platform.devices:
        assert plan.arenas.arena_bytes[device.name] <= device.budget_bytes
        assert plan.simulation.peak_bytes[device.name] <= plan.arenas.arena_bytes[device.name]
        assert again.arena_bytes[device.name] >= plan.simulation.peak_bytes[device.name]
    assert plan.result.value is not None
    assert plan.result.bound <= plan.result.value * (1 + 1e-9)


@settings(max_examples=10)
@given(problems(max_ops=4))
def test_a_plan_is_never_worse_than_the_one_it_began_from(problem: Problem) -> None:
    try:
        before = plan_schedule(problem, PlanOptions(solver="greedy", limits=Limits(2.0)))
    except NoScheduleError:
        return
    # Greedy answers do not depend on the start, so only the planner can keep it.
    for solver in ("greedy", "auto"):
        options = PlanOptions(solver=solver, limits=Limits(2.0))
        after = plan_schedule(problem, options, start=before.schedule)
        assert after.simulation.cost_us <= before.simulation.cost_us * (1 + 1e-9)


@settings(max_examples=10)
@given(problems(max_ops=4))
def test_variants_never_make_a_step_slower(problem: Problem) -> None:
    usual = {
        op: {name: replace(cost, variants={}) for name, cost in there.items()}
        for op, there in problem.costs.items()
    }
    try:
        without = plan_schedule(replace(problem, costs=usual), QUICK)
    except NoScheduleError:
        return
    plan = plan_schedule(problem, QUICK, start=without.schedule)
    assert plan.simulation.cost_us <= without.simulation.cost_us * (1 + 1e-9)


@pytest.mark.parametrize("later", ["none", "worse"])
def test_the_cheapest_schedule_on_the_way_whose_layout_fits_is_a_floor(
    later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search goes from four repetitions to none; only with two and more of them the layout fits."""
    problem = chain(408)
    ops = [op.name for op in problem.graph.ops]

    def repeating(times: int) -> Schedule:
        return with_frees(problem, [Compute(op, "d0") for op in [ops[0]] * times + ops])

    def answered(schedule: Schedule | None, request: Request) -> SolveResult:
        found = conclude(problem, request, schedule, Proof(1.0), solver="auto (x)")
        return replace(found, stopped_by=StopReason.LIMIT)

    def first(_problem: object, *_given: object, **options: Any) -> SolveResult:
        for times in (4, 2, 3, 0):
            options["on_better"](simulate(problem, repeating(times)).cost_us, repeating(times))
        return answered(repeating(0), Request())

    def again(_problem: object, request: Request) -> SolveResult:
        return answered(None if later == "none" else repeating(5), request)

    def laid_out(_problem: Problem, schedule: Schedule, **options: Any) -> ArenaPlan:
        arenas = plan_arenas(problem, schedule, **options)
        more = 1024 * (len(schedule.computed) < len(ops) + 2)
        return replace(arenas, arena_bytes={"d0": 400 + more})

    monkeypatch.setattr(question, "solve", first)
    monkeypatch.setattr(question, "answer", again)
    monkeypatch.setattr(planner, "plan_arenas", laid_out)
    monkeypatch.setattr(question, "plan_arenas", laid_out)
    monkeypatch.setattr(question, "with_savings", lambda plan, _is_over: plan)
    plan = plan_schedule(problem, QUICK)
    assert plan.schedule == repeating(2)
    assert (plan.result.value, plan.result.bound) == (plan.simulation.cost_us, 1.0)


def test_a_message_names_no_budget_that_nobody_gave() -> None:
    problem = chain(300, devices=2)
    free = problem.with_budgets({"d0": 1, "d1": UNLIMITED_BYTES})
    with pytest.raises(NoScheduleError, match=r"--budget d0=1B;") as caught:
        plan_schedule(free, QUICK)
    assert "d1=" not in str(caught.value)


def test_a_solver_taken_for_a_short_time_is_named_behind_the_one_asked_for() -> None:
    problem, options = chain(1000), PlanOptions(limits=Limits(1.0))
    clock = Clock.shared(1.0, options.limits.clock)
    asked = question.Question(problem, options, None, None, threading.Event(), clock)
    assert asked.again(problem, 0.1, 1, None).solver == "auto (keep-all)"


def test_a_start_that_does_not_fit_is_no_plan() -> None:
    _, kept = keep_all_on(chain(devices=2), "d0")
    problem = chain(408, devices=2).with_budgets({"d0": 407})
    plan = plan_schedule(problem, QUICK, start=kept)
    assert plan.schedule != kept
    assert plan.arenas.arena_bytes["d0"] <= 407


def test_where_streams_of_the_best_schedule_wait_long_one_on_the_way_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, late_us = chain(1000, devices=2), 1e6
    begun = any_plan(problem, Objective.MAKESPAN)
    assert begun is not None
    options = replace(QUICK, objective=Objective.MAKESPAN, solver="local-search")
    in_turn = replace(begun, result=replace(begun.result, objective=Objective.MAKESPAN))

    def waiting(plan: Plan, **rest: Any) -> Plan:
        found = as_it_runs(plan, **rest)
        late = replace(found.simulation, makespan_us=late_us)
        return replace(found, schedule=keep_all_on(problem, "d1")[1], simulation=late)

    monkeypatch.setattr(planner, "as_it_runs", waiting)
    plan = plan_schedule(problem, options, start=begun.schedule)
    assert plan.step_us() <= in_streams(in_turn).step_us() < late_us
    assert plan.result.value == pytest.approx(plan.simulation.makespan_us)
    monkeypatch.setattr(overlapped, "_MOST_IN_STREAMS", 1)
    assert plan_schedule(problem, options, start=begun.schedule).step_us() < late_us


def test_where_streams_wait_a_schedule_is_looked_for_that_leaves_room_for_gaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every layout of the first schedule waits; another one is found under smaller budgets alone."""
    problem = chain(1000, devices=2)
    names = [op.name for op in problem.graph.ops]
    waits, other = (
        with_frees(problem, [Compute(name, "d0") for name in [*names[:again], *names]])
        for again in (0, 1)
    )
    asked: list[int] = []

    def answered(schedule: Schedule, request: Request) -> SolveResult:
        found = conclude(problem, request, schedule, Proof(1.0), solver="auto (x)")
        return replace(found, stopped_by=StopReason.LIMIT)

    def first(_problem: object, *_given: object, **_options: Any) -> SolveResult:
        return answered(waits, Request(Objective.MAKESPAN))

    def again(smaller: Problem, request: Request) -> SolveResult:
        asked.append(smaller.platform.device("d0").budget_bytes)
        return answered(other, request)

    def with_waits(plan: Plan, *_given: object, **_options: Any) -> Plan:
        more_us = 1e6 * (plan.schedule == waits)
        simulation = replace(plan.simulation, makespan_us=plan.simulation.makespan_us + more_us)
        return replace(plan, simulation=simulation)

    monkeypatch.setattr(question, "solve", first)
    monkeypatch.setattr(question, "answer", again)
    monkeypatch.setattr(overlapped, "in_streams", with_waits)
    monkeypatch.setattr(planner, "as_it_runs", with_waits)
    plan = plan_schedule(problem, replace(QUICK, objective=Objective.MAKESPAN))
    assert asked[0] < 1000
    assert plan.schedule == other
    assert (plan.result.value, plan.result.bound) == (plan.simulation.makespan_us, 1.0)
