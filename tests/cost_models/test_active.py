from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.shares import first
from tests.solvers.samples.networks import pair, residual
from tvm_xengine.cost_models.active import ActiveLimits, Planning, plan_actively
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.report.intervals import cost_sources, step_interval_us
from tvm_xengine.scheduling.problem import CostSource, OpCost, Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.result import Limits, StopReason


@dataclass(frozen=True)
class Fake:
    """Stands for a prepared kernel."""

    symbol: str


class Laboratory:
    """A problem whose true costs are known, and predictions that are wrong by up to a factor."""

    def __init__(self, seed: int, factor: float) -> None:
        self.true = pair(residual(4), 0.6, slow=1.5, link_gb_s=5.0, seed=seed)
        rng = np.random.default_rng(seed)
        self.measured: list[str] = []
        self.started: list[tuple[Problem, Schedule | None]] = []
        self.kernels = {}
        self.predicted = {}
        for op, costs in self.true.costs.items():
            for device, cost in costs.items():
                wrong = cost.compute_us * np.exp(rng.uniform(-1, 1) * np.log(factor))
                symbol = f"{op}@{device}"
                self.kernels[symbol] = Fake(symbol)
                self.predicted[symbol] = OpCost(
                    wrong,
                    cost.workspace_bytes,
                    interval_us=(wrong / factor, wrong * factor),
                    source=CostSource.PREDICTED,
                )

    def true_cost(self, symbol: str) -> OpCost:
        op, device = symbol.split("@")
        cost = self.true.costs[op][device]
        return replace(cost, source=CostSource.MEASURED)

    def planning(self) -> Planning:
        def measure(kernels):
            self.measured += [kernel.symbol for kernel in kernels]
            return {kernel.symbol: self.true_cost(kernel.symbol) for kernel in kernels}

        def problem_with(costs) -> Problem:
            table = {
                op: {device: costs[f"{op}@{device}"] for device in by_device}
                for op, by_device in self.true.costs.items()
            }
            return replace(self.true, costs=table)

        def plan(problem, start):
            self.started.append((problem, start))
            options = PlanOptions(solver="greedy", limits=Limits(5.0))
            return plan_schedule(problem, options, start=start)

        return Planning(
            self.kernels,
            lambda op, device, _variant: f"{op}@{device}",
            problem_with,
            plan,
            plan,
            measure,
        )

    def really_us(self, plan) -> float:
        return simulate(self.true, plan.schedule).cost_us


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_measuring_what_the_plan_relies_on_is_nearly_as_good_as_measuring_all(seed):
    laboratory = Laboratory(seed, factor=2.0)
    planning = laboratory.planning()
    found = plan_actively(planning, laboratory.predicted)
    best = planning.plan(laboratory.true, None)
    assert laboratory.really_us(found.plan) <= 1.05 * laboratory.really_us(best)
    assert len(laboratory.measured) < len(laboratory.kernels)
    assert len(set(laboratory.measured)) == len(laboratory.measured)
    assert found.measured_kernels == len(laboratory.measured)
    low, high = step_interval_us(found.plan)
    cost_us = found.plan.simulation.cost_us
    assert low <= cost_us <= high
    assert high - low <= 0.1 * cost_us
    assert set(cost_sources(found.plan.problem, found.plan.schedule)) <= {"measured", "predicted"}


def test_certain_predictions_are_not_measured():
    laboratory = Laboratory(0, factor=1.001)
    found = plan_actively(laboratory.planning(), laboratory.predicted)
    assert not laboratory.measured
    assert found.rounds == 0


@pytest.mark.slow
def test_no_more_than_the_allowed_share_is_measured():
    laboratory = Laboratory(0, factor=3.0)
    limits = ActiveLimits(kernels_ratio=0.25)
    plan_actively(laboratory.planning(), laboratory.predicted, limits)
    assert 0 < len(laboratory.measured) <= 0.25 * len(laboratory.kernels)


