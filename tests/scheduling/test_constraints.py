"""The validator enforces constraints, and files keep them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.solvers.samples.chains import repeated_start
from tests.solvers.test_constraints import two_devices
from tvm_xengine.errors import InvalidProblemError, InvalidScheduleError
from tvm_xengine.planning.keep_all import budgets_for_ratio, keep_all_on
from tvm_xengine.scheduling.constraints import Constraints
from tvm_xengine.scheduling.problem import problem_from_json, problem_to_json
from tvm_xengine.scheduling.schedule import Compute, with_frees
from tvm_xengine.scheduling.simulate import simulate


def test_a_schedule_that_runs_a_pinned_op_elsewhere_is_refused() -> None:
    problem = replace(two_devices(), constraints=Constraints({"b": "fast"}))
    schedule = with_frees(problem, [Compute(op, "slow") for op in "abcd"])
    with pytest.raises(InvalidScheduleError, match=r"b cannot run on slow; it is pinned to fast"):
        simulate(problem, schedule)


def test_a_schedule_that_repeats_a_kept_op_is_refused() -> None:
    problem = repeated_start(12)
    schedule = with_frees(problem, [Compute(op, "cpu") for op in ("a", "b", "a", "c", "d")])
    simulate(problem, schedule, enforce_budgets=False)
    kept = replace(problem, constraints=Constraints(kept=frozenset({"a"})))
    with pytest.raises(InvalidScheduleError, match="a ran before and must not be repeated"):
        simulate(kept, schedule, enforce_budgets=False)


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        (Constraints({"z": "slow"}), "'z', which is not an op"),
        (Constraints(kept=frozenset({"z"})), "'z', which is not an op"),
        (Constraints({"a": "gpu"}), "a is pinned to 'gpu', but it can run only on slow, fast"),
    ],
)
def test_constraints_that_cannot_be_met_are_refused(constraints: Constraints, said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        replace(two_devices(), constraints=constraints)


def test_a_problem_file_keeps_constraints() -> None:
    constraints = Constraints({"b": "slow"}, frozenset({"a", "c"}))
    problem = replace(two_devices(), constraints=constraints)
    assert problem_from_json(problem_to_json(problem)) == problem


@pytest.mark.parametrize("wrong", [3, {"pinned": {"a": 3}, "kept": []}, {"pinned": {}}])
def test_malformed_constraints_are_refused(wrong: object) -> None:
    document = json.loads(problem_to_json(two_devices()))
    with pytest.raises(InvalidProblemError):
        problem_from_json(json.dumps({**document, "constraints": wrong}))


def test_keep_all_and_ratios_do_not_depend_on_constraints() -> None:
    free = two_devices()
    pinned = replace(free, constraints=Constraints({"b": "slow", "c": "fast"}))
    assert keep_all_on(pinned, "slow") == keep_all_on(free, "slow")
    assert budgets_for_ratio(pinned, 0.5) == budgets_for_ratio(free, 0.5)
