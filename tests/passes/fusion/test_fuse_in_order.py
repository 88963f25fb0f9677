from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from tests.training.autograd import exported
from tests.vm import computed
from tvm_xengine.compiler import lower
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.frontends.load import load_model
from tvm_xengine.passes.lowering import lower_to_kernels
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.dataflow import single_block
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.training.build import build_training_step


@I.ir_module
class Branches:
    """Two products that are added, with something else to do between them."""

    @R.function
    def main(
        x: R.Tensor((64, 64), "float32"),
        v: R.Tensor((64, 64), "float32"),
        w: R.Tensor((64, 64), "float32"),
    ):
        with R.dataflow():
            left = R.matmul(x, w)
            beside = R.matmul(v, x)
            right = R.matmul(beside, w)
            far = R.matmul(right, v)
            both = R.add(left, right)
            out = (both, far)
            R.output(out)
        return out


@I.ir_module
class LongSlice:
    """A slice of something large, which is added to what comes much later."""

    @R.function
    def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            large = R.matmul(R.matmul(x, w), w)
            piece = R.strided_slice(large, [1], [0], [4], [1])
            a = R.matmul(x, w)
            b = R.matmul(a, w)
            c = R.strided_slice(b, [1], [8], [12], [1])
            d = R.matmul(R.permute_dims(c), w)
            e = R.matmul(R.permute_dims(d), d)
            f = R.strided_slice(e, [1], [0], [4], [1])
            out = R.add(piece, f)
            R.output(out)
        return out


def lowered(mod, name="main", fuse=True):
    return tvm.transform.Sequential([LowerToKernels(name, fuse=fuse)])(mod)


def kernels(mod, name="main"):
    return [
        str(binding.value.args[0].name_hint)
        for binding in single_block(mod[name]).bindings
        if isinstance(binding.value, tvm.ir.Call)
        and binding.value.op == tvm.ir.Op.get("relax.call_tir")
    ]


def run(mod, *arrays):
    return computed(mod, arrays)


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32") / 8


def test_a_group_does_not_move_what_it_waits_for_in_front_of_other_calls():
    names = kernels(lowered(Branches))
    fused = next(k for k, name in enumerate(names) if name.startswith("fused"))
    assert len(names) == 4
    assert fused >= 2, names  # not before the two products that lead to its other operand


@pytest.mark.parametrize("mod", [Branches, LongSlice])
def test_the_numbers_stay(mod):
    inputs = [random(64, 64) for _ in mod["main"].params]
    plain = run(lowered(mod, fuse=False), *inputs)
    for got, expected in zip(run(lowered(mod), *inputs), plain, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_slice_does_not_wait_with_all_it_is_cut_from():
    names = kernels(lowered(LongSlice))
    assert any(name.startswith("strided_slice") for name in names), names


class Averaged(nn.Module):
    """A mean that each call moves, and a factor beside the weights: both are buffers."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("factor", torch.ones(6))

    def forward(self, x):
        h = self.first(x)
        self.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
        return self.last((h - self.mean) * self.factor)


def test_what_reads_weights_stays_in_front_of_their_update():
    training = build_training_step(exported(Averaged(), torch.randn(4, 6)))
    step = lower_step(training.mod, Platform((Device("cpu", "llvm -mcpu=x86-64-v3"),)))
    problem = make_problem(step, lambda ks: {k.symbol: OpCost(1.0) for k in ks})
    assert any("data_gradient_multiply" in op.name for op in problem.graph.ops)
    plan_keep_all(problem, "cpu")


def arena_bytes(training, fuse, monkeypatch, plain=False):
    """Arena of keeping all tensors on one processor."""
    with monkeypatch.context() as patch:
        patch.setattr(
            lower,
            "LowerToKernels",
            lambda name: LowerToKernels(name, fuse=fuse),
        )
        if plain:
            patch.setattr(lower_to_kernels, "FuseInOrder", lambda _: relax.transform.FuseOps())
        platform = Platform((Device("cpu", "llvm -mcpu=x86-64-v3"),))
        step = lower_step(training.mod, platform)
    problem = make_problem(step, lambda ks: {k.symbol: OpCost(1.0) for k in ks})
    return plan_keep_all(problem, "cpu").arenas.arena_bytes["cpu"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "batch", "size"),
    [
        ("resnet8", 8, None),
        ("gpt_nano", 1, None),
        ("resnet18", 4, None),
        ("unet", 1, 32),
    ],
)
def test_fusion_does_not_make_the_arena_larger(name, batch, size, monkeypatch):
    training = build_training_step(load_model(name, batch_size=batch, size=size))
    ours = arena_bytes(training, True, monkeypatch)
    assert ours <= arena_bytes(training, True, monkeypatch, plain=True)
    assert ours <= arena_bytes(training, False, monkeypatch)
