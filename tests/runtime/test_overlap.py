"""Streams that run side by side compute what the program computes in turn, bit for bit."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx

from tests.passes.small_step import small_problem, two_cpus
from tests.program.laid_out import everything_on, laid_out, programs, small_step
from tests.runtime.delays import Compiled, compiled_with, delay_kernels, helper_call
from tvm_xengine.program.make import make_step_program
from tvm_xengine.program.step_program import StepProgram
from tvm_xengine.program.streams import StreamCall, Streams, split_into_streams
from tvm_xengine.runtime import executable as executable_module
from tvm_xengine.runtime.events import Events, can_overlap
from tvm_xengine.runtime.executable import CompiledKernels, StepExecutable
from tvm_xengine.runtime.stream_threads import StreamThreads
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.schedule import Step, Transfer

pytestmark = pytest.mark.skipif(not can_overlap(), reason="needs semaphores in plain memory")

PROBLEM = small_problem(two_cpus())
X = np.random.default_rng(0).random((4, 8), dtype="float32")
W = np.random.default_rng(1).random(32, dtype="float32")
LR = np.float32(0.1)
_DELAYS_US = (0, 50, 400)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compiled_with(_helpers())


def _helpers() -> tvm.IRModule:
    """Kernels without arguments: one waits for each delay, and one fails."""
    fails = tirx.AssertStmt(
        tirx.call_extern("int32", "getppid") == tirx.const(0, "int32"),
        tvm.ir.StringImm("RuntimeError"),
        [tvm.ir.StringImm("this kernel fails")],
    )
    module = delay_kernels(_DELAYS_US)
    module["fails"] = tirx.PrimFunc([], fails).with_attr("global_symbol", "fails")
    return module


def _executable(
    steps: Sequence[Step],
    compiled: Compiled,
    *,
    overlap: bool,
    platform: Platform = PROBLEM.platform,
) -> StepExecutable:
    program = make_step_program(small_step(compiled[0]), laid_out(PROBLEM, steps))
    return StepExecutable(
        program, CompiledKernels(compiled[1]), platform, guard_bytes=4096, overlap=overlap
    )


def _copied_by(engine: str | None) -> Platform:
    links = tuple(replace(link, engine=engine) for link in PROBLEM.platform.links)
    return replace(PROBLEM.platform, links=links)


def _states(run: StepExecutable, steps: int = 4) -> list[bytes]:
    run.poison()
    run.write({"w": W})
    found = []
    for step in range(steps):
        results = run.step({"x": X + np.float32(step), "lr": LR})
        found += [results["loss"].tobytes(), run.read_state()["w"].tobytes()]
    assert all(arena.guard_is_intact() for arena in run.arenas.values())
    return found


def _helper(symbol: str) -> StreamCall:
    return StreamCall(0, helper_call(symbol), (), ())


@pytest.fixture
def delayed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every executable gets random delays in front of its calls."""
    rng = random.Random(0)

    def split(program: StepProgram, platform: Platform) -> Streams:
        streams = split_into_streams(program, platform)
        return replace(
            streams,
            calls={
                stream: tuple(
                    call
                    for one in calls
                    for call in (_helper(f"sleep_{rng.choice(_DELAYS_US)}"), one)
                )
                for stream, calls in streams.calls.items()
            },
        )

    monkeypatch.setattr(executable_module, "split_into_streams", split)
    yield


def test_any_schedule_gives_the_bits_of_the_run_in_turn_at_any_speed(
    compiled: Compiled, delayed: None
) -> None:
    overlapped = []

    @settings(max_examples=30)
    @given(programs(), st.sampled_from((None, "cpu", "cpu_generic")))
    def any_schedule(steps: list[Step], engine: str | None) -> None:
        run = _executable(steps, compiled, overlap=True, platform=_copied_by(engine))
        overlapped.append(run.is_overlapped)
        assert _states(run) == _states(_executable(steps, compiled, overlap=False))

    any_schedule()
    assert any(overlapped)


def test_one_stream_runs_in_turn(compiled: Compiled) -> None:
    assert not _executable(everything_on("cpu"), compiled, overlap=True).is_overlapped


def _crossing() -> list[Step]:
    steps = everything_on("cpu")
    return [*steps[:1], Transfer("h", "cpu", "cpu_generic"), *steps[1:]]


def test_a_failing_kernel_ends_all_streams_and_the_next_step_works(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = _executable(_crossing(), compiled, overlap=True)
    assert good.is_overlapped

    def split(program: StepProgram, platform: Platform) -> Streams:
        streams = split_into_streams(program, platform)
        first = next(iter(streams.calls))
        calls = {**streams.calls, first: (_helper("fails"), *streams.calls[first])}
        return replace(streams, calls=calls)

    monkeypatch.setattr(executable_module, "split_into_streams", split)
    bad = _executable(_crossing(), compiled, overlap=True)
    for _ in range(3):
        bad.write({"w": W})
        with pytest.raises(RuntimeError, match="this kernel fails"):
            bad.run()
    assert _states(good) == _states(_executable(_crossing(), compiled, overlap=False))


def _threads(first: Callable[[], object], second: Callable[[], object]) -> StreamThreads:
    return StreamThreads([first, second], Events(1), [(), ()])


def test_after_an_interrupt_no_stream_runs_any_more() -> None:
    ended = threading.Event()

    def slow() -> None:
        time.sleep(0.3)
        ended.set()

    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        _threads(slow, interrupt).run()
    assert ended.is_set()
