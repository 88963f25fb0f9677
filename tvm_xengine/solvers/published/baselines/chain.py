"""A training graph as a chain of blocks, the form that chain checkpointing needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.indexed import ANYWHERE, NONE, NOWHERE, IndexedProblem
from tvm_xengine.solvers.program import Look
from tvm_xengine.solvers.published.bundles import best_single_device
from tvm_xengine.solvers.state import ScheduleState


@dataclass(frozen=True)
class Chain:
    """Blocks of forward ops, each read by the next through few tensors, and their backward ops.

    Attributes
    ----------
    device
        Where everything runs.
    forward, backward
        For each block its ops, in order; the last block holds the turn from forward to
        backward.
    forward_value, backward_value
        Of running each once.
    passed_units
        What each block passes to the next.
    saved_units
        What each block makes that its backward ops read, with what it passes on.
    peak_units
        Memory that running a block's ops needs in addition to what is kept.
    """

    indexed: IndexedProblem
    device: int
    forward: tuple[tuple[int, ...], ...]
    backward: tuple[tuple[int, ...], ...]
    forward_value: tuple[float, ...]
    backward_value: tuple[float, ...]
    passed_units: tuple[int, ...]
    saved_units: tuple[int, ...]
    peak_units: tuple[int, ...]

    @property
    def length(self) -> int:
        """Number of blocks."""
        return len(self.forward)

    @property
    def free_units(self) -> int:
        """Budget of the device less the state at home."""
        p = self.indexed
        return int(p.budget[self.device] - p.size[p.home == self.device].sum())


def chain_of(indexed: IndexedProblem, *, most_blocks: int = 64) -> Chain | None:
    """The chain of `indexed` on its best device; None when no device can run everything.

    The graph turns from forward to backward at the op that makes the loss. Forward ops are cut
    into blocks where least is passed on, at most `most_blocks`; a backward op belongs to the
    first block whose tensors it reads, or else to that of the one before.
    """
    device = best_single_device(indexed)
    if device is None:
        return None
    turn = _turn(indexed)
    crossing = _crossing_units(indexed, turn)
    count = max(1, min(most_blocks, turn))
    order = sorted(range(turn), key=lambda i: (crossing[i], i))
    cuts = sorted(order[: count - 1])
    block_of = np.searchsorted(cuts, np.arange(turn + 1)).tolist()
    blocks = block_of[-1] + 1
    forward = [[i for i in range(turn + 1) if block_of[i] == b] for b in range(blocks)]
    backward: list[list[int]] = [[] for _ in range(blocks)]
    block = blocks - 1
    for i in range(turn + 1, indexed.op_count):
        read = [
            block_of[u] for j in indexed.reads[i] if 0 <= (u := int(indexed.producer[j])) <= turn
        ]
        block = min([block, *read])
        backward[block].append(i)
    value = indexed.compute_value[:, device]
    passed = [int(crossing[cut]) for cut in cuts] + [0]
    saved = [_saved_units(indexed, ops, turn) for ops in forward]
    return Chain(
        indexed=indexed,
        device=device,
        forward=tuple(map(tuple, forward)),
        backward=tuple(map(tuple, backward)),
        forward_value=tuple(float(value[ops].sum()) for ops in forward),
        backward_value=tuple(float(value[ops].sum()) for ops in backward),
        passed_units=tuple(passed),
        saved_units=tuple(max(s, q) for s, q in zip(saved, passed, strict=True)),
        peak_units=tuple(
            _peak_units(indexed, [*f, *b], device) for f, b in zip(forward, backward, strict=True)
        ),
    )


def replay(
    chain: Chain, sequence: Iterable[tuple[str, int]], look: Look = lambda: None
) -> Schedule | None:
    """The schedule that runs blocks ``("forward", b)`` and ``("backward", b)`` in sequence.

    What a block is run for again need not be held, so it is freed. Ops that must not be
    repeated, or whose state is overwritten by then, run once, and hold their results. None where
    that breaks a rule of the problem.
    """
    state = ScheduleState(chain.indexed)
    try:
        for kind, b in sequence:
            look()
            for i in chain.forward[b] if kind == "forward" else chain.backward[b]:
                _run(state, i, chain.device)
    except InvalidScheduleError:
        return None
    return state.schedule()


def _run(state: ScheduleState, i: int, device: int) -> None:
    p = state.problem
    is_overwritten = any(
        p.updated_by[j] != NONE and state.has_run[p.updated_by[j]] for j in p.reads[i]
    )
    if state.has_run[i] and (is_overwritten or not p.recomputable[i]):
        return
    for j in state.missing(i, device):
        if p.home[j] != NONE:
            state.transfer(j, int(p.home[j]), device)
    state.compute(i, device)


def _turn(indexed: IndexedProblem) -> int:
    """The op that makes the first output, the loss; without one, that where most bytes wait."""
    outputs = np.flatnonzero((indexed.must_end_on == ANYWHERE) & (indexed.producer >= 0))
    if len(outputs):
        return int(indexed.producer[outputs].min())
    change = np.zeros(indexed.op_count + 1)
    for j in range(indexed.tensor_count):
        made, read = int(indexed.producer[j]), indexed.consumers[j]
        if made >= 0 and read:
            change[made] += indexed.size[j]
            change[read[-1]] -= indexed.size[j]
    return int(np.cumsum(change).argmax())


def _crossing_units(indexed: IndexedProblem, turn: int) -> list[int]:
    """For each forward op, what is made up to it and read by later forward ops."""
    change = np.zeros(turn + 2, np.int64)
    for j in range(indexed.tensor_count):
        made = int(indexed.producer[j])
        read = [k for k in indexed.consumers[j] if k <= turn]
        if 0 <= made <= turn and read:
            change[made] += indexed.size[j]
            change[read[-1]] -= indexed.size[j]
    return np.cumsum(change).tolist()  # type: ignore[no-any-return]


def _saved_units(indexed: IndexedProblem, ops: list[int], turn: int) -> int:
    return sum(
        int(indexed.size[j])
        for i in ops
        for j in indexed.makes[i]
        if any(k > turn for k in indexed.consumers[j]) or indexed.must_end_on[j] != NOWHERE
    )


def _peak_units(indexed: IndexedProblem, ops: list[int], device: int) -> int:
    return max(
        int(indexed.workspace[i, device] + sum(indexed.size[j] for j in indexed.makes[i]))
        for i in ops
    )
