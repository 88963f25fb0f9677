"""However late a rank is, no rank reads bytes before they are written, nor writes those that one reads."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import tvm
from hypothesis import given, settings

from tests.cluster.thread_ranks import in_ranks
from tests.passes.small_step import small_problem, two_cpus
from tests.program.laid_out import everything_on, laid_out, programs, small_step
from tests.runtime.delays import Compiled, compiled_with, delay, delay_kernels
from tvm_xengine.cluster import mapped_arenas, messages
from tvm_xengine.cluster.rank_executable import RankExecutable
from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.program.make import make_step_program
from tvm_xengine.program.rank_actions import Action, LocalCalls, actions_of_rank
from tvm_xengine.program.step_program import ArenaView, KernelRun, StepProgram
from tvm_xengine.program.streams import StreamCall, Streams, split_into_streams
from tvm_xengine.runtime.events import can_overlap
from tvm_xengine.runtime.executable import CompiledKernels, StepExecutable
from tvm_xengine.runtime.storage import Arena
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.schedule import Compute, Step, Transfer

pytestmark = pytest.mark.skipif(not can_overlap(), reason="needs memory that processes share")

PROBLEM = small_problem(two_cpus())
"""Inputs and state are at home on `cpu`, which is rank 0 here; `cpu_generic` is rank 1."""
X = np.random.default_rng(0).random((4, 8), dtype="float32")
W = np.random.default_rng(1).random(32, dtype="float32")
LR = np.float32(0.1)
_LATE_US = 100_000
"""Far more than a step takes, also on a busy machine."""
_DELAYS_US = (0, 50, 400, _LATE_US)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compiled_with(delay_kernels(_DELAYS_US))


def _platform(engine: str | None) -> Platform:
    cpu, generic = PROBLEM.platform.devices
    links = tuple(replace(link, engine=engine) for link in PROBLEM.platform.links)
    return replace(PROBLEM.platform, devices=(cpu, replace(generic, rank=1)), links=links)


def _program(steps: Sequence[Step], compiled: Compiled) -> StepProgram:
    return make_step_program(small_step(compiled[0]), laid_out(PROBLEM, steps))


LOSS_ON_RANK_1: list[Step] = [
    *(step for step in everything_on("cpu") if step != Compute("w_new", "cpu")),
    *(Transfer("w", "cpu", "cpu_generic"), Transfer("x", "cpu", "cpu_generic")),
    *(Compute(op, "cpu_generic") for op in ("h", "both", "y")),
    Compute("w_new", "cpu"),
]
"""Rank 0 waits for nothing of rank 1 but the copy of `w`, which it writes over."""


def _train(run: StepExecutable, pause: Callable[[], object]) -> list[bytes]:
    """What is found after steps, with inputs and state written between and behind them."""
    run.poison()
    run.write({"w": W})
    found = []
    for step in range(3):
        pause()
        found.append(run.step(_inputs(step))["loss"])
        found.append(run.read_state()["w"])
        run.write({"w": found[-1] + np.float32(step)})
    for step in range(2):
        run.write(_inputs(step))
        run.run()
        run.write(_inputs(step + 1))  # which another rank must have read before
        found.append(run.read_results()["loss"])
    pause()
    run.write({"w": W})
    found.append(run.read_state()["w"])
    return [values.tobytes() for values in found]


def _inputs(step: int) -> dict[str, np.ndarray]:
    return {"x": X + np.float32(step), "lr": LR}


def _in_one_process(program: StepProgram, libraries: list[tvm.runtime.Module]) -> list[bytes]:
    return _train(StepExecutable(program, CompiledKernels(libraries), PROBLEM.platform), _nothing)


def _nothing() -> None:
    pass


def _is_late() -> None:
    time.sleep(_LATE_US / 1e6)


@dataclass(frozen=True)
class _SlowArena:
    """Takes long to be looked at."""

    arena: Arena
    file: None = None

    def view(self, view: ArenaView) -> tvm.runtime.Tensor:
        _is_late()
        return self.arena.view(view)


def _copies_late(program: StepProgram, platform: Platform) -> Streams:
    """Between the copies of `w` and of `x` to rank 1 it is late."""
    streams = split_into_streams(program, platform)
    first, *others = streams.calls["cpu_generic",]
    calls = (first, StreamCall(0, delay(_LATE_US), (), ()), *others)
    return replace(streams, calls={**streams.calls, ("cpu_generic",): calls})


@pytest.mark.parametrize(
    ("late", "engine"),
    [
        ("rank 0 writes", None),
        ("rank 0 writes", "cpu_generic"),
        ("rank 1 copies", "cpu_generic"),
        ("rank 1 reads", "cpu_generic"),
    ],
)
def test_a_late_rank_finds_and_leaves_what_it_would_in_time(
    late: str, engine: str | None, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = _program(LOSS_ON_RANK_1, compiled)
    if late == "rank 1 copies":
        monkeypatch.setattr(mapped_arenas, "split_into_streams", _copies_late)

    def work(ranks: Ranks) -> list[bytes]:
        run = RankExecutable(program, CompiledKernels(compiled[1]), _platform(engine), ranks)
        if late == "rank 1 reads" and not ranks.leads:
            arenas = run._transport.arenas
            run._transport.arenas = {**arenas, "cpu": _SlowArena(arenas["cpu"])}
        is_late = late == "rank 0 writes" and ranks.leads
        return _train(run, _is_late if is_late else _nothing)

    expected = _in_one_process(program, compiled[1])
    assert in_ranks(work) == [expected, expected]


@pytest.mark.parametrize("engine", [None, "cpu_generic"])
def test_calls_of_all_ranks_are_timed_by_one_clock(engine: str | None, compiled: Compiled) -> None:
    program = _program(LOSS_ON_RANK_1, compiled)

    def work(ranks: Ranks) -> tuple[Mapping[int, tuple[float, float]], float, list[bytes]]:
        run = RankExecutable(program, CompiledKernels(compiled[1]), _platform(engine), ranks)
        run.write({"w": W})
        with run.marked() as marks:
            assert marks.intervals_us == {}
            for step in range(2):
                run.step(_inputs(step))
        return marks.intervals_us, marks.step_us, _train(run, _nothing)

    (interval, step_us, found), other = in_ranks(work)
    assert other == (interval, step_us, found)
    assert found == _in_one_process(program, compiled[1])
    assert step_us > 0
    assert sorted(interval) == sorted(call.step for call in program.calls)
    assert all(0 <= begin <= end for begin, end in interval.values())
    steps = laid_out(PROBLEM, LOSS_ON_RANK_1).schedule.steps
    at = {steps[position]: times for position, times in interval.items()}
    for copied, read_by in (("w", "y"), ("x", "h")):
        _begin, end = at[Transfer(copied, "cpu", "cpu_generic")]
        assert end <= at[Compute(read_by, "cpu_generic")][0]


@pytest.mark.slow
@pytest.mark.parametrize("engine", [None, "cpu", "cpu_generic"])
def test_any_schedule_gives_the_same_bits_at_any_speed_of_each_rank(
    engine: str | None, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delays of random lengths before every call of every rank, and wherever the program calls the step."""
    chance = random.Random(0)

    def slow() -> KernelRun:
        return delay(chance.choice(_DELAYS_US[:-1]))

    def split(program: StepProgram, platform: Platform) -> Streams:
        streams = split_into_streams(program, platform)
        calls = {
            stream: tuple(c for one in own for c in (StreamCall(0, slow(), (), ()), one))
            for stream, own in streams.calls.items()
        }
        return replace(streams, calls=calls)

    def actions(program: StepProgram, rank_of: Mapping[str, int], rank: int) -> tuple[Action, ...]:
        every = actions_of_rank(program, rank_of, rank)
        return tuple(each for one in every for each in (LocalCalls((slow(),)), one))

    monkeypatch.setattr(mapped_arenas, "split_into_streams", split)
    monkeypatch.setattr(messages, "actions_of_rank", actions)

    @settings(max_examples=50)
    @given(programs())
    def any_schedule(steps: list[Step]) -> None:
        program = _program(steps, compiled)

        def work(ranks: Ranks) -> list[bytes]:
            run = RankExecutable(program, CompiledKernels(compiled[1]), _platform(engine), ranks)
            return _train(run, lambda: time.sleep(chance.choice(_DELAYS_US[:-1]) / 1e6))

        expected = _in_one_process(program, compiled[1])
        assert in_ranks(work) == [expected, expected]

    any_schedule()
