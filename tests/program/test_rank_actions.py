"""Actions of ranks: whatever the interleaving, the bytes are those of the program run in turn."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.program.test_streams import step_programs
from tests.strategies import cases
from tvm_xengine.program.rank_actions import (
    Action,
    Finish,
    LocalCalls,
    Receive,
    Send,
    actions_of_rank,
    local_program,
)
from tvm_xengine.program.step_program import ArenaView, Call, KernelRun, StepProgram, TensorCopy

RANK_OF = {"a": 0, "b": 1, "c": 1}


class Memory:
    """Arenas of bytes, in which a kernel leaves a mark of itself and of what it has read."""

    def __init__(self, program: StepProgram) -> None:
        sizes = program.interface.arena_bytes
        self.arenas = {name: np.zeros(size, np.int64) for name, size in sizes.items()}

    def at(self, view: ArenaView) -> np.ndarray:
        return self.arenas[view.device][view.offset_bytes : view.offset_bytes + view.size_bytes]

    def run(self, call: Call) -> None:
        if isinstance(call, TensorCopy):
            self.put(call, self.at(call.src).copy())
            return
        mark = call.step + 1
        for view in call.inputs:
            assert isinstance(view, ArenaView)
            mark = (31 * mark + int(self.at(view).sum())) % 1_000_003
        for view in (*call.outputs, *((call.workspace,) if call.workspace else ())):
            self.at(view)[:] = mark

    def put(self, copy: TensorCopy, content: np.ndarray) -> None:
        """Copies between arenas of other sizes than the tensor take what both have."""
        target = self.at(copy.dst)
        count = min(len(target), len(content))
        target[:count] = content[:count]


def _run_in_any_order(program: StepProgram, seed: int) -> Memory:
    """Each rank acts in its order. A message is taken when both sides have begun, at any moment until
    one of them waits for it, which is when the bytes must not have changed.
    """
    memory, chance = Memory(program), random.Random(seed)
    queues: dict[int, list[Action]] = {
        rank: list(actions_of_rank(program, RANK_OF, rank)) for rank in set(RANK_OF.values())
    }
    begun: dict[int, dict[int, Send | Receive]] = {rank: {} for rank in queues}
    delivered: set[int] = set()

    def deliver(step: int) -> None:
        copy = begun[0][step].copy
        memory.put(copy, memory.at(copy.src).copy())
        delivered.add(step)

    while any(queues.values()):
        ready = [step for step in begun[0] if step in begun[1] and step not in delivered]
        movable = [rank for rank, queue in queues.items() if queue and _can(queue[0], delivered)]
        assert ready or movable, "no process can go on"
        choice = chance.choice(
            [*(("message", step) for step in ready), *(("rank", r) for r in movable)]
        )
        if choice[0] == "message":
            deliver(choice[1])
            continue
        match queues[choice[1]].pop(0):
            case LocalCalls(calls):
                for call in calls:
                    memory.run(call)
            case Finish():
                pass
            case message:
                begun[choice[1]][message.copy.step] = message
    assert delivered == set(begun[0]) == set(begun[1])
    return memory


def _can(action: Action, delivered: set[int]) -> bool:
    return not isinstance(action, Finish) or action.step in delivered


@settings(max_examples=cases(300))
@given(step_programs(), st.integers(0, 10**6))
def test_every_interleaving_leaves_the_bytes_of_the_program(
    program: StepProgram, seed: int
) -> None:
    in_turn = Memory(program)
    for call in program.calls:
        in_turn.run(call)
    found = _run_in_any_order(program, seed)
    for device, content in in_turn.arenas.items():
        assert found.arenas[device].tolist() == content.tolist()


@settings(max_examples=cases(100))
@given(step_programs())
def test_every_call_is_made_by_the_ranks_that_hold_its_bytes(program: StepProgram) -> None:
    made: Mapping[int, list[int]] = {0: [], 1: []}
    for rank in made:
        for action in actions_of_rank(program, RANK_OF, rank):
            match action:
                case LocalCalls(calls):
                    made[rank].extend(call.step for call in calls)
                case Send(copy) | Receive(copy):
                    made[rank].append(copy.step)
    for call in program.calls:
        devices = (
            [call.device] if isinstance(call, KernelRun) else [call.src.device, call.dst.device]
        )
        for rank in made:
            assert made[rank].count(call.step) == (rank in {RANK_OF[d] for d in devices})
    here = local_program(program, RANK_OF, 1)
    assert set(here.interface.arena_bytes) == {"b", "c"}
