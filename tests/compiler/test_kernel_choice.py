"""A device that leaves the choice takes the faster of two kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.onednn.onednn_twins import needs_onednn
from tests.kernels.onednn.test_devices import relative_difference, states_after
from tvm_xengine.compiler.costing.costed import cost_kernels, cost_step
from tvm_xengine.compiler.kernel_choice import (
    generated_kernels,
    with_clearly_faster_kernels,
    with_fastest_kernels,
)
from tvm_xengine.compiler.lower import LoweredStep, lower_step
from tvm_xengine.compiler.options import CompileOptions, CostChoice
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.frontends.load import load_model
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import CostSource, OpCost
from tvm_xengine.training.build import build_training_step
from tvm_xengine.training.step import TrainingStep

pytestmark = needs_onednn


@pytest.fixture(scope="module")
def lenet() -> TrainingStep:
    return build_training_step(load_model("lenet", batch_size=4))


def lowered(training: TrainingStep, *kernels: str) -> LoweredStep:
    device = Device("cpu", "llvm -mcpu=native", kernels=kernels)
    return lower_step(training.mod, Platform((device,)))


def costs(by_source: Mapping[str, float], source: CostSource = CostSource.MEASURED):
    def of(kernels: Sequence[DeviceKernel]) -> dict[str, OpCost]:
        return {k.symbol: OpCost(by_source[k.source], source=source) for k in kernels}

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


def test_predictions_choose_where_the_difference_is_clear(lenet: TrainingStep) -> None:
    step, predicted = lowered(lenet, "auto"), CostSource.PREDICTED
    assert sources(
        with_clearly_faster_kernels(step, costs({"onednn": 1.0, "tir": 0.9}, predicted))
    ) == sources(step)
    chosen = sources(
        with_clearly_faster_kernels(step, costs({"onednn": 1.0, "tir": 0.5}, predicted))
    )
    from_library = [name for name, source in sources(step).items() if source == "onednn"]
    taken = [name for name in from_library if chosen[name] == "tir"]
    # All calls cost the same here, so that a twentieth of them is not looked at.
    assert 0.9 * len(from_library) <= len(taken) <= len(from_library)


def test_a_guess_is_no_reason_to_leave_a_library(lenet: TrainingStep) -> None:
    step = lowered(lenet, "auto")

    def of(kernels: Sequence[DeviceKernel]) -> dict[str, OpCost]:
        guess = OpCost(1.0, source=CostSource.ROOFLINE)
        return {
            k.symbol: guess if k.library is None else replace(guess, compute_us=9.0)
            for k in kernels
        }

    assert sources(with_clearly_faster_kernels(step, of)) == sources(step)


def test_predicted_costs_take_the_kernel_that_they_say_is_faster(tmp_path: Path) -> None:
    # Of single samples calls of the library take longer than what they compute.
    step = lowered(build_training_step(load_model("lenet", batch_size=1)), "auto")
    stores = Stores.open(CompileOptions(measurements=tmp_path / "measurements.jsonl"))
    costed = cost_step(step, CostChoice.PREDICTED, stores, Reporter())
    assert costed.offered is step
    generated = generated_kernels(step, step.kernels, None)
    every = replace(step, kernels={**step.kernels, **generated})
    by_symbol = {
        **cost_kernels(step, CostChoice.PREDICTED, stores, Reporter()).costs,
        **cost_kernels(every, CostChoice.PREDICTED, stores, Reporter()).costs,
    }
    for key, kernel in costed.lowered.kernels.items():
        if kernel.symbol != step.kernels[key].symbol:
            library_us = by_symbol[step.kernels[key].symbol].compute_us
            assert by_symbol[kernel.symbol].compute_us < library_us, key
    chosen_us, library_us = (
        sum(by_symbol[made.kernels[key].symbol].compute_us for key in generated)
        for made in (costed.lowered, step)
    )
    fastest_us = sum(
        min(by_symbol[one.symbol].compute_us for one in (kernel, step.kernels[key]))
        for key, kernel in generated.items()
    )
    assert fastest_us <= chosen_us < library_us
    assert chosen_us < fastest_us / 0.8 + 0.05 * library_us


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
