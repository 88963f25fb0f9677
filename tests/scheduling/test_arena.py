import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.test_simulate import chain, on, run_somehow
from tests.strategies import problems
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, with_frees
from tvm_xengine.scheduling.simulate import simulate


def test_the_arena_of_a_chain_is_its_peak() -> None:
    problem = chain()
    schedule = with_frees(problem, on("d0", "a", "b", "a", "c", "up"))
    arenas = plan_arenas(problem, schedule)
    # The peak of live bytes is 407; offsets are multiples of 4, so is the workspace's size.
    assert arenas.arena_bytes == {"d0": 408}


def test_state_lies_at_the_bottom_and_keeps_its_address() -> None:
    problem = chain()
    arenas = plan_arenas(problem, with_frees(problem, on("d0", "a", "b", "c", "up")))
    state = [i for i in arenas.residency.instances if i.is_home_state]
    assert [arenas.offset_bytes[i.id] for i in state] == [0]


@settings(max_examples=100)
@given(problems(max_devices=3), st.data(), st.booleans())
def test_nothing_that_lives_together_shares_a_byte(
    problem: Problem, data: st.DataObject, reserve_home: bool
) -> None:
    steps = run_somehow(problem, data)
    if not steps:
        return
    schedule = with_frees(problem, steps)
    peak = simulate(problem, schedule, enforce_budgets=False).peak_bytes
    arenas = plan_arenas(problem, schedule, reserve_home=reserve_home)
    alignment = problem.platform.alignment_bytes
    for device in problem.platform.devices:
        owner = np.full((len(schedule.steps), arenas.arena_bytes[device.name]), -1)
        pieces = [
            (max(i.start, 0), i.end, arenas.offset_bytes[i.id], i.size_bytes)
            for i in arenas.residency.instances
            if i.device == device.name
        ]
        for position, step in enumerate(schedule.steps):
            if isinstance(step, Compute) and step.device == device.name:
                size = problem.costs[step.op][device.name].workspace_bytes
                if size:
                    offset = arenas.workspace_offset_bytes[position]
                    pieces.append((position, position, offset, size))
        for name, (start, end, offset, size) in enumerate(pieces):
            assert offset % alignment == 0
            area = owner[start : end + 1, offset : offset + size]
            assert (area == -1).all()
            area[:] = name
        assert arenas.arena_bytes[device.name] >= peak[device.name]


@settings(max_examples=50)
@given(problems(max_devices=3), st.data())
def test_reserved_state_lies_below_everything_that_goes(
    problem: Problem, data: st.DataObject
) -> None:
    steps = run_somehow(problem, data)
    if not steps:
        return
    schedule = with_frees(problem, steps)
    arenas = plan_arenas(problem, schedule, reserve_home=True)
    whole = (0, len(schedule.steps))
    for device in problem.platform.index:
        mine = [i for i in arenas.residency.instances if i.device == device]
        tops = [arenas.offset_bytes[i.id] + i.size_bytes for i in mine if i.is_home_state]
        others = [i for i in mine if not i.is_home_state and (max(i.start, 0), i.end) != whole]
        assert all(arenas.offset_bytes[i.id] >= max(tops, default=0) for i in others)
