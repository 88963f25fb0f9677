"""Orders of the same runs: as fast, and in no larger arena."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.aot.examples import MODELS
from tests.explain.plans import plans
from tests.strategies import cases
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.plan.regions import parse_regions
from tvm_xengine.aot.prepare import plan_export
from tvm_xengine.planning.alternatives.leaner_order import in_leaner_order
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.result import Limits
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.optimizers import SGD
from tvm_xengine.training.recipe import Recipe


@settings(max_examples=cases(100))
@given(plans())
def test_another_order_is_as_fast_and_takes_no_more_of_any_device(plan: Plan) -> None:
    leaner = in_leaner_order(plan)
    if leaner is plan:
        return
    objective, platform = plan.result.objective, plan.problem.platform
    assert leaner.simulation == simulate(plan.problem, leaner.schedule)
    assert objective.of(leaner.simulation) == pytest.approx(objective.of(plan.simulation))
    assert leaner.result.bound == plan.result.bound
    for device in platform.devices:
        assert leaner.arenas.arena_bytes[device.name] <= plan.arenas.arena_bytes[device.name]
    assert sum(leaner.arenas.arena_bytes.values()) < sum(plan.arenas.arena_bytes.values())


def test_a_package_with_ample_room_takes_the_smallest_arena_of_equal_time() -> None:
    """In the order of LeNet's graph keeping all takes 353,720 bytes, in another one 340,984."""
    model, recipe = MODELS["lenet"](), Recipe(optimizer=SGD())
    options = ExportOptions(
        target="cortex-m7",
        regions=parse_regions("sram=3MiB"),
        plan=PlanOptions(limits=Limits(5.0)),
        entries=(Entry.TRAIN_STEP,),
        recipe=recipe,
    )
    prepared = plan_export(model, build_step_by_recipe(model, recipe), options, lambda _: None)
    plan, keep_all_bytes = prepared.train.plan, prepared.keep_all_bytes
    assert keep_all_bytes is not None
    assert prepared.arena_bytes["sram"] < 0.97 * keep_all_bytes
    assert plan.simulation.cost_us == pytest.approx(
        sum(
            min(cost.compute_us for cost in costs.values()) for costs in plan.problem.costs.values()
        )
    )
