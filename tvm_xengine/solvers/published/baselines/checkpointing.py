"""Checkpointing of chains: recompute-all, sqrt(n), Revolve and the dynamic program of Rotor.

Each gives sequences of block runs (see `chain`), from lax to frugal; the cheapest that the
validator accepts is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.index_problem import index_problem, summed
from tvm_xengine.solvers.program import Look
from tvm_xengine.solvers.published.baselines.chain import Chain, chain_of, replay
from tvm_xengine.solvers.request import Request, TimeIsUpError

Sequence = list[tuple[str, int]]
_Table = NDArray[np.float64]
_MEMORY_SLOTS = 64
"""Steps in which the dynamic program counts memory: its time grows with their number, and rounding up
loses at most one in 64 of the budget for each block."""
_REPLAY_SHARE = 1 / 3
"""Of the time left, for replaying a plan: to free what is read no more, and to validate, takes twice that."""
_MEMORY_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""Shares of the budget that are tried, since what lies between blocks is not counted."""


def recompute_all(problem: Problem, request: Request) -> Schedule | None:
    """Every block's forward ops are run again from the start before its backward ops."""
    return _best(problem, request, lambda chain: iter([_from_scratch(chain)]))


def sqrt_checkpointing(problem: Problem, request: Request) -> Schedule | None:
    """Chen et al. (2016): segments of about sqrt(n) blocks, of which the first blocks are kept.

    Other numbers of segments are tried too.
    """
    return _best(problem, request, _segmentations)


def revolve(problem: Problem, request: Request) -> Schedule | None:
    """Griewank and Walther (2000): binomial checkpointing, as if all blocks were alike."""
    return _best(
        problem,
        request,
        lambda chain: (_binomial(chain.length, slots) for slots in _slot_counts(chain)),
    )


def rotor(problem: Problem, request: Request) -> Schedule | None:
    """Beaumont et al. (2019): the optimal persistent checkpoints of a chain of unlike blocks.

    The dynamic program counts memory in steps of the budget / 64; several shares of the budget
    are tried, since it knows a chain's memory only roughly.
    """

    def plans(chain: Chain) -> Iterator[Sequence]:
        for share in _MEMORY_SHARES:
            plan = _plan_chain(chain, share * chain.free_units, request.looking(1.0))
            if plan is not None:
                yield plan

    return _best(problem, request, plans)


def _best(
    problem: Problem, request: Request, plans: Callable[[Chain], Iterator[Sequence]]
) -> Schedule | None:
    chain = chain_of(index_problem(problem, summed(request.objective)))
    if chain is None:
        return None

    best: Schedule | None = None
    try:
        for plan in plans(chain):
            made = replay(chain, plan, request.looking(_REPLAY_SHARE))
            best = request.best_of(problem, [best, made])
    except TimeIsUpError:
        if best is None:
            raise
    return best


def _from_scratch(chain: Chain) -> Sequence:
    sequence: Sequence = [("forward", b) for b in range(chain.length - 1)]
    for b in reversed(range(chain.length)):
        sequence += [("forward", a) for a in range(b + 1)] if b < chain.length - 1 else []
        if b == chain.length - 1:
            sequence.append(("forward", b))
        sequence.append(("backward", b))
    return sequence


def _segmentations(chain: Chain) -> Iterator[Sequence]:
    length = chain.length
    counts = {round(math.sqrt(length)), *range(1, min(length, 12) + 1), length // 2}
    for count in sorted(c for c in counts if c >= 1):
        yield _segments(length, count)


def _segments(length: int, count: int) -> Sequence:
    """Forward once; before the backward of a segment but the last, its forward again."""
    starts = np.linspace(0, length, count + 1).round().astype(int).tolist()
    sequence: Sequence = [("forward", b) for b in range(length)]
    for s in reversed(range(count)):
        if s < count - 1:
            sequence += [("forward", b) for b in range(starts[s], starts[s + 1])]
        sequence += [("backward", b) for b in reversed(range(starts[s], starts[s + 1]))]
    return sequence


def _slot_counts(chain: Chain) -> list[int]:
    return sorted({min(chain.length, c) for c in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)})


