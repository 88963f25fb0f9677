"""Steps that use the same memory in turns compute what they compute alone, in the bytes that are planned."""

from pathlib import Path

import numpy as np
import pytest

import tvm_xengine as xe
from tests.runtime.steps import batches, platform, state_bytes
from tests.session.together.pairs import apart, planned, problems_of
from tvm_xengine.errors import InvalidPlatformError, InvalidScheduleError, NoScheduleError
from tvm_xengine.planning.shared_budget import shared_ratio
from tvm_xengine.scheduling.sizes import parse_bytes

NAN_BYTE = 0xFF
"""A float of these bytes is no number, so that one stale element shows in a loss."""

QUICK = {"left": "mlp", "right": "dropout and Adam"}
SLOW = [
    ({"a": "lenet", "b": "mlp"}, "one", "1100KiB", "cost"),
    ({"a": "lenet", "b": "batch norms in micro-batches"}, "two", 0.7, "makespan"),
    ({"a": "attention", "b": "float16", "c": "recurrent"}, "file", 0.8, "makespan"),
    ({"a": "lenet", "b": "attention", "c": "bfloat16"}, "three", 0.7, "makespan"),
]


def _train_both_ways(plans: xe.PlansTogether, steps: int) -> None:
    together, alone = xe.build_together(plans), apart(plans)
    given = {name: batches(step, seed) for seed, (name, step) in enumerate(alone.items())}
    for taken in range(steps):
        for name, step in together.items():
            together.arenas.poison(NAN_BYTE if taken % 2 else 0xA5)
            batch = next(given[name])
            assert step.step(**batch).tobytes() == alone[name].step(**batch).tobytes()
            for other, its in together.items():
                assert state_bytes(its) == state_bytes(alone[other])
    assert together.measured_peak_bytes == {one.device: one.arena_bytes for one in plans.memory}
    for one in plans.memory:
        assert one.arena_bytes <= one.budget_bytes
        assert one.arena_bytes <= sum(
            step.executable.measured_peak_bytes[one.device] for step in alone.values()
        )
    assert sum(one.arena_bytes for one in plans.memory) < sum(
        size for step in alone.values() for size in step.executable.measured_peak_bytes.values()
    )


@pytest.mark.slow
@pytest.mark.parametrize(("on", "budget"), [("one", "340KiB"), ("file", 0.8)])
def test_losses_and_state_are_those_of_steps_with_memory_of_their_own(
    on: str, budget: str | float, tmp_path: Path, cache: Path
) -> None:
    plans = planned(QUICK, on, tmp_path, cache, budget=budget)
    if isinstance(budget, str):
        assert [one.budget_bytes for one in plans.memory] == [parse_bytes(budget)]
    _train_both_ways(plans, steps=3)


@pytest.mark.slow
@pytest.mark.parametrize(("networks", "on", "budget", "objective"), SLOW)
def test_so_are_those_of_larger_networks(
    networks: dict[str, str],
    on: str,
    budget: str | float,
    objective: str,
    tmp_path: Path,
    cache: Path,
) -> None:
    asked = {"a": budget} if isinstance(budget, str) else budget
    plans = planned(
        networks,
        on,
        tmp_path,
        cache,
        budget=asked,
        objective=objective,
        time_limit_s=15.0,
        solver="auto",
    )
    _train_both_ways(plans, steps=6)


@pytest.mark.slow
def test_state_that_moves_away_during_its_own_step_lends_its_bytes(
    tmp_path: Path, cache: Path
) -> None:
    disk = xe.Device("disk", None, folder=str(tmp_path))
    links = tuple(xe.Link(*pair, 1.0, 10.0) for pair in (("a", "disk"), ("disk", "a")))
    cpu = xe.Device("a", "llvm -mcpu=native", kernels=("tir",))
    networks = {"left": "lenet", "right": "mlp"}
    problems = problems_of(networks, xe.Platform((cpu, disk), links), cache)
    plans = xe.plan_together(problems, {"a": "1000KiB"}, time_limit_s=20.0)
    instances = plans.plans["left"].plan.arenas.residency.instances
    assert any(one.is_home_state and one.start > 0 for one in instances)
    _train_both_ways(plans, steps=4)


