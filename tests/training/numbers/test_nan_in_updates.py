"""NaN and infinities in gradients and statistics go through updates as PyTorch lets them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.aot.examples import need_tools
from tests.aot.test_package import Session

NAN, INF = float("nan"), float("inf")
FIRST = torch.tensor([[0.5, NAN, -2.0, 3.0], [1.0, 2.0, INF, -1.0]])
SECOND = torch.tensor([[1.0, 2.0, 3.0, -4.0], [0.5, 0.25, -1.0, 2.0]])
BATCHES = (SECOND, FIRST, SECOND)
"""A good batch, a bad one, and a good one, which shows what stays."""


class Sums(nn.Module):
    """The gradient of each number of `w` is the sum of its column, that of `v` is always finite."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(4))
        self.v = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.w).sum() + (torch.nan_to_num(x) * 0.5 + self.v * 2.0).sum()


class Normed(nn.Module):
    """Running statistics of columns, of which two are bad in one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x).sum()


class RunningLogs(nn.Module):
    """Logarithms of running sums, of rows with infinities and with NaN."""

    rows: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        rows = [[0.5, -1.0, 2.0, 0.0], [-INF, 1.0, 2.0, 3.0], [1.0, INF, 0.0, 2.0], [1, 2, NAN, 3]]
        self.register_buffer("rows", torch.tensor(rows))
        self.w = nn.Parameter(torch.zeros(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.logcumsumexp(self.rows + self.w, 1)
        return (
            torch.where(made.isfinite(), made, 0.0) * torch.nan_to_num(x, posinf=1).sum(0)
        ).sum()


@dataclass(frozen=True)
class Case:
    """A step of ours, and the same in PyTorch."""

    module: Callable[[], nn.Module]
    ours: xe.Optimizer
    theirs: Callable[..., torch.optim.Optimizer]
    clip_norm: float | None = None
    clip_value: float | None = None

    def training(self) -> xe.Training:
        return xe.training_step(
            self.module(),
            SECOND,
            optimizer=self.ours,
            clip_norm=self.clip_norm,
            clip_value=self.clip_value,
        )

    def expected(self) -> dict[str, np.ndarray]:
        module = self.module()
        optimizer = self.theirs(module.parameters())
        for batch in BATCHES:
            optimizer.zero_grad()
            module(batch).backward()
            if self.clip_value is not None:
                nn.utils.clip_grad_value_(module.parameters(), self.clip_value)
            if self.clip_norm is not None:
                nn.utils.clip_grad_norm_(module.parameters(), self.clip_norm)
            optimizer.step()
        return {name: value.detach().numpy() for name, value in module.state_dict().items()}


def sgd(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.1)  # type: ignore[arg-type]


def amsgrad(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, 0.1, amsgrad=True)  # type: ignore[arg-type]


CASES = {
    "plain": Case(Sums, xe.SGD(0.1), sgd),
    "clipped by norm": Case(Sums, xe.SGD(0.1), sgd, clip_norm=1.0),
    "clipped by value": Case(Sums, xe.SGD(0.1), sgd, clip_value=1.5),
    "clipped by both": Case(Sums, xe.SGD(0.1), sgd, clip_norm=1.0, clip_value=1.5),
    "amsgrad": Case(Sums, xe.Adam(0.1, amsgrad=True), amsgrad),
    "running statistics": Case(Normed, xe.SGD(0.1), sgd),
    "running logarithms": Case(RunningLogs, xe.SGD(0.1), sgd),
}


QUICK = {"plain", "clipped by both", "amsgrad", "running statistics"}


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        *((name, ("tir",)) for name in CASES if name in QUICK),
        ("running statistics", ("onednn", "tir")),
        *(
            pytest.param(name, ("tir",), marks=pytest.mark.slow)
            for name in CASES
            if name not in QUICK
        ),
        *(
            pytest.param(name, ("onednn", "tir"), marks=pytest.mark.slow)
            for name in CASES
            if name != "running statistics"
        ),
    ],
)
def test_compiled_steps_let_them_through(name: str, kernels: tuple[str, ...]) -> None:
    (device,) = xe.processor().devices
    platform = xe.Platform(devices=(replace(device, kernels=kernels),))
    lowered = xe.lower(CASES[name].training(), platform)
    step = xe.build(lowered, xe.plan(xe.make_problem(lowered, costs="roofline"), solver="greedy"))
    for batch in BATCHES:
        step(batch)
    found, expected = step.state_dict(), CASES[name].expected()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize(
    "name",
    [
        name if name == "clipped by both" else pytest.param(name, marks=pytest.mark.slow)
        for name in CASES
    ],
)
def test_a_package_in_c_lets_them_through(name: str, tmp_path: Path) -> None:
    """Without its guard, which would refuse the batch."""
    need_tools("host")
    training = CASES[name].training()
    report = xe.export_for_target(training, tmp_path / "package", regions={"sram": "1MiB"})
    session = Session(report, tmp_path, f"-D{report.package.macro}_NAN_GUARD=0")
    assert session.init() == 0
    assert session.call("state_reset") == 0
    assert session.call("set_lr", ctypes.c_float(0.1)) == 0
    for batch in BATCHES:
        assert session.call("train_step", batch.numpy(), None, None) == 0
    expected = CASES[name].expected()
    variables = {role.name: role.variable for role in training.roles}
    written = {tensor.name for tensor in report.package.state}
    compared = [key for key in expected if variables.get(key) in written]
    assert compared
    for key in compared:
        found = session.state(variables[key])
        np.testing.assert_allclose(found, expected[key], rtol=1e-5, atol=1e-6, err_msg=key)
