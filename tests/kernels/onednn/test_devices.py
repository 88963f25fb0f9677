"""Devices take their kernels from where their platform says."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from tests.kernels.onednn.onednn_twins import (
    NATIVE,
    assert_twins_agree,
    kernel_of,
    needs_onednn,
    needs_products,
)
from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.lower import LoweredStep, lower_step
from tvm_xengine.compiler.plan import plan_keep_all as keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.cost_models.measure.timers import timer_for
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.cost_models.prediction.predict import predict_costs
from tvm_xengine.errors import InvalidPlatformError, LibraryError
from tvm_xengine.frontends.load import load_model
from tvm_xengine.kernels.library.parts import kernel_parts
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.prepare import prepare_onednn_kernel
from tvm_xengine.kernels.sources import available_sources
from tvm_xengine.kernels.store.kernel_store import KernelStore
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.kernels.te.linear import linear
from tvm_xengine.planning.plan import Plan
from tvm_xengine.program.step_program import ArenaView
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import CostSource, OpCost, Problem
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.step import TrainingStep

BOTH = ("onednn", "tir")


@pytest.fixture(scope="module")
def lenet() -> TrainingStep:
    return build_training_step(load_model("lenet", batch_size=4))


def lowered(training: TrainingStep, *kernels: tuple[str, ...]) -> LoweredStep:
    """A step for one device for each list of sources, linked to each other."""
    names = [f"cpu{k}" for k in range(len(kernels))]
    devices = [
        Device(n, "llvm -mcpu=native", kernels=k) for n, k in zip(names, kernels, strict=True)
    ]
    links = [Link(a, b, 1.0, 10.0) for a in names for b in names if a != b]
    return lower_step(training.mod, Platform(tuple(devices), tuple(links)))


def problem_of(step: LoweredStep) -> Problem:
    return make_problem(step, lambda ks: {k.symbol: OpCost(1.0) for k in ks})


def built(step: LoweredStep, plan: Plan, training: TrainingStep) -> StepExecutable:
    executable = build_step(step, plan)
    executable.poison()
    executable.write(training.initial_state)
    return executable


def _values(rng: np.random.Generator, view: ArenaView) -> np.ndarray:
    """Positions of the first two classes or words, or numbers from 0 to 1."""
    if str(view.dtype).startswith("int"):
        return rng.integers(0, 2, view.shape).astype(view.dtype)
    return rng.random(view.shape, dtype="float32")


def batch_for(executable: StepExecutable, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    views = executable.interface.inputs
    given = {name: _values(rng, views[name]) for name in executable.names(Role.BATCH)}
    given["lr"] = np.asarray(0.05, "float32")
    return given


def states_after(
    training: TrainingStep, step: LoweredStep, steps: int, *, poisoned: bool = False
) -> dict[str, np.ndarray]:
    executable = built(step, keep_all(problem_of(step), step.platform.home), training)
    for seed in range(steps):
        if poisoned:
            executable.poison(0x5A + seed)
        executable.step(batch_for(executable, seed))
    return executable.read_state()


def relative_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    difference = sum(float(((one[n] - other[n]).astype("f8") ** 2).sum()) for n in other)
    return float(
        np.sqrt(difference / sum(float((a.astype("f8") ** 2).sum()) for a in other.values()))
    )


@pytest.mark.slow
@needs_onednn
def test_training_is_the_same_from_either_source(lenet: TrainingStep) -> None:
    library, generated = lowered(lenet, BOTH), lowered(lenet, ("tir",))
    assert {k.source for k in library.kernels.values()} == set(BOTH)
    assert {k.source for k in generated.kernels.values()} == {"tir"}
    states = states_after(lenet, library, 5), states_after(lenet, generated, 5)
    assert relative_difference(*states) < 1e-6


@needs_onednn
@pytest.mark.slow
def test_a_deep_network_trains_the_same_from_either_source() -> None:
    training = build_training_step(load_model("resnet8", batch_size=2))
    states = [states_after(training, lowered(training, k), 1) for k in (BOTH, ("tir",))]
    assert relative_difference(*states) < 1e-4


@pytest.mark.slow
@needs_onednn
def test_scratch_memory_lies_in_the_arena(lenet: TrainingStep) -> None:
    """Nothing stale is read from it, and nothing is written beside it."""
    step = lowered(lenet, BOTH)
    clean, poisoned = states_after(lenet, step, 3), states_after(lenet, step, 3, poisoned=True)
    assert all(np.array_equal(clean[name], poisoned[name]) for name in clean)
    costs = problem_of(step).costs
    for op, kernel in step.extraction.kernels.items():
        assert costs[op]["cpu0"].workspace_bytes >= step.kernels[kernel, "cpu0"].workspace_bytes


@needs_products
def test_an_op_has_another_source_on_another_device(lenet: TrainingStep) -> None:
    step = lowered(lenet, BOTH, ("tir",))
    sources = {
        op.name: tuple(step.kernel(op.name, device).source for device in ("cpu0", "cpu1"))
        for op in step.extraction.graph.ops
    }
    counts = Counter(sources.values())
    assert counts["onednn", "tir"] == 14 and counts["tir", "tir"] == 21
    symbols = {step.kernel(op, device).symbol for op in sources for device in ("cpu0", "cpu1")}
    assert len(symbols) > len(sources)


@pytest.mark.slow
@needs_onednn
def test_kernels_of_libraries_are_predicted_measured_and_kept(
    lenet: TrainingStep, tmp_path: Path
) -> None:
    kernels = [k for k in lowered(lenet, BOTH).kernels.values() if k.source == "onednn"][:3]
    predicted = predict_costs(kernels, None)
    assert all(cost.source is CostSource.ROOFLINE for cost in predicted.values())
    cache = MeasurementCache(tmp_path / "measurements.jsonl")
    timer = timer_for(KernelStore(tmp_path / "kernels"))
    measured = measure_kernels(kernels, cache, effort=Effort(rounds=1), timer=timer)
    assert set(measured) == {kernel.symbol for kernel in kernels}
    again = measure_kernels(kernels, cache, effort=Effort(rounds=1))
    assert {s: m.compute_us for s, m in again.items()} == {
        s: m.compute_us for s, m in measured.items()
    }


@needs_products
def test_large_kernels_get_the_threads_of_their_device() -> None:
    def body(emitter: Emitter, params: list[relax.Var]) -> relax.Expr:
        return emitter.call(linear, params, "made")

    threads = int(tvm.get_global_func("runtime.NumThreads")())
    many = resolve_target("llvm -mcpu=native -num-cores=64")
    for extent, expected in ((16, 1), (512, threads)):
        func = kernel_of(body, [(extent, extent), (extent, extent)])
        kernel = prepare_onednn_kernel(func, many, "linear")
        assert kernel is not None and kernel.library is not None
        assert kernel.library.threads == expected
        assert kernel.is_parallel == (expected > 1)


def test_a_source_for_another_processor_is_skipped_with_a_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        found = available_sources(BOTH, resolve_target("llvm -mcpu=x86-64"), "old")
    assert found == ("tir",)
    assert "device old goes without onednn kernels" in caplog.text
    assert "processor of this machine" in caplog.text


def test_a_missing_library_says_how_to_get_it() -> None:
    with pytest.raises(LibraryError, match="cannot be loaded"):
        OnednnLibrary(Path("/nowhere/libdnnl.so"))


def test_auto_takes_what_is_there_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert available_sources(("auto",), resolve_target("llvm -mcpu=x86-64"), "old") == ("tir",)
        assert available_sources(("auto",), NATIVE, "new")[-1] == "tir"
    assert not caplog.text


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(InvalidPlatformError, match="mkl"):
        available_sources(("mkl", "tir"), NATIVE, "cpu")


@needs_onednn
def test_a_device_whose_sources_lack_a_kernel_is_refused(lenet: TrainingStep) -> None:
    with pytest.raises(InvalidPlatformError, match='add "tir"'):
        lowered(lenet, ("onednn",))


NETWORKS = {"ds_cnn": None, "vgg16": 32, "gpt_nano": None}


@needs_onednn
@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_networks_train_the_same_from_either_source(network: str) -> None:
    model = load_model(network, batch_size=2, size=NETWORKS[network])
    training = build_training_step(model)
    states = [states_after(training, lowered(training, k), 1) for k in (BOTH, ("tir",))]
    assert relative_difference(*states) < 1e-4


@needs_onednn
@pytest.mark.slow
@pytest.mark.parametrize("network", ["mobilenetv2", "resnet18", "unet"])
def test_every_kernel_of_a_deep_network_agrees_with_its_twin(network: str) -> None:
    """Whole steps of such networks are chaotic: they double a difference in every layer.

    In the U-Net, with 8 numbers per channel to normalise at the bottom, a single relu that rounding
    opens changes the state by 1.5e-4; so does the last bit of the inputs, with either source.
    """
    training = build_training_step(load_model(network, batch_size=2, size=64))
    mod = lowered(training, BOTH).mod
    kernels = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    agreeing = [assert_twins_agree(func) for func in kernels if kernel_parts(func) is not None]
    assert sum(kernel is not None for kernel in agreeing) >= 20
