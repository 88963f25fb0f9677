"""A run that is planned again goes on with the same numbers."""

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import tvm_xengine as xe
from tests.api.conftest import Compile
from tests.api.networks import perceptron
from tvm_xengine.errors import InvalidScheduleError, UnsupportedModelError
from tvm_xengine.planning.keep_all import keep_all_on
from tvm_xengine.planning.plan import Plan
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.scheduling.problem import CostSource, Problem
from tvm_xengine.session.plans import replan
from tvm_xengine.session.stages import StepPlan

BATCHES = 24


def _data(_epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    for _ in range(BATCHES):
        yield torch.rand(8, 6, generator=generator), torch.randint(0, 5, (8,), generator=generator)


def _step(compile_step: Compile) -> xe.Step:
    torch.manual_seed(1)
    return compile_step(
        perceptron(), torch.zeros(8, 6), loss="cross_entropy", optimizer=xe.SGD(0.1, momentum=0.9)
    )


def _reversed(plan: StepPlan) -> StepPlan:
    """The keep-all plan, under another name."""
    found = Plan.of_schedule(*keep_all_on(plan.plan.problem, "cpu"), solver="another")
    return replace(plan, planned=replace(plan.planned, plan=found))


def test_the_losses_are_those_of_a_run_that_is_not_planned_again(compile_step: Compile) -> None:
    plain = xe.fit(_step(compile_step), _data)
    step = _step(compile_step)
    found = xe.fit(step, _data, replan=True)
    assert found.losses == plain.losses
    assert plain.replanned is None and found.replanned is not None
    assert found.replanned.steps == 6 * found.replanned.rounds
    assert found.replanned.measured_us > 0
    assert step.plan.plan.step_us() == found.replanned.replanned_us
    costs = step.plan.plan.problem.costs
    assert CostSource.MEASURED in {cost["cpu"].source for cost in costs.values()}


def test_a_run_too_short_to_measure_says_so(compile_step: Compile) -> None:
    found = xe.fit(_step(compile_step), _data, max_steps=5, replan=True)
    assert found.replanned is None


def test_the_faster_of_two_plans_in_the_run_is_kept(
    compile_step: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second plan promises more, and takes longer: the first one is adopted again."""
    step = _step(compile_step)
    first, lengths = step.plan.plan.schedule, iter([100.0] * 5 + [200.0] * 5)
    other = _reversed(step.plan).plan
    monkeypatch.setattr(replan, "_length_us", lambda _run: next(lengths))
    solves: list[Plan] = []

    def better(plan: Plan, problem: Problem, _options: object) -> tuple[Plan, Plan]:
        solves.append(plan)
        return plan, replace(other, problem=problem)

    monkeypatch.setattr(replan, "plan_again", better)
    adopted: list[StepPlan] = []
    adopt = step.adopt
    monkeypatch.setattr(step, "adopt", lambda plan: adopted.append(plan) or adopt(plan))
    found = xe.fit(step, _data, replan=True)
    assert [one.plan.result.solver == "another" for one in adopted] == [True, False]
    assert step.plan.plan.schedule == first
    assert len(solves) == 1
    assert found.replanned is not None and found.replanned.rounds == 2
    assert found.losses == xe.fit(_step(compile_step), _data).losses


def test_an_interrupt_while_planning_leaves_a_checkpoint_and_the_plan(
    compile_step: Compile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step = _step(compile_step)

    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(replan, "plan_again", interrupted)
    before, path = step.plan, tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        xe.fit(step, _data, replan=True, checkpoint=path)
    assert step.plan is before and step.steps_taken == 6
    resumed = _step(compile_step)
    options = xe.CheckpointOptions(path, resume=True)
    assert (
        xe.fit(resumed, _data, checkpoint=options).losses
        == xe.fit(_step(compile_step), _data).losses[6:]
    )


def test_adopting_keeps_the_state_the_guard_and_the_comparison(compile_step: Compile) -> None:
    step, other = _step(compile_step), _step(compile_step)
    step.guard()
    assert step.compare_with_keep_all()
    for number, (x, y) in enumerate(_data(0)):
        if number == 7:
            before = step.state_dict()
            step.adopt(_reversed(step.plan))
            after = step.state_dict()
            assert all(torch.equal(before[name], after[name]) for name in before)
        assert step.step(x, y) == other.step(x, y)
    assert step.comparison is not None and step.comparison.is_identical
    with pytest.raises(xe.XEngineError):
        step.step(torch.full((8, 6), np.nan), torch.zeros(8, dtype=torch.int64))


def test_the_old_arenas_are_gone_before_the_new_ones_are_there(
    compile_step: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = _step(compile_step)
    old = weakref.ref(step.executable.arenas["cpu"])
    seen: list[bool] = []
    create = StepExecutable.__init__

    def watched(self: StepExecutable, *args: object, **options: object) -> None:
        gc.collect()
        seen.append(old() is None)
        create(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(StepExecutable, "__init__", watched)
    step.adopt(_reversed(step.plan))
    assert seen == [True]


def test_a_plan_that_cannot_be_built_leaves_the_step_as_it_was(
    compile_step: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, other = _step(compile_step), _step(compile_step)
    (x, y), *_ = _data(0)
    assert step.step(x, y) == other.step(x, y)
    create, before = StepExecutable.__init__, step.plan
    tried: list[int] = []

    def fails_once(self: StepExecutable, *args: object, **options: object) -> None:
        tried.append(1)
        if len(tried) == 1:
            raise MemoryError
        create(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(StepExecutable, "__init__", fails_once)
    with pytest.raises(MemoryError):
        step.adopt(_reversed(step.plan))
    assert step.plan is before
    assert step.step(x, y) == other.step(x, y)


def test_the_plan_of_another_step_is_refused(compile_step: Compile) -> None:
    step = _step(compile_step)
    with pytest.raises(InvalidScheduleError):
        step.adopt(compile_step("mlp", batch_size=4).plan)


def test_a_device_whose_calls_return_early_is_refused(
    compile_step: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StepExecutable, "launches", True)
    with pytest.raises(UnsupportedModelError, match="leave out replanning"):
        xe.fit(_step(compile_step), _data, replan=True)
