"""Reductions over nothing keep their initial value, whatever their memory holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import te, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_xengine as xe
from tests.aot.examples import need_tools
from tests.kernels.kernels import BASELINE, NATIVE, run_kernel
from tests.session.test_export_c import self_test
from tvm_xengine.passes.lowering.drop_empty_reductions import DropEmptyReductions

ROWS, COLUMNS = 2, 3
X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype("float32")


@I.ir_module
class Before:
    @T.prim_func(private=True, s_tir=True)
    def over_no_axis(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32")):
        for i in range(3):
            with T.sblock("y"):
                vi = T.axis.spatial(3, i)
                T.reads(x[vi])
                T.writes(y[vi])
                with T.init():
                    y[vi] = T.float32(0)
                y[vi] = y[vi] + x[vi]

    @T.prim_func(private=True, s_tir=True)
    def over_an_empty_axis(x: T.Buffer((0, 3), "float32"), y: T.Buffer((3,), "float32")):
        for i, k in T.grid(3, 0):
            with T.sblock("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(x[vk, vi])
                T.writes(y[vi])
                with T.init():
                    y[vi] = T.float32(0)
                y[vi] = y[vi] + x[vk, vi]

    @R.function
    def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        return x


@I.ir_module
class Expected:
    @T.prim_func(private=True, s_tir=True)
    def over_no_axis(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32")):
        for i in range(3):
            with T.sblock("y"):
                vi = T.axis.spatial(3, i)
                T.reads(x[vi])
                T.writes(y[vi])
                y[vi] = T.Add(T.float32(0), x[vi])

    @T.prim_func(private=True, s_tir=True)
    def over_an_empty_axis(x: T.Buffer((0, 3), "float32"), y: T.Buffer((3,), "float32")):
        for i in range(3):
            with T.sblock("y"):
                vi = T.axis.spatial(3, i)
                T.reads()
                T.writes(y[vi])
                y[vi] = T.float32(0)

    @R.function
    def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        return x


def test_an_initial_value_becomes_part_of_the_assignment() -> None:
    tvm.ir.assert_structural_equal(DropEmptyReductions()(Before), Expected)


def kernel(fold: Callable[..., tirx.Expr]) -> tirx.PrimFunc:
    """A reduction over no axes, and something behind it."""
    x = te.placeholder((ROWS, COLUMNS), "float32", name="x")
    reduced = te.compute(x.shape, lambda i, j: fold(x[i, j], axis=[]), name="reduced")
    return te.create_prim_func([x, te.compute(x.shape, lambda i, j: reduced[i, j] * 2.0)])


def first_largest(x: tirx.Expr, axis: object) -> tirx.Expr:
    """The position of the largest value and the value: two stores in one block."""

    def larger(a: tuple[tirx.Expr, ...], b: tuple[tirx.Expr, ...]) -> tuple[tirx.Expr, ...]:
        return tuple(tirx.Select(a[1] >= b[1], one, other) for one, other in zip(a, b, strict=True))

    reducer = te.comm_reducer(
        larger, lambda t0, t1: (tirx.const(-1, t0), tirx.min_value(t1)), "first_largest"
    )
    return reducer((tirx.const(7, "int32"), x), axis=axis)


@pytest.mark.parametrize("target", [NATIVE, BASELINE])
@pytest.mark.parametrize("fold", [te.sum, te.max, te.min])
def test_a_reduction_over_no_axes_is_its_term_in_poisoned_memory(
    target: str, fold: Callable[..., tirx.Expr]
) -> None:
    (found,) = run_kernel(kernel(fold), target, X)
    np.testing.assert_array_equal(found, 2 * X)


def test_a_reduction_with_two_results_over_no_axes_starts_at_its_initial_values() -> None:
    x = te.placeholder((ROWS, COLUMNS), "float32", name="x")
    made = te.compute(x.shape, lambda i, j: first_largest(x[i, j], []), name="largest")
    positions, values = run_kernel(te.create_prim_func([x, *made]), NATIVE, X)
    np.testing.assert_array_equal(positions, np.full_like(positions, 7))
    np.testing.assert_array_equal(values, X)


@pytest.mark.parametrize(("fold", "start"), [(te.sum, 0.0), (te.max, -np.inf), (te.min, np.inf)])
def test_a_reduction_over_nothing_is_its_initial_value(
    fold: Callable[..., tirx.Expr], start: float
) -> None:
    x = te.placeholder((0, COLUMNS), "float32", name="x")
    k = te.reduce_axis((0, 0), name="k")
    func = te.create_prim_func(
        [x, te.compute((COLUMNS,), lambda j: fold(x[k, j], axis=k), name="y")]
    )
    (found,) = run_kernel(func, NATIVE, X[:0])
    limit = np.clip(start, np.finfo("float32").min, np.finfo("float32").max)
    np.testing.assert_array_equal(found, np.full(COLUMNS, limit, "float32"))


class NormOverAllAxes(nn.Module):
    """Nothing is left to sum over for the gradients of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(COLUMNS, COLUMNS)
        self.norm = nn.LayerNorm((ROWS, COLUMNS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.tanh(self.first(x)))


@pytest.mark.slow
def test_weights_of_a_norm_over_all_axes_are_trained_as_in_pytorch(
    cache: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    module, x, targets = NormOverAllAxes(), torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)
    training = xe.training_step(module, x, loss="mse", optimizer=xe.SGD(0.1, momentum=0.9))
    lowered = xe.lower(training, cache=cache)
    plan = xe.plan(xe.make_problem(lowered, costs="roofline"), time_limit_s=2.0)
    step = xe.build(lowered, plan)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        loss = nn.functional.mse_loss(module(x), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert float(step(x, targets)) == pytest.approx(loss.item(), rel=1e-5)
    for name, value in module.state_dict().items():
        torch.testing.assert_close(step.state_dict()[name], value, rtol=1e-5, atol=1e-6)
    need_tools("host")
    self_test(xe.export_c(lowered, plan, tmp_path / "out"), tmp_path)
