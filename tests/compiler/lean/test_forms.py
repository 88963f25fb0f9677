"""Where a budget has no room for the whole batch, the step runs in slices of it."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

import tvm_xengine as xe
from tests.kernels.onednn.onednn_twins import needs_products
from tvm_xengine.compiler import plan as planning
from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.lean import better_form as better_forms
from tvm_xengine.compiler.lean.forms import Form, in_order_of_promise
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.plan_kernels import PlannedStep, plan_kernels
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.report.tables import print_report
from tvm_xengine.scheduling.schedule import Compute, Schedule, write_schedule
from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.session.stages.plan import StepPlan
from tvm_xengine.session.stages.problem import StepProblem
from tvm_xengine.solvers.result import Limits, StopReason

BATCH = 8
RATIO = 0.37
"""Of what keep-all needs beside the state; no kernel for the whole batch fits, all for a half do."""
AMPLE_RATIO = 0.7
WORK = 4.0
"""Units of work, of about a second each."""


@pytest.fixture(scope="module")
def lowered() -> Lowered:
    return xe.lower(xe.training_step("lenet", batch_size=BATCH), xe.processor())


@pytest.fixture(scope="module")
def costed(lowered: Lowered) -> CostedStep:
    return xe.make_problem(lowered, costs="roofline").costed


@pytest.fixture(scope="module")
def kept(costed: CostedStep) -> Plan:
    """Keep-all."""
    return plan_keep_all(costed.problem, costed.problem.platform.home)


@pytest.fixture(scope="module")
def tight(lowered: Lowered) -> StepProblem:
    return xe.make_problem(lowered, costs="roofline").with_budget_ratio(RATIO)


@pytest.fixture(scope="module")
def plan(tight: StepProblem) -> StepPlan:
    return xe.plan(tight, time_limit_s=60.0, gap_ratio=0.9)


def test_a_budget_without_room_for_the_batch_is_met_in_slices(plan: StepPlan) -> None:
    (device,) = plan.plan.problem.platform.computing
    assert plan.planned.lowered.slices > 1
    assert plan.plan.arenas.arena_bytes[device.name] <= device.budget_bytes
    assert f"in {plan.planned.lowered.slices} slices" in plan.summary.message


@needs_products
def test_the_report_says_that_the_step_it_is_compared_with_runs_in_slices_too(
    plan: StepPlan,
) -> None:
    text, whole = StringIO(), replace(plan.summary, slices=1)
    assert plan.summary.slices == plan.planned.lowered.slices > 1
    for summary in (plan.summary, whole):
        print_report(Console(file=text, width=200), summary, None)
    assert text.getvalue().count(f"in {plan.summary.slices} slices, too") == 1


def test_slices_are_taken_where_the_whole_batch_fits_and_takes_longer(
    lowered: Lowered, plan: StepPlan
) -> None:
    """With more memory a step is no slower: what runs in less is compared, too.

    With generated products the whole batch takes no longer there.
    """
    ample = xe.make_problem(lowered, costs="roofline").with_budget_ratio(AMPLE_RATIO)
    found = xe.plan(ample, time_limit_s=60.0)
    assert found.plan.simulation.cost_us <= plan.plan.simulation.cost_us
    assert found.planned.lowered.slices > 1
    assert "the whole batch takes longer" in found.summary.message


@pytest.mark.slow
def test_a_wasteful_plan_of_the_whole_batch_does_not_use_up_the_time_of_its_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole batch runs many layers twice, and no proof ends its search before the limit.

    Work is counted, so that neither faster kernels nor a busy machine change what is found.
    """
    searches: list[tuple[int, float]] = []

    def counted(step: CostedStep, options: PlanOptions, *given: Any) -> PlannedStep:
        began = options.limits.clock.now_s()
        made = plan_kernels(step, options, *given)
        searches.append((step.lowered.slices, options.limits.clock.now_s() - began))
        return made

    monkeypatch.setattr(planning, "plan_kernels", counted)
    monkeypatch.setattr(better_forms, "plan_kernels", counted)
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.Tanh())]
    training = xe.training_step(
        nn.Sequential(*layers, nn.Linear(64, 10)), torch.rand(256, 64), optimizer=xe.SGD(0.01)
    )
    chain = xe.make_problem(xe.lower(training, xe.processor()), costs="roofline")
    found = xe.plan(chain.with_budget_ratio(0.4), work_limit=WORK)
    (whole, first), (slices, second), *_ = searches
    assert (whole, found.planned.lowered.slices) == (1, slices)
    assert first <= 0.3 * WORK  # and slices get as much again
    assert slices > 1
    assert second >= 0.15 * WORK


