from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.codegen.kernels import BASELINE, matmul, momentum, scale_and_shift
from tvm_xengine.codegen.device_kernel import prepare_kernel
from tvm_xengine.codegen.targets import resolve_target
from tvm_xengine.cost_models.measure import measure_kernels
from tvm_xengine.cost_models.measurements import MeasurementCache
from tvm_xengine.cost_models.predict import architecture_of, default_model, predict_costs
from tvm_xengine.cost_models.timing import Effort
from tvm_xengine.problem import CostSource

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
    assert known == {CostSource.PREDICTED}


def test_architectures_are_named_alike_however_a_target_spells_them():
    assert architecture_of('{"kind":"llvm","mtriple":"arm64-apple-darwin"}') == "llvm aarch64"
    assert architecture_of('{"kind":"llvm","mtriple":"aarch64-linux-gnu"}') == "llvm aarch64"
    assert architecture_of('{"kind":"cuda","mtriple":"x86_64"}') == "cuda x86_64"
