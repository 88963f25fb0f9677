from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from tests.kernels.onednn.onednn_twins import needs_onednn
from tests.passes.fusion.test_fuse_in_order import kernels, random, run
from tvm_xengine.compiler import lower
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.cost_models.prediction.predict import predict_costs
from tvm_xengine.frontends.load import load_model
from tvm_xengine.kernels.library.parts import kernel_parts
from tvm_xengine.passes.fusion.split_groups import KernelNeeds, SplitGroups
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.dataflow import single_block
from tvm_xengine.relax_ir.kernel_calls import read_origins
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.training.build import build_training_step


@I.ir_module
class Twice:
    """The same product and its activation, in two places."""

    @R.function
    def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            a = R.tanh(R.matmul(x, w))
            b = R.tanh(R.matmul(a, w))
            out = R.sum(b)
            R.output(out)
        return out


@I.ir_module
class Named:
    """A product and its activation, in variables."""

    @R.function
    def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            product = R.matmul(x, w)
            act = R.tanh(product)
            out = R.sum(act)
            R.output(out)
        return out


@I.ir_module
class ShortResult:
    """A convolution that is stored short, so that nothing can be written over its result."""

    @R.function
    def main(x: R.Tensor((8, 64, 56, 56), "float32"), w: R.Tensor((64, 64, 3, 3), "float32")):
        with R.dataflow():
            made = R.nn.conv2d(x, w, padding=(1, 1))
            short = R.astype(made, "float16")
            out = R.sum(short)
            R.output(out)
        return out


def needs(extra_bytes, apart_us):
    """Fused kernels take so much more memory, and their parts so much more time."""

    def is_fused(func):
        parts = kernel_parts(func)
        return parts is not None and len(parts.parts) > 1

    return KernelNeeds(
        workspace_bytes=lambda func: extra_bytes if is_fused(func) else 0,
        time_us=lambda func: 1.0 if is_fused(func) else apart_us,
    )


def split(mod, *needed):
    passes = [LowerToKernels("main"), SplitGroups("main", needs(*needed))]
    return tvm.transform.Sequential(passes)(mod)


def test_a_kernel_that_needs_much_is_taken_apart_wherever_it_is_called():
    assert kernels(split(Twice, 0, 1.0)) == ["fused_matmul_tir_tanh"] * 2 + ["sum"]
    names = kernels(split(Twice, 2**20, 1.0))
    assert len(names) == 5
    assert not any(name.startswith("fused") for name in names)


def test_parts_keep_the_names_that_they_had_before_they_were_fused():
    whole = split(Named, 0, 1.0)["main"]
    assert read_origins(whole) == {"matmul_tir_tanh": ("product", "act")}
    apart = split(Named, 1 << 30, 0.25)["main"]
    assert next(iter(single_block(apart).bindings)).var.name == "product"
    assert read_origins(apart)["matmul_tir_tanh"] == ("act",)


def test_a_kernel_stays_whole_where_that_saves_more_time_than_memory():
    assert len(kernels(split(Twice, 2**14, 100.0))) == 3
    assert len(kernels(split(Twice, 2**17, 100.0))) == 3
    assert len(kernels(split(Twice, 2**30, 100.0))) == 5


def test_the_numbers_stay():
    inputs = [random(64, 64), random(64, 64)]
    (plain,) = run(LowerToKernels("main", fuse=False)(Twice), *inputs)
    (apart,) = run(split(Twice, 2**20, 1.0), *inputs)
    np.testing.assert_allclose(apart, plain, rtol=1e-5)


@tvm.transform.module_pass(opt_level=0, name="Nothing")
class Nothing:
    def __init__(self, *_):
        pass

    def transform_module(self, mod, _ctx):
        return mod


def arena_and_time(mod, func_name, sources):
    platform = Platform((Device("cpu", "llvm -mcpu=native", kernels=sources),))
    step = lower_step(mod, platform, func_name=func_name)
    problem = make_problem(step, lambda ks: predict_costs(ks, None))
    plan = plan_keep_all(problem, "cpu")
    return plan.arenas.arena_bytes["cpu"], plan.simulation.cost_us


def with_and_without(mod, func_name, sources, monkeypatch):
    ours = arena_and_time(mod, func_name, sources)
    monkeypatch.setattr(lower, "SplitGroups", Nothing)
    return ours, arena_and_time(mod, func_name, sources)


@needs_onednn
def test_the_planned_arena_of_a_short_result_is_smaller(monkeypatch):
    sources = ("onednn", "tir")
    attrs = {
        "tvm_xengine.roles": ["batch", "parameter"],
        "tvm_xengine.num_results": 1,
        "tvm_xengine.results": ["out"],
        "tvm_xengine.updates": [],
    }
    mod = ShortResult.clone()
    mod["main"] = relax.transform.Normalize()(mod)["main"].with_attrs(attrs)
    (ours, _), (fused, _) = with_and_without(mod, "main", sources, monkeypatch)
    assert ours < 0.95 * fused


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ds_cnn", "resnet8", "gpt_nano"])
@pytest.mark.parametrize(
    "sources",
    [
        pytest.param(("onednn", "tir"), marks=needs_onednn),
        ("tir",),
    ],
    ids=lambda s: s[0],
)
def test_networks_lose_no_more_time_than_they_save_memory(name, sources, monkeypatch):
    training = build_training_step(load_model(name, batch_size=4))
    ours, fused = with_and_without(training.mod, "train_step", sources, monkeypatch)
    assert ours[0] <= fused[0]
    assert ours[0] * ours[1] <= 1.001 * fused[0] * fused[1]