@pytest.fixture(scope="module")
def plans(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> xe.PlansTogether:
    return planned(QUICK, "one", tmp_path_factory.mktemp("disk"), cache)


def test_poisoning_one_step_leaves_the_state_of_the_other(plans: xe.PlansTogether) -> None:
    steps = xe.build_together(plans)
    before = {name: state_bytes(step) for name, step in steps.items()}
    for byte in (NAN_BYTE, 0x00):
        for step in steps.values():
            step.executable.poison(byte)
            assert {name: state_bytes(one) for name, one in steps.items()} == before


def test_results_stay_when_the_other_step_takes_their_bytes(plans: xe.PlansTogether) -> None:
    steps = xe.build_together(plans)
    left, right = steps.values()
    loss = left.step(**next(batches(left)))
    right.step(**next(batches(right)))
    steps.arenas.poison(NAN_BYTE)
    assert np.asarray(left.results["loss"]) == loss


def test_a_guarded_step_that_fails_leaves_both_as_they_were(plans: xe.PlansTogether) -> None:
    steps = xe.build_together(plans)
    left, right = steps.values()
    for step in (left, right):
        step.guard()
        step.step(**next(batches(step)))
    before = [state_bytes(step) for step in (left, right)]
    batch = next(batches(right))
    name = next(name for name, value in batch.items() if value.dtype.kind == "f")
    with pytest.raises(xe.XEngineError):
        right.step(**{**batch, name: np.full_like(batch[name], np.nan)})
    assert [state_bytes(step) for step in (left, right)] == before


def test_another_plan_is_refused_where_memory_is_shared(plans: xe.PlansTogether) -> None:
    steps = xe.build_together(plans)
    with pytest.raises(InvalidScheduleError, match="plan all of them again"):
        steps["left"].adopt(plans.plans["left"])
    with pytest.raises(ValueError, match="expected names among"):
        xe.build_together(plans, lr_schedules={"middle": lambda step: 0.1})


def test_state_that_does_not_fit_together_is_named(tmp_path: Path, cache: Path) -> None:
    problems = problems_of(QUICK, platform("one", tmp_path), cache)
    said = (
        r"left and right do not fit together: a has 100 KiB, .* \(left 204.1 KiB, right 7.062 KiB\)"
    )
    with pytest.raises(NoScheduleError, match=said):
        xe.plan_together(problems, "100KiB")


@pytest.mark.slow
def test_what_does_not_fit_together_says_what_each_needs(tmp_path: Path, cache: Path) -> None:
    problems = problems_of(QUICK, platform("one", tmp_path), cache)
    with pytest.raises(NoScheduleError) as refused:
        xe.plan_together(problems, "220KiB", time_limit_s=2.0, solver="greedy")
    said = str(refused.value)
    for part in ("left", "right", "known to work", "--budget a=", "one after the other"):
        assert part in said
    enough = int(said.split("--budget a=")[1].split("B is enough")[0])
    assert enough > parse_bytes("220KiB")
    xe.plan_together(problems, {"a": enough}, time_limit_s=4.0)


def test_a_solver_that_counts_no_work_is_refused_before_anything_is_planned(
    tmp_path: Path, cache: Path
) -> None:
    problems = problems_of(QUICK, platform("one", tmp_path), cache)
    with pytest.raises(ValueError, match="miqp does not count its work"):
        xe.plan_together(problems, "100KiB", solver="miqp", work_limit=1.0)  # which fits nothing


def test_other_platforms_and_budgets_are_refused(tmp_path: Path, cache: Path) -> None:
    one, two = (platform(on, tmp_path) for on in ("one", "two"))
    problems = {
        "left": problems_of({"left": "mlp"}, one, cache)["left"],
        "right": problems_of({"right": "mlp"}, two, cache)["right"],
    }
    with pytest.raises(InvalidPlatformError, match="expected one platform"):
        xe.plan_together(problems)
    with pytest.raises(ValueError, match="at least one problem"):
        xe.plan_together({})


def test_a_ratio_is_of_the_largest_rest_beside_the_state_of_all(
    tmp_path: Path, cache: Path
) -> None:
    problems = problems_of(QUICK, platform("one", tmp_path), cache)
    plain = {name: problem.problem for name, problem in problems.items()}
    whole = shared_ratio(plain, 1.0)["a"]
    alone = [shared_ratio({name: problem}, 1.0)["a"] for name, problem in plain.items()]
    assert max(alone) < whole < sum(alone)
    assert shared_ratio(plain, 0.5)["a"] < whole