def _binomial(length: int, slots: int) -> Sequence:
    """Runs that reverse `length` blocks with so many checkpoints, with fewest repetitions."""

    @cache
    def fewest(blocks: int, free: int) -> tuple[int, int]:
        """(forward runs, where to put the next checkpoint)."""
        if blocks <= 1:
            return blocks, 0
        if free == 0:
            return blocks * (blocks + 1) // 2, 0
        return min(
            (k + fewest(blocks - k, free - 1)[0] + fewest(k, free)[0], k) for k in range(1, blocks)
        )

    sequence: Sequence = []

    def reverse(begin: int, end: int, free: int) -> None:
        if end - begin == 1:
            sequence.extend([("forward", begin), ("backward", begin)])
            return
        if free == 0:
            for b in reversed(range(begin, end)):
                sequence.extend(("forward", a) for a in range(begin, b + 1))
                sequence.append(("backward", b))
            return
        split = begin + fewest(end - begin, free)[1]
        sequence.extend(("forward", b) for b in range(begin, split))
        reverse(split, end, free - 1)
        reverse(begin, split, free)

    reverse(0, length, slots)
    return sequence


def _plan_chain(chain: Chain, free_units: float, look: Look) -> Sequence | None:
    """The runs of least weight for which `free_units` suffice; None when they never do.

    cost(s, t, m), blocks s..t with memory m in addition to the input of s, is the least of
      keep all of s:          F_s + cost(s+1, t, m - saved_s) + B_s
      keep the input of s':   F_s + ... + F_{s'-1} + cost(s', t, m - passed_{s'-1}) + cost(s, s'-1, m)
    """
    if free_units <= 0:
        return None
    unit = free_units / _MEMORY_SLOTS
    saved = [math.ceil(s / unit) for s in chain.saved_units]
    passed = [math.ceil(s / unit) for s in chain.passed_units]
    peak = [math.ceil(s / unit) for s in chain.peak_units]
    cost, choice = _least_costs(chain, saved, passed, peak, look)
    if not np.isfinite(cost[0, chain.length - 1, _MEMORY_SLOTS]):
        return None
    sequence: Sequence = []

    def unfold(s: int, t: int, m: int) -> None:
        middle = int(choice[s, t, m])
        if s == t:
            sequence.extend([("forward", s), ("backward", s)])
        elif middle == s:
            sequence.append(("forward", s))
            unfold(s + 1, t, m - saved[s])
            sequence.append(("backward", s))
        else:
            sequence.extend(("forward", b) for b in range(s, middle))
            unfold(middle, t, m - passed[middle - 1])
            unfold(s, middle - 1, m)

    unfold(0, chain.length - 1, _MEMORY_SLOTS)
    return sequence


def _least_costs(
    chain: Chain, saved: list[int], passed: list[int], peak: list[int], look: Look
) -> tuple[_Table, NDArray[np.int64]]:
    """cost(s, t, m), and the block whose input is kept next: s where all of s is kept."""
    length, run, back = chain.length, chain.forward_value, chain.backward_value
    slots = np.arange(_MEMORY_SLOTS + 1)
    cost = np.full((length, length, _MEMORY_SLOTS + 1), np.inf)
    choice = np.full((length, length, _MEMORY_SLOTS + 1), -1)
    for s in reversed(range(length)):
        look()
        alone = np.where(slots >= saved[s] + peak[s], run[s] + back[s], np.inf)
        cost[s, s], choice[s, s] = alone, s
        for t in range(s + 1, length):
            kept = run[s] + back[s] + _with_less(cost[s + 1, t], saved[s])
            kept = np.where(slots >= saved[s] + peak[s], kept, np.inf)
            cost[s, t], choice[s, t] = kept, s
            ahead = 0.0
            for middle in range(s + 1, t + 1):
                ahead += run[middle - 1]
                rest = _with_less(cost[middle, t], passed[middle - 1])
                split = ahead + rest + cost[s, middle - 1]
                better = split < cost[s, t]
                cost[s, t][better], choice[s, t][better] = split[better], middle
    return cost, choice


def _with_less(values: _Table, taken: int) -> _Table:
    """Costs by memory where `taken` slots of it are in use."""
    moved = np.full(len(values), np.inf)
    if taken < len(values):
        moved[taken:] = values[: len(values) - taken]
    return moved
