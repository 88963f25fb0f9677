"""A device that leaves the choice takes the faster of two kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tests.kernels.onednn.onednn_twins import needs_onednn
from tests.kernels.onednn.test_devices import relative_difference, states_after
from tvm_xengine.compiler.kernel_choice import with_fastest_kernels
from tvm_xengine.compiler.lower import LoweredStep, lower_step
from tvm_xengine.frontends.load import load_model
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import OpCost
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.step import TrainingStep

pytestmark = needs_onednn


@pytest.fixture(scope="module")
def lenet() -> TrainingStep:
    return build_training_step(load_model("lenet", batch_size=4))


def lowered(training: TrainingStep, *kernels: str) -> LoweredStep:
    device = Device("cpu", "llvm -mcpu=native", kernels=kernels)
    return lower_step(training.mod, Platform((device,)))


def costs(by_source: Mapping[str, float]):
    def of(kernels: Sequence[DeviceKernel]) -> dict[str, OpCost]:
        return {kernel.symbol: OpCost(by_source[kernel.source]) for kernel in kernels}

    return of


def sources(step: LoweredStep) -> dict[str, str]:
    return {name: kernel.source for (name, _), kernel in step.kernels.items()}


def test_the_faster_source_wins_where_both_have_the_kernel(lenet: TrainingStep) -> None:
    step = lowered(lenet, "auto")
    from_library = {name for name, source in sources(step).items() if source == "onednn"}
    assert from_library
    slow_library = with_fastest_kernels(step, costs({"onednn": 2.0, "tir": 1.0}))
    assert set(sources(slow_library).values()) == {"tir"}
    fast_library = with_fastest_kernels(step, costs({"onednn": 1.0, "tir": 2.0}))
    assert sources(fast_library) == sources(step)


def test_every_kernel_is_chosen_for_itself(lenet: TrainingStep) -> None:
    step = lowered(lenet, "auto")
    from_library = [name for name, source in sources(step).items() if source == "onednn"]
    slow = from_library[0]

    def of(kernels: Sequence[DeviceKernel]) -> dict[str, OpCost]:
        return {
            k.symbol: OpCost(3.0 if k.name == slow and k.library else 2.0 - (k.library is not None))
            for k in kernels
        }

    chosen = sources(with_fastest_kernels(step, of))
    assert {name for name in from_library if chosen[name] == "tir"} == {slow}


def test_a_device_that_names_its_sources_keeps_their_order(lenet: TrainingStep) -> None:
    step = lowered(lenet, "onednn", "tir")
    chosen = with_fastest_kernels(step, costs({"onednn": 2.0, "tir": 1.0}))
    assert sources(chosen) == sources(step)


@pytest.mark.slow
def test_a_mixed_choice_trains_the_same(lenet: TrainingStep) -> None:
    step = lowered(lenet, "auto")
    random = np.random.default_rng(0)
    mixed = with_fastest_kernels(
        step, lambda kernels: {k.symbol: OpCost(float(random.random())) for k in kernels}
    )
    assert len(set(sources(mixed).values())) == 2
    assert sources(mixed) != sources(step)
    assert relative_difference(states_after(lenet, mixed, 3), states_after(lenet, step, 3)) < 1e-6
