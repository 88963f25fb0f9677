"""Negations of comparisons hold for NaN, from each source of kernels and in C."""

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
ROW = torch.tensor([1.0, NAN, 0.0, 2.0, -1.0, INF, NAN, 0.5])
OTHER = torch.tensor([1.0, 1.0, NAN, 3.0, -1.0, NAN, NAN, 0.0])

Relation = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

RELATIONS: tuple[Relation, ...] = (
    lambda a, b: a != b,
    lambda a, b: a != a,
    lambda a, b: ~(a == b),
    lambda a, b: ~(a < b),
    lambda a, b: ~(a >= b),
    lambda a, b: ~((a < b) & (b > 0)),
    lambda a, b: (a < b) ^ (a > 0),
    lambda a, b: torch.logical_not(a),
    lambda a, b: torch.logical_and(a, b),
    lambda a, b: torch.where(~(a > 0.5), 0.0, a),
    lambda a, b: torch.where(a != a, 0.0, a),
    lambda a, b: a.masked_fill(~(2 * a <= b), 7.0),
)


class Relations(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(8))
        self.v = nn.Parameter(OTHER.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x * self.w, self.v * self.w
        return torch.stack([of(a, b.expand_as(a)).float() for of in RELATIONS], 1)


@pytest.fixture(scope="module")
def training() -> xe.Training:
    return xe.training_step(Relations(), ROW[None], loss="mse", optimizer=xe.SGD(1.0))


def test_compiled_kernels_compare_nan_as_pytorch_does(training: xe.Training) -> None:
    lowered = xe.lower(training, xe.processor())
    plan = xe.plan(xe.make_problem(lowered, costs="roofline"), solver="greedy")
    found = xe.build(lowered, plan).predict(ROW[None])
    np.testing.assert_array_equal(found, Relations()(ROW[None]).detach().numpy())


@pytest.mark.slow
def test_a_package_in_c_compares_nan_as_pytorch_does(training: xe.Training, tmp_path: Path) -> None:
    need_tools("host")
    report = xe.export_for_target(training, tmp_path / "package", regions={"sram": "1MiB"})
    session = Session(report, tmp_path, f"-D{report.package.macro}_NAN_GUARD=0")
    assert session.init() == 0
    assert session.call("state_reset") == 0
    expected = Relations()(ROW[None]).detach().numpy()
    found = np.zeros(expected.shape, np.float32)
    assert session.call("eval", ROW[None].numpy(), found) == 0
    np.testing.assert_array_equal(found, expected)
