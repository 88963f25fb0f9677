"""Where a budget has no room for a library's workspace, generated kernels run that need less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvm_xengine as xe
from tests.kernels.onednn.onednn_twins import needs_onednn
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.scheduling.schedule import Compute, write_schedule
from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.session.stages.plan import StepPlan
from tvm_xengine.session.stages.problem import StepProblem
from tvm_xengine.solvers.working_set import working_sets

pytestmark = needs_onednn
BATCH = 8


@pytest.fixture(scope="module")
def lowered() -> Lowered:
    return xe.lower(xe.training_step("lenet", batch_size=BATCH), xe.processor())


@pytest.fixture(scope="module")
def tight(lowered: Lowered) -> StepProblem:
    """A budget that a kernel of the library exceeds alone."""
    problem = xe.make_problem(lowered, costs="roofline")
    (device,) = working_sets(problem.problem).least_bytes()
    return problem.with_budget(working_sets(problem.problem).least_bytes()[device] - 4096)


@pytest.fixture(scope="module")
def plan(tight: StepProblem) -> StepPlan:
    """Of the whole batch: only `auto` compares it with slices."""
    return xe.plan(tight, solver="local-search", time_limit_s=10.0)


def sources(plan: StepPlan) -> list[tuple[str, str]]:
    """Op and kernel source of each run."""
    return [
        (step.op, plan.planned.lowered.kernel(step.op, step.device, step.variant).source)
        for step in plan.plan.schedule.steps
        if isinstance(step, Compute)
    ]


def wanted(lowered: Lowered) -> dict[str, str]:
    (device,) = lowered.platform.computing
    return {
        op: lowered.step.kernel(op, device.name).source for op in lowered.step.extraction.kernels
    }


def test_a_budget_below_the_workspace_of_a_library_is_kept(
    tight: StepProblem, plan: StepPlan
) -> None:
    assert working_sets(tight.problem).is_infeasible()
    (device,) = tight.problem.platform.computing
    assert plan.plan.arenas.arena_bytes[device.name] <= device.budget_bytes
    assert "so others run" in plan.summary.message


def test_only_kernels_without_room_change(lowered: Lowered, plan: StepPlan) -> None:
    before, after = wanted(lowered), sources(plan)
    changed = {op for op, source in after if source != before[op]}
    assert changed
    assert "onednn" in {source for _, source in after}
    assert {before[op] for op in changed} == {"onednn"}


def test_with_room_for_all_no_kernel_changes(lowered: Lowered, tight: StepProblem) -> None:
    ample = xe.plan(tight.with_budget_ratio(1.0), time_limit_s=10.0)
    assert dict(sources(ample)) == wanted(lowered)
    assert "workspace" not in ample.summary.message


@pytest.mark.slow
def test_the_step_trains_as_with_the_kernels_of_the_library(
    lowered: Lowered, tight: StepProblem, plan: StepPlan
) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, 1, 28, 28), dtype=np.float32)
    y = rng.integers(0, 10, BATCH)
    ample = xe.plan(tight.with_budget_ratio(1.0), time_limit_s=10.0)
    lean, fast = (xe.build(lowered, each) for each in (plan, ample))
    for _ in range(3):
        assert float(lean(x, y)) == pytest.approx(float(fast(x, y)), rel=1e-5)


def test_a_schedule_and_a_plan_from_a_file_run_with_kernels_that_fit(
    lowered: Lowered, tight: StepProblem, plan: StepPlan, tmp_path: Path
) -> None:
    write_schedule(plan.plan.schedule, tmp_path / "schedule.json")
    again = xe.plan_of_schedule(tight, tmp_path / "schedule.json")
    assert again.plan.arenas.arena_bytes == plan.plan.arenas.arena_bytes
    plan.save(tmp_path / "plan.json")
    assert sources(StepPlan.load(tmp_path / "plan.json", lowered)) == sources(plan)


def test_a_budget_below_every_kernel_names_one_that_works(tight: StepProblem) -> None:
    (device,) = tight.problem.platform.computing
    home = tight.problem.home_bytes[device.name]
    with pytest.raises(NoScheduleError, match="these budgets work"):
        xe.plan(tight.with_budget(home + 64), time_limit_s=2.0)
