"""Rounds in which something disturbed the machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernels.kernels import NATIVE, scale_and_shift
from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.cost_models.measure.sentinel import Sentinel, calm_rounds
from tvm_xengine.cost_models.measure.this_machine import machine_of
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.targets import resolve_target

CALM_US, SLOWED_US = 200.0, 260.0


class Script(Sentinel):
    """A machine whose state is known for every round; each is asked for twice, before and after."""

    def __init__(self, states: Iterator[float]) -> None:
        super().__init__()
        self.states = states
        self.now_us = 0.0
        self.asked = 0

    def time_us(self) -> float:
        if self.asked % 2 == 0:
            self.now_us = next(self.states)
        self.asked += 1
        self.fastest_us = min(self.fastest_us, self.now_us)
        return self.now_us


class SlowedTimer:
    """Kernels take as long as the machine is slow."""

    def __init__(self, states: list[float]) -> None:
        self.script = Script(iter(states))

    def machine(self, target):
        return machine_of(target)

    def device(self, _target):
        return "device"

    def clock(self, _kernel):
        return "thread"

    def prepare(self, _kernels, _on_compiled):
        pass

    def time_us(self, _kernel, _effort):
        return (self.script.now_us / 100,) * 3

    def sentinel(self):
        return self.script

    def close(self):
        pass


def measured(tmp_path, states, effort):
    (kernel,) = [prepare_kernel(scale_and_shift(8), resolve_target(NATIVE))]
    cache = MeasurementCache(tmp_path / "m.jsonl")
    found = measure_kernels([kernel], cache, effort=effort, timer=SlowedTimer(states))
    return found[kernel.symbol]


@pytest.mark.parametrize(
    ("sentinels_us", "fastest_us", "calm"),
    [
        ((200.0, 260.0, 205.0), None, [0, 2]),
        ((260.0, 261.0), None, [0, 1]),
        ((260.0, 261.0), 200.0, []),
        ((0.0, 260.0, 200.0), None, [0, 1, 2]),
        ((), None, []),
    ],
)
def test_a_round_is_calm_when_the_machine_was_as_fast_as_ever(sentinels_us, fastest_us, calm):
    assert calm_rounds(sentinels_us, fastest_us) == calm


def test_disturbed_rounds_are_kept_but_do_not_count(tmp_path):
    row = measured(tmp_path, [SLOWED_US, CALM_US, SLOWED_US], Effort(rounds=3))
    assert row.sentinels_us == (SLOWED_US, CALM_US, SLOWED_US)
    assert len(row.rounds_us) == 3
    assert (row.lo_us, row.compute_us, row.hi_us) == (2.0, 2.0, 2.0)


def test_disturbed_rounds_are_made_up_for(tmp_path):
    states = [CALM_US, SLOWED_US, CALM_US, SLOWED_US, CALM_US, CALM_US]
    row = measured(tmp_path, states, Effort(rounds=3, extra_rounds=3))
    assert row.sentinels_us == tuple(states[:5])
    assert row.hi_us - row.lo_us <= 0.2 * row.compute_us


def test_a_machine_that_is_never_calm_again_ends_the_extra_rounds(tmp_path):
    states = [CALM_US, *[SLOWED_US] * 9]
    row = measured(tmp_path, states, Effort(rounds=2, extra_rounds=3))
    assert len(row.rounds_us) == 5
    assert row.compute_us == 2.0


def test_the_same_work_takes_about_the_same_time():
    sentinel = Sentinel()
    first_us = sentinel.time_us()
    assert sentinel.time_us() == first_us  # asked again at once
    assert sentinel.fastest_us == first_us > 0
