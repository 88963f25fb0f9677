"""A run that is planned again goes on with the same numbers."""

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.api.networks import perceptron
from tests.conftest import Compile
from tvm_xengine.errors import InvalidScheduleError, UnsupportedModelError
from tvm_xengine.planning.keep_all import keep_all_on
from tvm_xengine.planning.plan import Plan
from tvm_xengine.runtime.events import can_overlap
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.marks import Marks
from tvm_xengine.scheduling.problem import CostSource, Problem
from tvm_xengine.scheduling.schedule import Compute, Step, Transfer, with_frees
from tvm_xengine.session.plans import replan
from tvm_xengine.session.stages.plan import StepPlan
from tvm_xengine.solvers.result import Objective

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
    return _with(plan, found)


def _in_alternation(plan: StepPlan) -> StepPlan:
    """The ops on both devices in turn, updates at home, planned for the makespan."""
    problem, steps = plan.plan.problem, list[Step]()
    there = {*problem.home.items()}
    for number, op in enumerate(problem.graph.ops):
        device = "ab"[number % 2] if not op.updates else "a"
        for name in problem.graph.reads[op.name]:
            if (name, device) not in there:
                steps.append(Transfer(name, "ab"[device == "a"], device))
                there.add((name, device))
        steps.append(Compute(op.name, device))
        there |= {(name, device) for name in op.outputs}
    found = Plan.of_schedule(problem, with_frees(problem, steps), solver="in alternation")
    return _with(plan, replace(found, result=replace(found.result, objective=Objective.MAKESPAN)))


def _with(plan: StepPlan, found: Plan) -> StepPlan:
    return replace(plan, planned=replace(plan.planned, plan=found))


def _let_rounds_take(monkeypatch: pytest.MonkeyPatch, *rounds_us: float) -> None:
    """Let the steps of each round of measuring seem to take so long."""
    times_us = iter([each_us for each_us in rounds_us for _ in range(6)])

    def run(self: Marks, step: Callable[[], object]) -> None:
        step()
        self.last_us = next(times_us)

    monkeypatch.setattr(Marks, "run", run)


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
    first = step.plan.plan.schedule
    other = _reversed(step.plan).plan
    _let_rounds_take(monkeypatch, 1e6, 2e6)
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


@pytest.mark.skipif(not can_overlap(), reason="devices run in turn here")
@pytest.mark.parametrize(
    ("in_turn_us", "is_faster"),
    [
        pytest.param(0.5e6, True, id="faster"),
        pytest.param(2e6, False, id="slower", marks=pytest.mark.slow),
    ],
)
def test_devices_that_slow_each_other_down_take_turns(
    in_turn_us: float,
    is_faster: bool,
    compile_step: Compile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The step is also measured in turn, and the faster plan of both goes on."""
    devices = tuple(xe.Device(name, "llvm", kernels=("tir",)) for name in "ab")
    links = (xe.Link("a", "b", 1.0, 10.0), xe.Link("b", "a", 1.0, 10.0))
    options = {"platform": xe.Platform(devices, links), "objective": "makespan"}
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.Linear(256, 5))

    def step() -> xe.Step:
        torch.manual_seed(1)
        return compile_step(net, torch.zeros(32, 64), loss="cross_entropy", **options)

    def data(_epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        generator = torch.Generator().manual_seed(3)
        for _ in range(BATCHES):
            labels = torch.randint(0, 5, (32,), generator=generator)
            yield torch.rand(32, 64, generator=generator), labels

    replanned, usual = step(), step()
    replanned.adopt(_in_alternation(replanned.plan))
    assert replanned.executable.is_overlapped
    _let_rounds_take(monkeypatch, 1e6, in_turn_us, 3e6)
    monkeypatch.setattr(replan, "plan_again", lambda plan, problem, _: (plan.under(problem), None))
    found = xe.fit(replanned, data, replan=True)
    assert replanned.executable.is_overlapped is not is_faster
    objective = replanned.plan.plan.result.objective
    assert objective is (Objective.COST if is_faster else Objective.MAKESPAN)
    assert found.replanned is not None and found.replanned.rounds == 2
    np.testing.assert_allclose(found.losses, xe.fit(usual, data).losses, rtol=1e-5)


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
