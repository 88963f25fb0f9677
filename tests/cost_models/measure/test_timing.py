"""Calls that are timed: their values, and the state of the caches."""

from __future__ import annotations

import pytest
import tvm

from tests.kernels.kernels import NATIVE, scale_and_shift
from tvm_xengine.cost_models.measure import timing
from tvm_xengine.cost_models.measure.timing import Effort, KernelCall, call_of, time_kernel_us
from tvm_xengine.errors import MeasurementError
from tvm_xengine.kernels.device_kernel import TensorSpec, prepare_kernel
from tvm_xengine.kernels.targets import resolve_target


def arguments(*names):
    specs = tuple(TensorSpec((64,), "float32") for _ in names)
    call = KernelCall("k", "k", specs, (), 0, (), is_threaded=False, input_names=names)
    return [tensor.numpy() for tensor in timing.example_arguments(call)]


def test_tensors_that_the_machine_cannot_hold_are_not_made():
    spec = TensorSpec((2**40, 64), "float32")
    call = KernelCall("k", "k", (spec,), (spec,), 0, (), is_threaded=False, input_names=("x",))
    with pytest.raises(
        MeasurementError, match=r"tensors of \d+ bytes, and this machine has \d+ bytes"
    ):
        timing.example_arguments(call)


def test_values_go_both_ways_at_branches():
    (data,) = arguments("data")
    assert 16 < (data > 0).sum() < 48


def test_a_norm_of_example_values_has_both_signs():
    data, mean, inv_std, gamma, beta = arguments("data", "mean", "inv_std", "gamma", "beta")
    normed = (data - mean) * inv_std * gamma + beta
    assert 16 < (normed > 0).sum() < 48


class Compiled(dict):
    """A module with one kernel, which this process has compiled."""

    kind = "llvm"


@pytest.mark.parametrize(("cores", "handed"), [(1, 0), (2, 2)])
def test_tensors_are_handed_around_where_other_kernels_run_on_several_threads(
    cores, handed, monkeypatch
):
    seen = []

    class Watched:
        def __init__(self, tensors):
            seen.append(len(tensors))

        def hand_around(self):
            seen.append("handed around")

    monkeypatch.setattr(timing, "thread_pool_size", lambda: cores)
    monkeypatch.setattr(timing, "HandedAround", Watched)
    kernel = prepare_kernel(scale_and_shift(8), resolve_target(f"{NATIVE} -num-cores={cores}"))
    assert not kernel.is_parallel
    module = Compiled({kernel.symbol: lambda *_: seen.append("called")})
    times_us = time_kernel_us(call_of(kernel), module, Effort(rounds=1))
    assert seen == [handed, "called", *["handed around", "called"] * len(times_us)]


@pytest.mark.parametrize("caches", ["cold", "memory", "hot"])
def test_other_memory_is_written_before_each_cold_call_only(caches, monkeypatch):
    kernel = prepare_kernel(scale_and_shift(8), resolve_target(NATIVE))
    seen = []

    class Watched:
        """The memory that is written between calls."""

        def __iadd__(self, _one):
            seen.append("written")
            return self

    def function(*given):
        assert all(isinstance(each, tvm.runtime.Tensor) for each in given)
        seen.append("called")

    monkeypatch.setattr(timing, "_other_memory", lambda _caches: Watched())
    effort = Effort(rounds=1, batch_us=10.0, round_us=1e6, caches=caches)
    times_us = time_kernel_us(call_of(kernel), Compiled({kernel.symbol: function}), effort)
    if caches != "hot":
        assert seen == ["called", *["written", "called"] * len(times_us)]
    else:
        assert "written" not in seen


@pytest.mark.parametrize(("disturbed", "counted"), [((1, 2, 5), 15), (range(1, 99), 3)])
def test_calls_whose_threads_waited_for_a_core_count_where_there_are_no_others(
    disturbed, counted, monkeypatch
):
    kernel = prepare_kernel(scale_and_shift(1 << 16), resolve_target(f"{NATIVE} -num-cores=2"))
    calls, waited_us = [], [0.0]

    def function(*_given):
        calls.append(None)
        waited_us[0] += 1e6 if len(calls) - 1 in disturbed else 0.0  # the first call is a trial

    monkeypatch.setattr(timing, "uses_threads", lambda _kernel: True)
    monkeypatch.setattr(timing, "queued_us", lambda: waited_us[0])
    module = Compiled({kernel.symbol: function})
    times_us = time_kernel_us(call_of(kernel), module, Effort(rounds=1))
    assert len(times_us) == counted
    assert len(calls) - 1 == 15 + (len(disturbed) if counted == 15 else 0)


def test_more_is_written_where_a_step_does_not_fit_the_last_cache(monkeypatch):
    monkeypatch.setattr(timing, "data_caches_bytes", lambda: (1 << 10, 1 << 16, 1 << 20))
    monkeypatch.setattr(timing, "last_cache_bytes", lambda: 1 << 20)
    assert timing._other_memory("cold").nbytes == 1 << 15
    assert timing._other_memory("memory").nbytes == 3 << 18


def test_other_states_of_the_caches_are_refused():
    with pytest.raises(ValueError, match="cold"):
        Effort(caches="warm")