@pytest.mark.slow
def test_of_what_may_be_measured_half_is_kept_for_later_plans():
    laboratory = Laboratory(0, factor=3.0)
    planning = laboratory.planning()
    batches: list[int] = []

    def measure(kernels):
        batches.append(len(kernels))
        return planning.measure(kernels)

    limits = ActiveLimits(kernels_ratio=0.5)
    plan_actively(replace(planning, measure=measure), laboratory.predicted, limits)
    most = int(0.5 * len(laboratory.kernels))
    assert len(batches) > 2
    assert batches[0] <= -(-most // 2)


@pytest.mark.slow
def test_what_was_unknown_at_first_is_measured_first_whatever_others_say():
    """What others are off by makes intervals narrow, and says nothing of these."""
    laboratory = Laboratory(0, factor=3.0)
    planning = laboratory.planning()
    batches: list[list[str]] = []

    def measure(kernels):
        batches.append([kernel.symbol for kernel in kernels])
        return planning.measure(kernels)

    def correct(costs):
        return {
            symbol: cost
            if cost.source is CostSource.MEASURED or not batches
            else replace(cost, interval_us=(0.99 * cost.compute_us, 1.01 * cost.compute_us))
            for symbol, cost in costs.items()
        }

    cheap = sorted(laboratory.predicted, key=lambda s: laboratory.predicted[s].compute_us)[::2]
    certain = {
        symbol: cost
        if symbol in cheap
        else replace(cost, interval_us=(cost.compute_us / 1.5, cost.compute_us * 1.5))
        for symbol, cost in laboratory.predicted.items()
    }
    limits = ActiveLimits(kernels_ratio=0.2, uncertain_ratio=0.0)
    plan_actively(replace(planning, measure=measure, correct=correct), certain, limits)
    unknown = [[symbol in cheap for symbol in batch] for batch in batches]
    assert all(flags == sorted(flags, reverse=True) for flags in unknown)
    assert any(any(flags) for flags in unknown[1:])


def test_every_round_begins_from_the_cheapest_schedule_so_far():
    laboratory = Laboratory(1, factor=3.0)
    found = plan_actively(laboratory.planning(), laboratory.predicted)
    assert len(laboratory.started) >= 3
    assert laboratory.started[0][1] is None
    schedules = [schedule for _, schedule in laboratory.started[1:]]
    for place, (problem, start) in enumerate(laboratory.started[1:]):
        known = [simulate(problem, schedule).cost_us for schedule in schedules[: place + 1]]
        assert simulate(problem, start).cost_us == min(known)
    final, _ = laboratory.started[-1]
    assert all(
        simulate(final, found.plan.schedule).cost_us <= simulate(final, schedule).cost_us
        for schedule in schedules
    )


def test_what_is_measured_corrects_the_others():
    laboratory = Laboratory(0, factor=2.0)
    told = []

    def correct(costs):
        measured = {symbol for symbol, cost in costs.items() if cost.source is CostSource.MEASURED}
        told.append(measured)
        return {symbol: laboratory.true_cost(symbol) for symbol in costs} if measured else costs

    planning = replace(laboratory.planning(), correct=correct)
    found = plan_actively(planning, laboratory.predicted)
    assert told[0] == set()
    assert told[1] == set(laboratory.measured)
    assert found.rounds == 1  # then everything is known
    cost_us = found.plan.simulation.cost_us
    assert laboratory.really_us(found.plan) == pytest.approx(cost_us)


def test_an_interrupt_while_measuring_gives_the_best_plan_so_far():
    laboratory = Laboratory(0, factor=3.0)
    planning = laboratory.planning()
    rounds = []

    def measure(kernels):
        rounds.append(kernels)
        if len(rounds) == 2:
            raise KeyboardInterrupt
        return planning.measure(kernels)

    found = plan_actively(replace(planning, measure=measure), laboratory.predicted)
    assert found.plan.result.stopped_by is StopReason.INTERRUPTED
    assert found.measured_kernels == len(laboratory.measured) > 0
    assert found.plan.result.value == simulate(found.plan.problem, found.plan.schedule).cost_us
    assert len(rounds) == 2


def test_an_interrupt_of_a_solve_ends_the_loop():
    laboratory = Laboratory(0, factor=3.0)
    planning = laboratory.planning()

    def interrupted(problem, start):
        plan = planning.plan(problem, start)
        return replace(plan, result=replace(plan.result, stopped_by=StopReason.INTERRUPTED))

    found = plan_actively(replace(planning, sketch=interrupted), laboratory.predicted)
    assert found.plan.result.stopped_by is StopReason.INTERRUPTED
    assert not laboratory.measured


def test_an_interrupt_before_there_is_a_plan_goes_on():
    laboratory = Laboratory(0, factor=3.0)

    def sketch(problem, start):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan_actively(replace(laboratory.planning(), sketch=sketch), laboratory.predicted)


def test_what_a_model_has_no_ground_for_is_measured_first():
    lab = Laboratory(seed=0, factor=1.5)
    least = min(lab.predicted, key=lambda symbol: lab.predicted[symbol].compute_us).split("@")[0]
    for symbol, cost in lab.predicted.items():
        if symbol.split("@")[0] == least:
            wide = (cost.compute_us / 2.5, cost.compute_us * 2.5)
            lab.predicted[symbol] = replace(cost, interval_us=wide)
    plan_actively(lab.planning(), lab.predicted, ActiveLimits(rounds=1))
    assert lab.measured[0].split("@")[0] == least
