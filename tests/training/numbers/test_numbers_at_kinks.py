"""NaN, infinities, signed zeros and ties have PyTorch's results, from each source of kernels and in C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.aot.examples import need_tools
from tests.aot.test_package import Session

NAN, INF = float("nan"), float("inf")
ROWS = torch.tensor(
    [
        [0.5, -1.0, 2.0, 2.0, -0.25, 0.0, -0.0, 6.0],
        [NAN, -1.0, 2.0, 2.0, -0.25, 0.0, -0.0, 6.0],
        [INF, -1.0, 2.0, 3.0, -3.0, 0.0, -0.0, 7.0],
        [-INF, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        [0.0, -0.0, 0.0, -0.0, 0.0, -0.0, 0.0, -0.0],
        [-2.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0],
    ]
)
"""Every row is a sample: what is not finite in one must not show in another."""


def pooled(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.max_pool2d(x.reshape(-1, 1, 2, 4), (2, 2), (1, 2), (1, 0)).flatten(1)


KINKS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    torch.relu,
    nn.functional.relu6,
    nn.functional.hardtanh,
    nn.functional.hardswish,
    nn.functional.hardsigmoid,
    nn.functional.leaky_relu,
    nn.functional.elu,
    nn.functional.celu,
    torch.abs,
    lambda x: x.clamp(-0.25, 2.0),
    lambda x: x.clamp(2.0, -0.25),
    lambda x: torch.maximum(x, x.flip(1)),
    lambda x: torch.minimum(x, x.flip(1)),
    lambda x: x.amax(1, keepdim=True),
    lambda x: x.amin(1, keepdim=True),
    lambda x: x.max(1, keepdim=True)[0],
    pooled,
)


class Kinks(nn.Module):
    """Each of `KINKS` of the numbers times their weights; a row depends on its own numbers only."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(ROWS.shape[1]))
        self.norm = nn.BatchNorm1d(ROWS.shape[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.w
        return torch.cat([*(of(x) for of in KINKS), torch.relu(self.norm(x))], 1)


@pytest.fixture(scope="module")
def training() -> xe.Training:
    return xe.training_step(Kinks(), ROWS, loss="mse", optimizer=xe.SGD(1.0))


def expected() -> np.ndarray:
    with torch.no_grad():
        return Kinks().eval()(ROWS).numpy()


def test_compiled_kernels_keep_them(training: xe.Training) -> None:
    lowered = xe.lower(training, xe.processor())
    plan = xe.plan(xe.make_problem(lowered, costs="roofline"), solver="greedy")
    step = xe.build(lowered, plan)
    np.testing.assert_allclose(step.predict(ROWS), expected(), rtol=1e-5)


def test_gradients_at_ties_and_bounds_are_those_of_pytorch(training: xe.Training) -> None:
    lowered = xe.lower(training, xe.processor())
    plan = xe.plan(xe.make_problem(lowered, costs="roofline"), solver="greedy")
    step = xe.build(lowered, plan)
    rows = torch.where(ROWS.isfinite(), ROWS, 1.0)
    module = Kinks()
    loss = nn.functional.mse_loss(module(rows), torch.zeros_like(module(rows)))
    loss.backward()
    assert module.w.grad is not None
    assert step(rows, torch.zeros(expected().shape)) == pytest.approx(loss.item(), rel=1e-5)
    moved = (module.w - module.w.grad).detach().numpy()
    np.testing.assert_allclose(step.state_dict()["w"], moved, rtol=1e-5)


@pytest.mark.slow
def test_a_package_in_c_keeps_them(training: xe.Training, tmp_path: Path) -> None:
    need_tools("host")
    report = xe.export_for_target(training, tmp_path / "package", regions={"sram": "1MiB"})
    session = Session(report, tmp_path, f"-D{report.package.macro}_NAN_GUARD=0")
    assert session.init() == 0
    assert session.call("state_reset") == 0
    found = np.zeros(expected().shape, np.float32)
    assert session.call("eval", ROWS.numpy(), found) == 0
    np.testing.assert_allclose(found, expected(), rtol=1e-5)
