"""The time points at which a relaxation looks at memory, and the periods between them.

A time point is the first run of an op. Which op it is may be fixed, or left to the relaxation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.indexed import IndexedProblem


@dataclass(frozen=True)
class Periods:
    """When ops may first run, in periods between time points.

    Attributes
    ----------
    may_be
        Whether the first run of op i may be time point k, shape (K, n).
    earliest, latest
        For each op the first and last period in which it may first run; for one that may be a
        time point, the periods that its first run may end.
    """

    may_be: NDArray[np.bool_]
    earliest: tuple[int, ...]
    latest: tuple[int, ...]

    @property
    def time_point_count(self) -> int:
        """Number of time points, K."""
        return len(self.may_be)

    @property
    def is_time_point(self) -> NDArray[np.bool_]:
        """Whether the first run of op i is a time point, shape (n,)."""
        return np.asarray(self.may_be.any(axis=0), np.bool_)


def periods_in_given_order(indexed: IndexedProblem, time_points: Sequence[int]) -> Periods:
    """The periods when first runs follow the order of the ops."""
    return periods_in_order(indexed, time_points, range(indexed.op_count))


def periods_in_order(
    indexed: IndexedProblem, time_points: Sequence[int], order: Sequence[int]
) -> Periods:
    """The periods when first runs follow `order`, a permutation of the ops."""
    place = np.empty(indexed.op_count, np.int64)
    place[list(order)] = np.arange(indexed.op_count)
    ordered = tuple(sorted(set(time_points), key=lambda i: int(place[i])))
    period = np.searchsorted(place[list(ordered)], place).tolist()
    return Periods(_each_is(indexed, ordered), tuple(period), tuple(period))


def periods_in_every_order(
    indexed: IndexedProblem, time_points: Sequence[int], ancestors: Sequence[int]
) -> Periods:
    """The periods when first runs follow dependences only.

    The longest chain of dependences among `time_points` has one order in every schedule. Each of the
    others may be one of the places between those of the chain that come before it and those that come
    after it. So many places are left open there as time points may need, and some of them stay empty.

    `ancestors` are those of `ancestor_bits`.
    """
    chain = longest_chain(ancestors, time_points)
    floating = sorted({*time_points} - {*chain})
    between = {f: _range_in(chain, f, ancestors) for f in floating}
    places: list[list[int]] = []
    for k in range(len(chain) + 1):
        here = [f for f, (first, last) in between.items() if first <= k <= last]
        places += [here] * len(here) + [[m] for m in chain[k : k + 1]]
    places_of = {m: [k for k, ops in enumerate(places) if m in ops] for m in (*chain, *floating)}
    earliest, latest = [], []
    for i in range(indexed.op_count):
        own = places_of.get(i)
        after = (
            [own[0]] if own else [at[0] + 1 for m, at in places_of.items() if ancestors[i] >> m & 1]
        )
        before = (
            [own[-1]] if own else [at[-1] for m, at in places_of.items() if ancestors[m] >> i & 1]
        )
        earliest.append(max(after, default=0))
        latest.append(min(before, default=len(places)))
    may_be = np.zeros((len(places), indexed.op_count), np.bool_)
    for k, ops in enumerate(places):
        may_be[k, ops] = True
    return Periods(may_be, tuple(earliest), tuple(latest))


def longest_chain(ancestors: Sequence[int], ops: Iterable[int]) -> tuple[int, ...]:
    """The most of the ops each of which comes after the one before it in every order."""
    chains: dict[int, tuple[int, ...]] = {}
    for op in sorted(set(ops)):
        before = (chain for last, chain in chains.items() if ancestors[op] >> last & 1)
        chains[op] = (*max(before, key=len, default=()), op)
    return max(chains.values(), key=len, default=())


def _range_in(chain: Sequence[int], op: int, ancestors: Sequence[int]) -> tuple[int, int]:
    """The first and last period between ops of a chain in which another op may first run."""
    after = [k + 1 for k, m in enumerate(chain) if ancestors[op] >> m & 1]
    before = [k for k, m in enumerate(chain) if ancestors[m] >> op & 1]
    return max(after, default=0), min(before, default=len(chain))


def positions_in_every_order(indexed: IndexedProblem, ancestors: Sequence[int]) -> Periods:
    """Every first run is a time point, in whatever order dependences allow.

    `ancestors` are those of `ancestor_bits`.
    """
    count = indexed.op_count
    before = np.array([bits.bit_count() for bits in ancestors])
    after = np.array([sum(bits >> i & 1 for bits in ancestors) for i in range(count)])
    place = np.arange(count)[:, None]
    may_be = (before <= place) & (place < count - after)
    return Periods(may_be, tuple(before.tolist()), tuple((count - 1 - after).tolist()))


def _each_is(indexed: IndexedProblem, time_points: Sequence[int]) -> NDArray[np.bool_]:
    may_be = np.zeros((len(time_points), indexed.op_count), np.bool_)
    may_be[np.arange(len(time_points)), list(time_points)] = True
    return may_be


def depend_on_each_other(ancestors: Sequence[int], time_points: Iterable[int], op: int) -> bool:
    """Whether `op` comes before or after each of the others in every order.

    `ancestors` are those of `ancestor_bits`.
    """
    return all(ancestors[max(m, op)] >> min(m, op) & 1 for m in time_points if m != op)


def ancestor_bits(indexed: IndexedProblem) -> tuple[int, ...]:
    """For each op, as bits, the ops that must have run before it first runs.

    These are its ancestors, and for an update on a single device every reader of the old value.
    """
    bits: list[int] = []
    for i, tensors in enumerate(indexed.reads):
        before = 0
        for j in tensors:
            producer = int(indexed.producer[j])
            if producer >= 0:
                before |= bits[producer] | 1 << producer
            if indexed.device_count == 1 and indexed.updated_by[j] == i:
                for reader in indexed.consumers[j]:
                    if reader != i:
                        before |= bits[reader] | 1 << reader
        bits.append(before)
    return tuple(bits)
