from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.kernels import BASELINE, NATIVE, matmul, momentum, scale_and_shift
from tvm_xengine.cost_models.features.extract import kernel_features
from tvm_xengine.cost_models.features.table import IS_LIBRARY, LIBRARY_VECTOR, table_of
from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.cost_models.models.model import Prediction
from tvm_xengine.cost_models.prediction.abstain import MOST_WIDTH_RATIO
from tvm_xengine.cost_models.prediction.predict import (
    architecture_of,
    default_model,
    predict_by,
    predict_costs,
    predict_to_correct,
)
from tvm_xengine.cost_models.prediction.prior import predicted_on
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.scheduling.problem import CostSource

SIZES = (8, 16, 32, 64, 128, 192)


def kernels():
    target = resolve_target(BASELINE)
    return [prepare_kernel(matmul(n, n, n), target) for n in SIZES]


def test_the_shipped_model_ranks_matrix_products_by_size():
    costs = predict_costs(kernels(), default_model())
    times = [cost.compute_us for cost in costs.values()]
    assert times == sorted(times)
    assert all(c.lo_us < c.compute_us < c.hi_us for c in costs.values())


def test_the_shipped_model_is_nearer_to_the_truth_than_a_typical_roofline(tmp_path):
    target = resolve_target(BASELINE)
    some = [*kernels(), *(prepare_kernel(f(4096), target) for f in (scale_and_shift, momentum))]
    cache = MeasurementCache(tmp_path / "measurements.jsonl")
    measured = measure_kernels(some, cache, effort=Effort(rounds=2))

    def error(costs):
        return np.mean(
            [abs(np.log(costs[s].compute_us / m.compute_us)) for s, m in measured.items()]
        )

    # Whatever machine this is, the law by which times grow is the same.
    assert error(predict_costs(some, default_model())) < error(predict_costs(some, None))


def test_a_device_without_data_gets_a_roofline_and_says_so():
    model = default_model()
    foreign = replace(model, architectures=("llvm riscv64",))
    sources = {cost.source for cost in predict_costs(kernels(), foreign).values()}
    assert sources == {CostSource.ROOFLINE}
    known = {cost.source for cost in predict_costs(kernels(), model).values()}
    assert known <= {CostSource.PREDICTED, CostSource.TRANSFERRED}


@pytest.mark.parametrize(("widths", "is_known"), [([64.0], False), ([32.0, 64.0], True)])
def test_library_code_as_in_no_label_is_unknown(widths, is_known):
    """Kernels with vectors of 32 bytes, asked of a model whose labels had those widths."""
    target = str(resolve_target(BASELINE))
    features = table_of([kernel_features(kernel) for kernel in kernels()])
    columns = [features.names.index(name) for name in (IS_LIBRARY, LIBRARY_VECTOR)]
    values = features.values.copy()
    values[:, columns] = (1.0, 32.0)
    table = replace(features, values=values)
    shipped = default_model()
    model = replace(shipped, card={**shipped.card, "library_vectors_bytes": widths})
    answer = predicted_on(model, [target] * len(table), table)
    generated = predicted_on(model, [target] * len(table), features)
    assert model.has_ground(table).all() == is_known
    assert model.has_ground(features).all()
    assert (answer.hi_us > MOST_WIDTH_RATIO * answer.lo_us).all() != is_known
    assert not (generated.hi_us > MOST_WIDTH_RATIO * generated.lo_us).all()


def test_a_processor_that_nobody_learned_from_gets_wider_intervals_and_says_so():
    def model_of(cpu):
        return replace(default_model(), card={"targets": {f'{{"kind":"llvm","mcpu":"{cpu}"}}': 9}})

    here = resolve_target(NATIVE).attrs["mcpu"]
    known = predict_costs(kernels(), model_of(here))
    foreign = predict_costs(kernels(), model_of("pentium4"))
    assert {cost.source for cost in known.values()} == {CostSource.PREDICTED}
    assert {cost.source for cost in foreign.values()} == {CostSource.TRANSFERRED}
    for symbol, cost in known.items():
        assert foreign[symbol].hi_us / foreign[symbol].lo_us > cost.hi_us / cost.lo_us
    baseline = predict_costs(kernels(), model_of("x86-64"))
    assert {cost.source for cost in baseline.values()} == {CostSource.PREDICTED}  # who knows where


def test_measured_kernels_correct_the_prediction_of_the_others():
    some = kernels()
    predicted, correction = predict_to_correct(some, default_model())
    slow = {
        kernel.symbol: replace(
            predicted[kernel.symbol],
            compute_us=2 * predicted[kernel.symbol].hi_us,
            interval_us=(predicted[kernel.symbol].lo_us, 2 * predicted[kernel.symbol].hi_us),
            source=CostSource.MEASURED,
        )
        for kernel in some[::2]
    }
    corrected = correction.corrected({**predicted, **slow})
    for kernel in some[::2]:
        assert corrected[kernel.symbol] is slow[kernel.symbol]
    for kernel in some[1::2]:
        assert corrected[kernel.symbol].compute_us > predicted[kernel.symbol].compute_us


def test_architectures_are_named_alike_however_a_target_spells_them():
    assert architecture_of('{"kind":"llvm","mtriple":"arm64-apple-darwin"}') == "llvm aarch64"
    assert architecture_of('{"kind":"llvm","mtriple":"aarch64-linux-gnu"}') == "llvm aarch64"
    assert architecture_of('{"kind":"cuda","mtriple":"x86_64"}') == "cuda x86_64"


class Fixed:
    """Predicts the same times for whatever it is asked."""

    def __init__(self, *columns):
        self.columns = [np.array(column, dtype=float) for column in columns]

    def predict(self, table):
        return Prediction(*self.columns)


def test_what_a_model_of_somebody_else_predicts_are_the_costs():
    times = np.arange(1.0, 1 + len(SIZES))
    costs = predict_by(Fixed(times, times / 2, times * 2), kernels())
    rows = [(cost.compute_us, cost.lo_us, cost.hi_us) for cost in costs.values()]
    assert rows == [(t, t / 2, t * 2) for t in times]
    assert {cost.source for cost in costs.values()} == {CostSource.PREDICTED}


@pytest.mark.parametrize(
    ("time", "lo", "hi", "said"),
    [
        ([1] * 5, [1] * 6, [1] * 6, r"6 times .* shapes \(6,\), \(5,\), \(6,\)"),
        ([0] * 6, [0] * 6, [1] * 6, "got 0.0, 0.0, 1.0 for the kernel"),
        ([1] * 6, [2] * 6, [3] * 6, "got 2.0, 1.0, 3.0"),
        ([1] * 6, [1] * 6, [np.inf] * 6, "got 1.0, 1.0, inf"),
        ([np.nan] * 6, [1] * 6, [1] * 6, "got 1.0, nan, 1.0"),
    ],
)
def test_what_is_no_prediction_is_refused(time, lo, hi, said):
    with pytest.raises(InvalidDatasetError, match=said):
        predict_by(Fixed(time, lo, hi), kernels())
