"""A comparison tells every difference of two plans, and none where there is none."""

from __future__ import annotations

import json

from hypothesis import given, settings

from tests.explain.plans import chain_plan, plans
from tvm_xengine.explain.comparison import compare_plans
from tvm_xengine.explain.fates import fates
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.schedule import Compute


@settings(max_examples=30)
@given(plans())
def test_a_plan_does_not_differ_from_itself(plan: Plan) -> None:
    found = compare_plans(plan, plan)
    every = [*found.figures, *(one for many in found.devices.values() for one in many)]
    assert not [one for one in every if one.is_different]
    assert not (found.problem or found.fates or found.placements)


def test_every_time_of_a_comparison_has_a_unit() -> None:
    tight, ample = chain_plan(ratio=0.5), chain_plan(ratio=1.0)
    (bound,) = [line for line in str(compare_plans(tight, ample)).splitlines() if "bound" in line]
    assert bound.count(" us ") + bound.count(" ms ") == 2


def test_every_difference_of_plans_under_two_budgets_is_told() -> None:
    tight, ample = chain_plan(ratio=0.5), chain_plan(ratio=1.0)
    found = compare_plans(tight, ample)
    assert not found.problem
    (device,) = found.devices.values()
    assert device[0].before == tight.problem.platform.devices[0].budget_bytes
    assert device[0].after == ample.problem.platform.devices[0].budget_bytes

    def places(plan: Plan) -> dict[str, list[str]]:
        runs = [step for step in plan.schedule.steps if isinstance(step, Compute)]
        return {op: [s.device for s in runs if s.op == op] for op in {s.op for s in runs}}

    differing = {op for op, where in places(tight).items() if places(ample).get(op) != where}
    assert {one.what for one in found.placements} == differing
    before, after = fates(tight), fates(ample)
    changed = {name for name in before if before[name].fate is not after[name].fate}
    assert changed <= {one.what for one in found.fates}


def test_a_comparison_of_different_problems_says_so() -> None:
    found = compare_plans(chain_plan(5, 0.7), chain_plan(6, 0.7))
    assert any("second plan only" in sentence for sentence in found.problem)
    assert json.loads(found.to_json())["problem"] == list(found.problem)
    assert max(map(len, str(found).splitlines())) <= 80
