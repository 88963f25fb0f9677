"""The time of a plan is that of its streams: what they wait for in a step counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.program.laid_out import PROBLEM, laid_out, programs
from tests.program.test_make import program_of
from tests.strategies import cases
from tvm_xengine.program.streams import split_into_streams
from tvm_xengine.scheduling.platform import Stream
from tvm_xengine.scheduling.schedule import Step
from tvm_xengine.scheduling.simulate import simulate


@settings(max_examples=cases(50))
@given(programs())
def test_streams_take_as_long_as_predicted(steps: list[Step]) -> None:
    plan = laid_out(PROBLEM, steps)
    streams = split_into_streams(program_of(plan), PROBLEM.platform)
    found = simulate(PROBLEM, plan.schedule, enforce_budgets=False, arenas=plan.arenas)
    happened_us: dict[int, float] = {}
    free_us: dict[Stream, float] = {}
    calls = [(call, stream) for stream, own in streams.calls.items() for call in own]
    for call, stream in sorted(calls, key=lambda pair: pair[0].position):
        begin_us, end_us = found.intervals_us[call.call.step]
        ready_us = max((happened_us[event] for event in call.awaits), default=0.0)
        free_us[stream] = max(ready_us, free_us.get(stream, 0.0)) + end_us - begin_us
        happened_us |= dict.fromkeys(call.signals, free_us[stream])
    assert max(free_us.values()) == pytest.approx(found.makespan_us)
