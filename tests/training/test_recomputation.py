"""Ops with randomness or statistics may be computed again: nothing changes by it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.autograd import exported
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.planning.plan import Plan
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.scheduling.schedule import Compute, with_frees
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.training.build import build_training_step

CPU = Platform((Device("cpu", "llvm -mcpu=native", kernels=("tir",)),))


class Network(nn.Module):
    """A batch norm between two dropouts."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.first, self.second = nn.Dropout(0.3), nn.Dropout(0.5)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.norm(self.first(self.conv(x))))
        return self.head(self.second(x).mean((2, 3)))


def _with_forward_repeated(plan: Plan) -> Plan:
    """The same plan, but every op that may be repeated is once more before the backward pass."""
    problem = plan.problem
    names = [op.name for op in problem.graph.ops]
    loss = next(k for k, name in enumerate(names) if "cross_entropy_backward" in name)
    repeated = [op.name for op in problem.graph.ops[:loss] if op.recomputable]
    assert any("dropout" in name for name in repeated)
    assert any("batch_norm_forward" in name for name in repeated)
    assert not any("statistics" in name for name in repeated)
    order = [*names[:loss], *repeated, *names[loss:]]
    schedule = with_frees(problem, [Compute(name, "cpu") for name in order])
    arenas = plan_arenas(problem, schedule)
    return replace(plan, schedule=schedule, simulation=simulate(problem, schedule), arenas=arenas)


@pytest.mark.slow
def test_repeating_the_forward_pass_gives_the_same_bits_and_one_update_of_the_statistics() -> None:
    torch.manual_seed(0)
    module, x = Network().train(), torch.randn(4, 2, 6, 6)
    labels = torch.randint(0, 3, (4,))
    training = build_training_step(exported(module, x))
    lowered = lower_step(training.mod, CPU)
    costs = {kernel.symbol: OpCost(1.0) for kernel in lowered.kernels.values()}
    kept = plan_keep_all(make_problem(lowered, lambda _: costs), "cpu")
    batch = {"x": x.numpy(), "labels": labels.numpy(), "lr": np.float32(0.1)}

    def after_three_steps(executable: StepExecutable) -> dict[str, np.ndarray]:
        executable.write(training.initial_state)
        for _ in range(3):
            executable.step(batch)
        return executable.read_state()

    expected = after_three_steps(build_step(lowered, kept))
    found = after_three_steps(build_step(lowered, _with_forward_repeated(kept)))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert found["step"] == 3
    assert not np.array_equal(
        found["norm_running_mean"], training.initial_state["norm_running_mean"]
    )
