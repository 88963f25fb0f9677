"""Streams: whatever the interleaving, the calls that share bytes run in the program's order."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import cases
from tvm_xengine.program.step_program import (
    ArenaView,
    Call,
    KernelRun,
    StepInterface,
    StepProgram,
    TensorCopy,
)
from tvm_xengine.program.streams import (
    Streams,
    overwritten_state,
    split_into_streams,
    stream_of,
)
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Device, Link, Platform

_DEVICES = ("a", "b", "c")


@st.composite
def engines(draw: st.DrawFn) -> Platform:
    """A platform on which each link has an engine, or none."""
    links = [
        Link(src, dst, engine=draw(st.sampled_from((None, src, dst))))
        for src, dst in permutations(_DEVICES, 2)
    ]
    return Platform(tuple(Device(name, "llvm") for name in _DEVICES), tuple(links))


@st.composite
def step_programs(draw: st.DrawFn) -> StepProgram:
    """Calls on any bytes of small arenas, which overlap in all ways."""

    def view(device: str) -> ArenaView:
        first = draw(st.integers(0, 12))
        return ArenaView(device, first, (draw(st.integers(1, 6)),), "uint8")

    calls: list[Call] = []
    for step in range(draw(st.integers(1, 25))):
        device = draw(st.sampled_from(_DEVICES))
        other = draw(st.sampled_from(_DEVICES))
        if device == other:
            inputs = tuple(view(device) for _ in range(draw(st.integers(0, 2))))
            workspace = view(device) if draw(st.booleans()) else None
            run = KernelRun(
                step,
                f"op{step}",
                "f",
                device,
                inputs,
                (view(device),),
                workspace,
                False,
                False,
                False,
            )
            calls.append(run)
        else:
            calls.append(TensorCopy(step, "t", view(device), view(other)))
    return StepProgram(tuple(calls), StepInterface({}, {}, {}, {}, dict.fromkeys(_DEVICES, 20)))


def _bytes(call: Call) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """What a call reads, and what it writes, byte by byte."""
    reads, writes = (
        (call.inputs, (*call.outputs, *([call.workspace] if call.workspace else [])))
        if isinstance(call, KernelRun)
        else ((call.src,), (call.dst,))
    )
    found = []
    for views in (reads, writes):
        here = [v for v in views if isinstance(v, ArenaView)]
        found.append({(v.device, v.offset_bytes + k) for v in here for k in range(v.size_bytes)})
    return found[0], found[1]


def _happens_before(program: StepProgram, streams: Streams) -> np.ndarray:
    """For each pair of calls whether the first has ended whenever the second begins."""
    count = len(program.calls)
    before = np.zeros((count, count), dtype=bool)
    signalled: dict[int, int] = {}
    for calls in streams.calls.values():
        for one in calls:
            signalled.update(dict.fromkeys(one.signals, one.call.step))
        for k in range(len(calls) - 1):
            before[calls[k].call.step, calls[k + 1].call.step] = True
    for calls in streams.calls.values():
        for one in calls:
            for event in one.awaits:
                before[signalled[event], one.call.step] = True
    for middle in range(count):
        before |= np.outer(before[:, middle], before[middle])
    return before


@settings(max_examples=cases(300))
@given(step_programs(), engines())
def test_calls_that_share_bytes_keep_their_order(program: StepProgram, platform: Platform) -> None:
    streams = split_into_streams(program, platform)
    before = _happens_before(program, streams)
    for first, second in product(program.calls, repeat=2):
        if first.step < second.step:
            reads, writes = zip(_bytes(first), _bytes(second), strict=True)
            if writes[0] & (reads[1] | writes[1]) or reads[0] & writes[1]:
                assert before[first.step, second.step]
        assert not (before[first.step, second.step] and before[second.step, first.step])


@settings(max_examples=cases(100))
@given(step_programs(), engines())
def test_every_call_is_made_once_and_every_event_is_awaited_once(
    program: StepProgram, platform: Platform
) -> None:
    streams = split_into_streams(program, platform)
    made = [one for calls in streams.calls.values() for one in calls]
    assert sorted(one.call.step for one in made) == [call.step for call in program.calls]
    for stream, calls in streams.calls.items():
        assert all(stream_of(one.call, platform) == stream for one in calls)
        assert [one.call.step for one in calls] == sorted(one.call.step for one in calls)
    for one in made:
        if isinstance(one.call, TensorCopy):
            link = platform.link_between[one.call.src.device, one.call.dst.device]
            stream = (link.src, link.dst) if link.engine is None else (link.engine,)
            assert one in streams.calls[stream]
    assert sorted(e for one in made for e in one.awaits) == list(range(streams.events))
    assert sorted(e for one in made for e in one.signals) == list(range(streams.events))


@settings(max_examples=cases(60))
@given(step_programs(), engines(), st.data())
def test_without_any_one_event_some_order_is_lost(
    program: StepProgram, platform: Platform, data: st.DataObject
) -> None:
    streams = split_into_streams(program, platform)
    if not streams.events:
        return
    event = data.draw(st.integers(0, streams.events - 1))
    whole = _happens_before(program, streams)
    fewer = Streams(
        {
            stream: tuple(
                replace(one, awaits=tuple(e for e in one.awaits if e != event)) for one in calls
            )
            for stream, calls in streams.calls.items()
        },
        streams.events,
    )
    assert (_happens_before(program, fewer) != whole).any()


def test_state_whose_bytes_another_tensor_takes_meanwhile_is_overwritten() -> None:
    places = {name: ArenaView("a", 8 * k, (8,), "uint8") for k, name in enumerate("uvwx")}
    roles = dict.fromkeys("uvw", Role.PARAMETER) | {"x": Role.BATCH}
    workspace = ArenaView("a", 15, (9,), "uint8")
    run = KernelRun(
        0, "op", "f", "a", (places["u"],), (places["x"],), workspace, False, False, False
    )
    interface = StepInterface(places, {}, roles, {}, {"a": 32}, updated=("w",))
    assert overwritten_state(StepProgram((run,), interface)) == ("v", "w")
