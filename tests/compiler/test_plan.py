"""Costing and planning a lowered step, without a console."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.passes.small_step import SmallStep, two_cpus
from tvm_xengine.compiler import plan_kernels
from tvm_xengine.compiler.costing.costed import cost_step
from tvm_xengine.compiler.lower import LoweredStep, lower_step
from tvm_xengine.compiler.options import Budgets, CompileOptions, CostChoice
from tvm_xengine.compiler.plan import plan_costed, plan_step
from tvm_xengine.compiler.problem import make_problem, op_costs
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.errors import InvalidPlatformError, NoScheduleError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.planning.keep_all import budgets_for_ratio
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.problem import CostSource, OpCost
from tvm_xengine.solvers.result import Limits, Objective

QUICK = PlanOptions(limits=Limits(time_limit_s=5.0))


class Recorder(Reporter):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.statuses: list[str] = []

    def status(self, text: str) -> None:
        self.statuses.append(text)


@pytest.fixture(scope="module")
def lowered() -> LoweredStep:
    return lower_step(SmallStep, two_cpus())


@pytest.fixture
def options(tmp_path: Path) -> CompileOptions:
    return CompileOptions(CostChoice.ROOFLINE, plan=QUICK, measurements=tmp_path / "m.jsonl")


def test_a_step_is_planned_from_options_alone(
    lowered: LoweredStep, options: CompileOptions
) -> None:
    planned = plan_step(lowered, options)
    assert set(planned.plan.schedule.computed) >= {op.name for op in lowered.extraction.graph.ops}
    assert planned.measured_kernels == 0
    assert planned.lowered is lowered


def test_a_solve_is_reported_and_ends(lowered: LoweredStep, options: CompileOptions) -> None:
    recorder = Recorder()
    plan_step(lowered, options, reporter=recorder)
    assert recorder.statuses[0].startswith("solving")
    assert recorder.statuses[-1] == ""


def test_a_failed_solve_ends_its_report_too(lowered: LoweredStep, options: CompileOptions) -> None:
    recorder = Recorder()
    costed = cost_step(lowered, CostChoice.ROOFLINE, Stores.open(options), recorder)
    tight = costed.with_budgets(Budgets(device_bytes={"cpu": 384, "cpu_generic": 64}))
    with pytest.raises(NoScheduleError):
        plan_costed(tight, QUICK, Stores.open(options), recorder)
    assert recorder.statuses[-1] == ""


def test_bytes_of_a_device_take_precedence_over_the_ratio(lowered: LoweredStep) -> None:
    problem = make_problem(lowered, lambda kernels: {k.symbol: OpCost(1.0) for k in kernels})
    by_ratio = budgets_for_ratio(problem, 0.5)
    budgets = Budgets(0.5, {"cpu": 123_456}).of(problem)
    assert budgets == {"cpu": 123_456, "cpu_generic": by_ratio["cpu_generic"]}
    assert Budgets().of(problem) == {}


def test_budgets_of_unknown_devices_are_refused_before_anything_is_costed(
    lowered: LoweredStep, options: CompileOptions
) -> None:
    wrong = CompileOptions(CostChoice.MEASURED, Budgets(device_bytes={"gpu": 1}), QUICK)
    with pytest.raises(InvalidPlatformError, match="gpu, but the platform has cpu, cpu_generic"):
        plan_step(lowered, wrong, Stores.open(options))


def test_energy_without_figures_is_refused(lowered: LoweredStep, options: CompileOptions) -> None:
    frugal = CompileOptions(
        CostChoice.ROOFLINE, plan=PlanOptions(objective=Objective.ENERGY), tuned=None
    )
    with pytest.raises(InvalidPlatformError, match="power_w"):
        plan_step(lowered, frugal, Stores.open(options))


def test_active_costs_measure_only_what_the_plan_relies_on(
    lowered: LoweredStep, options: CompileOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def fake(*_arguments: object, **_options: object) -> object:
        def costs(kernels: Sequence[DeviceKernel], /) -> dict[str, OpCost]:
            measured.extend(kernel.symbol for kernel in kernels)
            return {k.symbol: OpCost(1.0, source=CostSource.MEASURED) for k in kernels}

        return costs

    monkeypatch.setattr(plan_kernels, "measured_costs", fake)
    stores = Stores.open(options)
    costed = cost_step(lowered, CostChoice.ACTIVE, stores, Reporter())
    ample = costed.with_budgets(Budgets(device_bytes={"cpu": 10**6}))
    planned = plan_costed(ample, QUICK, stores, Reporter())
    assert planned.plan.problem.platform.device("cpu").budget_bytes == 10**6
    # Other forms of the step are looked at where this one takes long to plan, and measure their own.
    assert 0 < planned.measured_kernels <= len(set(measured))
    used = {
        lowered.kernel(s.op, s.device).symbol
        for s in planned.plan.schedule.steps
        if hasattr(s, "op")
    }
    assert used & set(measured)


def test_devices_that_share_kernels_may_differ_in_speed(lowered: LoweredStep) -> None:
    def of(time_us: float):
        return lambda kernels: {k.symbol: OpCost(time_us) for k in kernels}

    costs = op_costs(lowered, {"cpu": of(1.0), "cpu_generic": of(3.0)})
    assert {(c["cpu"].compute_us, c["cpu_generic"].compute_us) for c in costs.values()} == {
        (1.0, 3.0)
    }
