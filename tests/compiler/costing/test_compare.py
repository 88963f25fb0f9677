"""Active costs measure the kernels of which predictions cannot tell which is faster, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kernels.onednn.onednn_twins import needs_onednn
from tvm_xengine.compiler.costing import compare
from tvm_xengine.compiler.costing.costed import CostedStep, cost_step
from tvm_xengine.compiler.lower import LoweredStep, lower_step
from tvm_xengine.compiler.options import CompileOptions, CostChoice
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.frontends.load import load_model
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import CostSource, OpCost
from tvm_xengine.training.build import build_training_step

pytestmark = needs_onednn

LIBRARY_US = 10.0


@pytest.fixture(scope="module")
def step() -> LoweredStep:
    mod = build_training_step(load_model("lenet", batch_size=4)).mod
    return lower_step(mod, Platform((Device("cpu", "llvm -mcpu=native"),)))


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores.open(CompileOptions(measurements=tmp_path / "measurements.jsonl"))


def compared(
    step: LoweredStep,
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
    *,
    predicted_us: float,
    spread: float,
    measured_us: float,
) -> tuple[CostedStep, CostedStep, list[DeviceKernel]]:
    """The step before and after, and what was measured; generated kernels are predicted and measured so."""
    measured: list[DeviceKernel] = []

    def predicted(kernels: Sequence[DeviceKernel], /) -> dict[str, OpCost]:
        return {k.symbol: guess(LIBRARY_US if k.library else predicted_us, spread) for k in kernels}

    def timed(kernels: Sequence[DeviceKernel], /) -> dict[str, OpCost]:
        measured.extend(kernels)
        source = CostSource.MEASURED
        return {
            k.symbol: OpCost(LIBRARY_US if k.library else measured_us, source=source)
            for k in kernels
        }

    monkeypatch.setattr(compare, "known_costs", lambda *_: predicted)
    monkeypatch.setattr(compare, "measured_costs", lambda *_, **__: timed)
    costed = cost_step(step, CostChoice.ACTIVE, stores, Reporter())
    return costed, compare.with_compared_kernels(costed, stores, Reporter()), measured


def guess(time_us: float, spread: float) -> OpCost:
    interval_us = (time_us / spread, time_us * spread)
    return OpCost(time_us, interval_us=interval_us, source=CostSource.PREDICTED)


@pytest.mark.parametrize(("measured_us", "generated"), [(9.0, True), (11.0, False)])
def test_the_faster_one_of_two_that_are_alike_is_found_by_measuring(
    step: LoweredStep,
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
    measured_us: float,
    generated: bool,
) -> None:
    _, found, measured = compared(
        step, stores, monkeypatch, predicted_us=10.0, spread=1.5, measured_us=measured_us
    )
    assert {kernel.source for kernel in measured} == {"onednn", "tir"}
    taken = {kernel.symbol for kernel in measured} & {
        kernel.symbol for kernel in found.lowered.distinct
    }
    assert {k.source == "tir" for k in measured if k.symbol in taken} == {generated}
    for symbol in taken:
        assert found.costs[symbol].source is CostSource.MEASURED
        ops = [
            op
            for op, name in step.extraction.kernels.items()
            if found.lowered.kernels[name, "cpu"].symbol == symbol
        ]
        assert {found.problem.costs[op]["cpu"].compute_us for op in ops} == {
            measured_us if generated else LIBRARY_US
        }


@pytest.mark.parametrize(
    ("predicted_us", "spread"),
    [
        pytest.param(30.0, 1.5, id="a clear difference"),
        pytest.param(10.0, 3.0, id="no ground for a prediction"),
    ],
)
def test_other_kernels_are_not_measured(
    step: LoweredStep,
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
    predicted_us: float,
    spread: float,
) -> None:
    before, found, measured = compared(
        step, stores, monkeypatch, predicted_us=predicted_us, spread=spread, measured_us=1.0
    )
    assert not measured
    assert found is before
