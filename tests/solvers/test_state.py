"""The schedule state against the validator: what it lets pass is valid, and it counts the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies import cases, problems
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.graph import Op, OpGraph, Role, Tensor
from tvm_xengine.scheduling.platform import Device, Link, Platform
from tvm_xengine.scheduling.problem import OpCost, Problem
from tvm_xengine.scheduling.residency import _Walk
from tvm_xengine.scheduling.schedule import Free, Schedule, Step
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.indexed import (
    IndexedProblem,
)
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.state import ScheduleState


def updated_elsewhere() -> IndexedProblem:
    """A state at home on ``a`` whose update runs on ``b``."""
    graph = OpGraph(
        (Tensor("w", 4, Role.PARAMETER), Tensor("new", 4)),
        (Op("update", "k", ("w",), ("new",), (("new", "w"),), recomputable=False),),
    )
    links = (Link("a", "b", 1.0, 1.0), Link("b", "a", 1.0, 1.0))
    platform = Platform((Device("a", "llvm", 8), Device("b", "llvm", 8)), links, alignment_bytes=1)
    problem = Problem(graph, platform, {"update": {"b": OpCost(1.0)}}, {"w": "a"})
    return index_problem(problem, Objective.COST)


def test_an_update_takes_over_the_bytes_of_its_state() -> None:
    state = ScheduleState(updated_elsewhere())
    state.transfer(0, 0, 1)
    room = list(state.free_units)
    state.compute(0, 1)
    assert state.free_units == room
    assert not state.on[1, 0]
    assert state.overwritten[1, 0]
    state.transfer(1, 1, 0)
    assert state.free_units == room
    assert state.copies == [0, 2]
    simulate(state.problem.problem, state.schedule())


def test_steps_that_find_nothing_are_refused() -> None:
    state = ScheduleState(updated_elsewhere())
    with pytest.raises(InvalidScheduleError, match="w is not there"):
        state.compute(0, 1)
    with pytest.raises(InvalidScheduleError, match="not at the source"):
        state.transfer(0, 1, 0)


def test_an_update_must_not_land_where_its_state_is_gone() -> None:
    state = ScheduleState(updated_elsewhere())
    state.transfer(0, 0, 1)
    state.free(0, 0)
    state.compute(0, 1)
    with pytest.raises(InvalidScheduleError, match="the state that it replaces"):
        state.transfer(1, 1, 0)


@settings(max_examples=cases(100))
@given(problem=problems(max_ops=6, max_devices=3), data=st.data())
def test_what_is_there_is_what_the_validator_counts(problem: Problem, data: st.DataObject) -> None:
    indexed = index_problem(problem, Objective.COST)
    state = ScheduleState(indexed)
    written: list[Step] = []
    for _ in range(data.draw(st.integers(1, 12))):
        i = data.draw(st.integers(0, indexed.op_count - 1))
        d = data.draw(st.integers(0, indexed.device_count - 1))
        j = data.draw(st.integers(0, indexed.tensor_count - 1))
        a = data.draw(st.integers(0, indexed.device_count - 1))
        try:
            if data.draw(st.booleans()):
                assume(problem.can_run(indexed.op_names[i], indexed.device_names[d]))
                state.compute(i, d)
            elif state.on[d, j] and data.draw(st.booleans()):
                state.free(j, d)
                written.append(Free(indexed.tensor_names[j], indexed.device_names[d]))
                continue
            elif (a, d) in indexed.links:
                state.transfer(j, a, d)
            else:
                continue
        except InvalidScheduleError:
            continue
        written.append(state.steps[-1])
    live = _resident_units(indexed, written)
    assert state.free_units == [int(b) - used for b, used in zip(indexed.budget, live, strict=True)]


def _resident_units(indexed: IndexedProblem, steps: list[Step]) -> list[int]:
    """What is resident after `steps`, by the validator's own walk, in units."""
    walk = _Walk(indexed.problem)
    for position, step in enumerate(Schedule(tuple(steps)).steps):
        walk.take(position, step)
    used = [0] * indexed.device_count
    for (name, device), instance in walk.resident.items():
        if name in indexed.tensor_index:
            size = walk.instances[instance].size_bytes // indexed.unit_bytes
            used[indexed.device_names.index(device)] += size
    return used