@pytest.mark.parametrize("ratio", [0.9, 1.1])
def test_the_whole_batch_with_more_kernels_begins_from_the_best_schedule_that_is_known(
    ratio: float, costed: CostedStep, kept: Plan, lowered: Lowered, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, starts = PlannedStep(costed.lowered, kept, 0), []

    def planned_from(*given: object) -> PlannedStep:
        starts.append(given[-1])
        return planned

    monkeypatch.setattr(better_forms, "best_forms", lambda *_, **__: [Form(replace(costed), kept)])
    monkeypatch.setattr(better_forms, "plan_kernels", planned_from)
    simulation = replace(kept.simulation, cost_us=ratio * kept.simulation.cost_us)
    known = replace(kept, schedule=Schedule(()), simulation=simulation)
    options = PlanOptions(limits=Limits(5.0))
    (other,) = better_forms.planned_forms(
        costed, known, 0.0, options, lowered.stores, lowered.reporter
    )
    assert starts == [known.schedule if ratio < 1 else kept.schedule]
    value = known.simulation.cost_us
    assert better_forms.is_better(other.value(options), value) == (ratio > 1)


def test_where_an_op_has_no_room_the_first_slices_are_those_that_can_be_kept(
    tight: StepProblem,
) -> None:
    costed = tight.costed
    assert [*in_order_of_promise(costed, is_beyond=True)] == [4, 8, 2]
    assert [*in_order_of_promise(costed, is_beyond=False)] == [2, 4, 8]


def test_a_search_is_cut_short_for_forms_that_come_soon(
    costed: CostedStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(better_forms, "may_take_variants", lambda _: False)
    soon, late = (better_forms.ratio_to_stop_for_forms(costed, s) for s in (1e6, 0.0))
    assert soon == better_forms.good_ratio(costed) < late
    monkeypatch.setattr(better_forms, "may_take_variants", lambda _: True)
    assert better_forms.ratio_to_stop_for_forms(costed, 0.0) == soon


def test_the_best_form_gets_the_rest_of_the_time(
    costed: CostedStep, kept: Plan, lowered: Lowered, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(kept, result=replace(kept.result, stopped_by=StopReason.LIMIT))
    planned, sliced, searched = PlannedStep(costed.lowered, plan, 0), replace(costed), []

    def planned_for(step: CostedStep, _options: object, *given: object) -> PlannedStep:
        searched.append((step, given[-1] if len(given) > 2 else None))
        return planned

    monkeypatch.setattr(planning, "plan_kernels", planned_for)
    monkeypatch.setattr(
        planning, "planned_forms", lambda *_: [better_forms.PlannedForm(sliced, planned)]
    )
    monkeypatch.setattr(planning, "least_value", lambda *_: plan.simulation.cost_us / 2)
    planning.plan_costed(costed, PlanOptions(limits=Limits(20.0)), lowered.stores, lowered.reporter)
    assert searched[1:] == [(sliced, plan.schedule)]


@pytest.mark.parametrize("ratio", [0.9, 1.0])
def test_what_a_proof_leaves_of_the_time_is_for_another_form(
    ratio: float, costed: CostedStep, kept: Plan, lowered: Lowered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of the whole batch is proven and poor, that in slices is as good and its search is open."""
    proven = replace(kept, result=replace(kept.result, stopped_by=StopReason.PROOF))
    open_ = replace(kept, result=replace(kept.result, stopped_by=StopReason.LIMIT))
    cheaper = replace(kept.simulation, cost_us=ratio * kept.simulation.cost_us)
    sliced, searched = replace(costed), []

    def planned_for(step: CostedStep, _options: object, *given: object) -> PlannedStep:
        searched.append(step)
        later = replace(kept, simulation=cheaper)
        return PlannedStep(costed.lowered, proven if step is costed else later, 0)

    monkeypatch.setattr(planning, "plan_kernels", planned_for)
    monkeypatch.setattr(
        planning,
        "planned_forms",
        lambda *_: [better_forms.PlannedForm(sliced, PlannedStep(costed.lowered, open_, 0))],
    )
    monkeypatch.setattr(planning, "least_value", lambda *_: kept.simulation.cost_us / 2)
    monkeypatch.setattr(planning, "_no_worse", lambda later, _: later)
    options = PlanOptions(limits=Limits(20.0))
    found = planning.plan_costed(costed, options, lowered.stores, lowered.reporter)
    assert [step is sliced for step in searched] == [False, True]
    assert found.plan.simulation.cost_us == cheaper.cost_us


def test_no_later_search_makes_a_plan_worse(
    costed: CostedStep, kept: Plan, lowered: Lowered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first plan fits in its own layout only, so that the search cannot begin from it."""
    plan = replace(kept, result=replace(kept.result, stopped_by=StopReason.LIMIT))
    repeated = next(step for step in plan.schedule.steps if isinstance(step, Compute))
    steps = (repeated, *plan.schedule.steps)
    worse = replace(Plan.of_schedule(costed.problem, Schedule(steps), "x"))
    assert worse.simulation.cost_us > plan.simulation.cost_us
    turns = iter([plan, replace(worse, result=replace(worse.result, bound=1.0))])
    monkeypatch.setattr(
        planning, "plan_kernels", lambda *_: PlannedStep(costed.lowered, next(turns), 0)
    )
    monkeypatch.setattr(planning, "planned_forms", lambda *_: [])
    monkeypatch.setattr(planning, "least_value", lambda *_: plan.simulation.cost_us / 2)
    found = planning.plan_costed(
        costed, PlanOptions(limits=Limits(20.0)), lowered.stores, lowered.reporter
    ).plan
    assert (found.schedule, found.arenas) == (plan.schedule, plan.arenas)
    assert (found.result.value, found.result.bound) == (plan.simulation.cost_us, 1.0)


def test_an_interrupt_while_slices_are_looked_at_keeps_the_plan_of_the_whole_batch(
    lowered: Lowered, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_given: object, **_options: object) -> list[Form[CostedStep]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(better_forms, "best_forms", interrupted)
    ample = xe.make_problem(lowered, costs="roofline").with_budget_ratio(AMPLE_RATIO)
    found = xe.plan(ample, time_limit_s=60.0, gap_ratio=0.9)
    assert found.planned.lowered.slices == 1
    assert found.plan.result.stopped_by is StopReason.INTERRUPTED


@pytest.mark.slow
def test_a_plan_and_a_schedule_from_a_file_run_in_as_many_slices(
    lowered: Lowered, tight: StepProblem, plan: StepPlan, tmp_path: Path
) -> None:
    plan.save(tmp_path / "plan.json")
    again = StepPlan.load(tmp_path / "plan.json", lowered)
    write_schedule(plan.plan.schedule, tmp_path / "schedule.json")
    given = xe.plan_of_schedule(tight, tmp_path / "schedule.json")
    assert {again.planned.lowered.slices, given.planned.lowered.slices} == {
        plan.planned.lowered.slices
    }
    assert again.plan.arenas == plan.plan.arenas


def test_a_plan_file_of_another_number_of_slices_is_refused(
    lowered: Lowered, plan: StepPlan, tmp_path: Path
) -> None:
    plan.save(path := tmp_path / "plan.json")
    slices = plan.planned.lowered.slices
    for wrong in (1, 2 * slices):
        document = json.loads(path.read_text())
        document["cut"] = {"samples": [BATCH // wrong] * wrong, "shares": [0] * wrong}
        path.write_text(json.dumps(document))
        with pytest.raises(InvalidScheduleError, match="damaged"):
            StepPlan.load(path, lowered)
        plan.save(path)


@pytest.mark.slow
def test_a_step_in_slices_trains_as_pytorch_does_in_the_bytes_that_were_planned() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
        nn.Linear(8 * 8 * 8, 5),
    )  # fmt: skip
    x, y = torch.randn(BATCH, 3, 16, 16), torch.randint(0, 5, (BATCH,))
    step = xe.compile(
        module, x, loss="cross_entropy", optimizer=xe.SGD(0.05), budget=0.4, costs="roofline",
        platform=xe.processor(), time_limit_s=5.0,
    )  # fmt: skip
    assert step.plan.planned.lowered.slices > 1
    optimizer = torch.optim.SGD(module.parameters(), 0.05)
    module.train()
    for _ in range(3):
        loss = nn.functional.cross_entropy(module(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert float(step(x, y)) == pytest.approx(loss.item(), rel=1e-5)
    trained = step.state_dict()
    for name, value in module.state_dict().items():
        np.testing.assert_allclose(trained[name], value.numpy(), rtol=1e-4, atol=1e-6, err_msg=name)
    assert step.executable.measured_peak_bytes == dict(step.plan.plan.arenas.arena_bytes)
