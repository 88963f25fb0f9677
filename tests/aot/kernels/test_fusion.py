"""Fused kernels of an export are taken apart where that makes the arena smaller and pays."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tvm
from tvm.target import Target

from tests.passes.fusion.test_split_groups import Nothing
from tvm_xengine.aot.plan import kernels
from tvm_xengine.aot.plan.kernels import Optimize, lower_for_target
from tvm_xengine.compiler import lower
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.frontends.load import load_model
from tvm_xengine.kernels.library.parts import kernel_parts
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.optimizers import SGD

C = Target({"kind": "c"})
RAM = Platform((Device("ram", "c"),))
HUNGRY_BYTES = 2**20


def arena_and_time(mod: tvm.IRModule, optimize: Optimize) -> tuple[int, float]:
    step = lower_for_target(mod, RAM, C, optimize, TRAIN_STEP)
    problem = make_problem(step, lambda ks: {k.symbol: OpCost(kernels.operations(k)) for k in ks})
    plan = plan_keep_all(problem, "ram")
    return plan.arenas.arena_bytes["ram"], plan.simulation.cost_us


def before_and_after(mod, optimize, monkeypatch):
    after = arena_and_time(mod, optimize)
    with monkeypatch.context() as patched:
        patched.setattr(lower, "SplitGroups", Nothing)
        return arena_and_time(mod, optimize), after


def training_of(name: str) -> tvm.IRModule:
    return build_training_step(load_model(name, batch_size=1), optimizer=SGD()).mod


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet", "ds_cnn", "gpt_nano"])
@pytest.mark.parametrize("optimize", Optimize)
def test_exports_lose_no_more_time_than_they_save_memory(name, optimize, monkeypatch):
    before, after = before_and_after(training_of(name), optimize, monkeypatch)
    assert after[0] <= before[0]
    assert after[0] * after[1] <= 1.001 * before[0] * before[1]


@pytest.mark.slow
@pytest.mark.parametrize("optimize", [Optimize.SPEED, Optimize.SIZE])
def test_fused_kernels_that_need_much_memory_are_taken_apart(optimize, monkeypatch):
    as_it_is = kernels.prepare_for_target

    def hungry(func, *arguments):
        parts = kernel_parts(func)
        kernel = as_it_is(func, *arguments)
        if parts is None or len(parts.parts) < 2:
            return kernel
        return replace(kernel, workspace_bytes=HUNGRY_BYTES)

    monkeypatch.setattr(kernels, "prepare_for_target", hungry)
    before, after = before_and_after(training_of("lenet"), optimize, monkeypatch)
    assert before[0] > HUNGRY_BYTES
    assert after[0] < before[0] - HUNGRY_BYTES // 2
