import itertools

import numpy as np
import pytest

from tests.passes.small_step import SmallStep, two_cpus
from tests.runtime.trained import train
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.runtime.comparison import relative_difference
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.scheduling.problem import OpCost

X = np.random.default_rng(0).random((4, 8), dtype="float32")
STATE = {"w": np.random.default_rng(1).random(32, dtype="float32")}


@pytest.fixture(scope="module")
def executables() -> dict[str, StepExecutable]:
    """The same step on either device, its loss reduced to one number by the test."""
    step = lower_step(SmallStep, two_cpus())
    problem = make_problem(step, lambda kernels: {k.symbol: OpCost(1.0) for k in kernels})
    return {
        device: build_step(step, plan_keep_all(problem, device))
        for device in ("cpu", "cpu_generic")
    }


def first_entry_as_loss(executable: StepExecutable) -> StepExecutable:
    whole = executable.read_results
    executable.read_results = lambda: {"loss": whole()["loss"].reshape(-1)[0]}  # type: ignore[method-assign]
    return executable


def test_a_reference_of_the_same_plan_is_bit_identical(
    executables: dict[str, StepExecutable],
) -> None:
    executable = first_entry_as_loss(executables["cpu"])
    batches = itertools.repeat({"x": X, "lr": np.float32(0.1)})
    trace, comparison = train(executable, STATE, batches, 4, reference=executable)
    assert comparison is not None
    assert comparison.is_identical
    assert comparison.max_rel_diff == 0.0
    assert len(trace.losses) == len(trace.step_us) == len(comparison.reference_step_us) == 4


def test_a_reference_that_does_something_else_is_noticed(
    executables: dict[str, StepExecutable],
) -> None:
    planned, other = (first_entry_as_loss(e) for e in executables.values())
    run = other.run

    def disturbed() -> None:
        run()
        other.write({"w": other.read_state()["w"] * np.float32(1.01)})

    other.run = disturbed  # type: ignore[method-assign]
    batches = itertools.repeat({"x": X, "lr": np.float32(0.1)})
    _, comparison = train(planned, STATE, batches, 2, reference=other)
    assert comparison is not None
    assert not comparison.is_identical
    assert comparison.max_rel_diff == pytest.approx(0.01 / 1.01, rel=1e-4)


def test_relative_difference_is_that_of_all_tensors_together() -> None:
    a = [np.array([3.0, 0.0]), np.array([4.1])]
    b = [np.array([3.0, 0.0]), np.array([4.0])]
    assert relative_difference(a, b) == pytest.approx(0.02)
