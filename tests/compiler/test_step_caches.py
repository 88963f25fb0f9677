"""Kernels of a step that does not fit the last cache are timed as it leaves the caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.passes.small_step import SmallStep, two_cpus
from tvm_xengine.compiler.costing import step_caches as module
from tvm_xengine.compiler.costing.costed import cost_step
from tvm_xengine.compiler.costing.step_caches import step_caches
from tvm_xengine.compiler.lower import LoweredStep, lower_step
from tvm_xengine.compiler.options import CompileOptions, CostChoice
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.cost_models.features.extract import kernel_features
from tvm_xengine.cost_models.features.table import table_of
from tvm_xengine.cost_models.measure.caches import COLD, MEMORY
from tvm_xengine.cost_models.models.cold_calls import FROM_MEMORY
from tvm_xengine.planning.keep_all import kept_bytes


def test_predictions_are_longer_for_a_step_that_comes_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = lower_step(SmallStep, two_cpus())
    kept = kept_bytes(lowered.extraction.graph)
    stores = Stores.open(CompileOptions(measurements=tmp_path / "measurements.jsonl"))
    fits, comes = (_predicted_us(lowered, stores, last, monkeypatch) for last in (3 * kept, kept))
    for kernel in lowered.distinct:
        more_us = comes[kernel.symbol] - fits[kernel.symbol]
        (expected_us,) = FROM_MEMORY.extra_us(table_of([kernel_features(kernel)]))
        assert more_us == pytest.approx(expected_us, rel=1e-6)


def _predicted_us(
    lowered: LoweredStep, stores: Stores, last_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
    monkeypatch.setattr(module, "last_cache_bytes", lambda: last_bytes)
    costed = cost_step(lowered, CostChoice.PREDICTED, stores, Reporter())
    return {symbol: cost.compute_us for symbol, cost in costed.costs.items()}


@pytest.mark.parametrize(("share", "expected"), [(3.0, COLD), (1.5, MEMORY)])
def test_kernels_are_timed_as_their_step_leaves_the_caches(
    share: float, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = lower_step(SmallStep, two_cpus())
    last_bytes = int(share * kept_bytes(lowered.extraction.graph))
    monkeypatch.setattr(module, "last_cache_bytes", lambda: last_bytes)
    stores = Stores.open(CompileOptions(measurements=tmp_path / "measurements.jsonl"))
    cost_step(lowered, CostChoice.MEASURED, stores, Reporter())
    assert step_caches(lowered) == expected
    assert {row.caches for row in stores.measurements.kernels()} == {expected}
