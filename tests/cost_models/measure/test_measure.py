from __future__ import annotations

import numpy as np
import pytest
import tvm

from tests.kernels.kernels import BASELINE, NATIVE, matmul, momentum, scale_and_shift
from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.measure_link import Copy, fit_line, measure_link
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.targets import resolve_target

QUICK = Effort(rounds=2, batch_us=100.0, round_us=1000.0)


@pytest.fixture
def cache(tmp_path):
    return MeasurementCache(tmp_path / "m.jsonl")


def prepared(*funcs, description=NATIVE):
    target = resolve_target(description)
    return [prepare_kernel(func, target) for func in funcs]


def test_more_work_takes_more_time(cache):
    kernels = prepared(matmul(16, 16, 16), matmul(64, 64, 64))
    small, large = (measure_kernels(kernels, cache, effort=QUICK)[k.symbol] for k in kernels)
    assert 0 < small.compute_us < large.compute_us


def test_every_round_is_reported_and_kept(cache):
    seen = []
    kernels = prepared(scale_and_shift(8), momentum(8))
    measured = measure_kernels(
        kernels, cache, effort=QUICK, on_progress=lambda *progress: seen.append(progress)
    )
    assert [done for done, _, _ in seen] == [1, 2, 3, 4]
    assert {total for _, total, _ in seen} == {4}
    assert all(len(m.rounds_us) == 2 for m in measured.values())


def test_what_is_in_the_cache_is_not_measured_again(cache):
    kernels = prepared(scale_and_shift(8))
    first = measure_kernels(kernels, cache, effort=QUICK)
    seen = []
    again = measure_kernels(
        kernels, cache, effort=QUICK, on_progress=lambda *progress: seen.append(progress)
    )
    assert again == first
    assert not seen


def test_an_interrupt_keeps_what_was_measured(cache, tmp_path):
    kernels = prepared(scale_and_shift(8), scale_and_shift(16))

    def interrupt(done, _total, _name):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_kernels(kernels, cache, effort=QUICK, on_progress=interrupt)
    kept = MeasurementCache(tmp_path / "m.jsonl")
    found = [kept.find(k.key, device_fingerprint(k.target)) for k in kernels]
    assert [measurement is not None for measurement in found] == [True, False]


def test_an_interrupted_kernel_gets_only_its_missing_rounds(cache):
    kernels = prepared(scale_and_shift(8))
    once = measure_kernels(kernels, cache, effort=Effort(1, QUICK.batch_us, QUICK.round_us))
    seen = []
    both = measure_kernels(
        kernels, cache, effort=QUICK, on_progress=lambda *progress: seen.append(progress)
    )
    assert len(seen) == 1
    symbol = kernels[0].symbol
    assert both[symbol].rounds_us[:1] == once[symbol].rounds_us
    assert len(both[symbol].rounds_us) == 2


def test_devices_are_measured_apart(cache):
    kernels = prepared(matmul(8, 8, 8)) + prepared(matmul(8, 8, 8), description=BASELINE)
    measured = measure_kernels(kernels, cache, effort=QUICK)
    assert len({m.device for m in measured.values()}) == 2


def test_line_through_exact_samples_is_found():
    samples = [(size, 2.0 + size / 5000) for size in (64, 4096, 65536, 2**20)]
    assert fit_line(samples) == pytest.approx((2.0, 5.0))


def test_sizes_that_were_disturbed_do_not_move_the_line():
    samples = [(4**k, 3.0 + 4**k / 8000) for k in range(3, 13)]
    for at, factor in ((1, 5.0), (5, 0.4), (9, 3.0)):
        samples[at] = (samples[at][0], samples[at][1] * factor)
    assert fit_line(samples) == pytest.approx((3.0, 8.0))


@pytest.mark.parametrize("samples", [[(64, 2.0), (128, 1.0)], [(64, 1.0), (128, 4.0)]])
def test_latency_and_slope_are_never_negative(samples):
    latency_us, bandwidth_gb_s = fit_line(samples)
    assert latency_us >= 0
    assert bandwidth_gb_s > 0


def test_memories_are_renewed_before_each_copy(cache):
    done = []
    copy = Copy(lambda: done.append("copy"), lambda: done.append("renew"))
    measure_link("cpu:0", "cpu:1", lambda _size_bytes: copy, cache)
    assert done == ["renew", "copy"] * (len(done) // 2)


def test_link_is_measured_once(cache):
    def copy_of(size_bytes):
        source, target = (tvm.runtime.tensor(np.zeros(size_bytes, "uint8")) for _ in range(2))
        return Copy(lambda: source.copyto(target))

    first = measure_link("cpu:0", "cpu:1", copy_of, cache)
    assert measure_link("cpu:0", "cpu:1", copy_of, cache) is first
    assert 0 <= first.latency_us < 1000
    assert 0.01 < first.bandwidth_gb_s < 1000
