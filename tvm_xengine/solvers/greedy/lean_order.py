"""Orders of the ops that free memory as early as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tvm_xengine.solvers.indexed import NONE, NOWHERE, IndexedProblem, in_order

_AHEAD = 12
"""How many ops of the given order are looked at for the next one: about a layer's worth.
From 6 to 24 schedules differ by 0.5 % in `benchmarks.solvers.sensitivity`."""


def in_lean_order(indexed: IndexedProblem) -> IndexedProblem:
    """The same problem with its ops in an order that needs less memory when all is kept.

    Among the next ops that can run, the first that frees more than it takes goes first; if
    there is none, the given order is followed.
    """
    p = indexed
    grows = [sum(int(p.size[j]) for j in made if p.update_of[j] == NONE) for made in p.makes]
    stays = (p.must_end_on != NOWHERE) | (p.updated_by != NONE)
    readers_left = [len(readers) for readers in p.consumers]
    missing = [len(before) for before in p.predecessors]

    waiting = list(range(p.op_count))
    order: list[int] = []
    while waiting:
        ready = [i for i in waiting[:_AHEAD] if missing[i] == 0]

        def growth(i: int) -> int:
            freed = sum(int(p.size[j]) for j in p.reads[i] if readers_left[j] == 1 and not stays[j])
            return grows[i] - freed

        chosen = min(ready, key=lambda i: (min(growth(i), 0), i))
        waiting.remove(chosen)
        order.append(chosen)
        for j in p.reads[chosen]:
            readers_left[j] -= 1
        for i in p.successors[chosen]:
            missing[i] -= 1
    return in_order(p, order)


def in_grouped_order(indexed: IndexedProblem) -> IndexedProblem:
    """The same problem with its ops in an order that often needs still less, but takes longer to find.

    All readers of a tensor that is there go next, if they free more than they take together: those of
    the tensor whose readers free most. Where none do, the given order is followed by one op.
    """
    p = indexed
    size: list[int] = p.size.tolist()
    stays = ((p.must_end_on != NOWHERE) | (p.updated_by != NONE)).tolist()
    grows = [sum(size[j] for j in made if p.update_of[j] == NONE) for made in p.makes]
    unread = [dict.fromkeys(readers) for readers in p.consumers]
    missing = [len(before) for before in p.predecessors]
    ready = {i for i in range(p.op_count) if missing[i] == 0}
    live = {j for j in range(p.tensor_count) if p.producer[j] == NONE}
    order: list[int] = []

    def growth(group: Iterable[int]) -> int:
        read = Counter(j for i in group for j in dict.fromkeys(p.reads[i]))
        freed = sum(size[j] for j, n in read.items() if n == len(unread[j]) and not stays[j])
        return sum(grows[i] for i in group) - freed

    while ready:
        groups = (unread[j] for j in live if not stays[j] and unread[j].keys() <= ready)
        ranked = ((growth(group), min(group), tuple(group)) for group in groups)
        least, _, chosen = min(ranked, default=(0, 0, ()))
        for i in sorted(chosen) if least < 0 else [min(ready)]:
            ready.discard(i)
            order.append(i)
            live.update(p.makes[i])
            for j in p.reads[i]:
                unread[j].pop(i, None)
                if not unread[j]:
                    live.discard(j)
            for after in p.successors[i]:
                missing[after] -= 1
                if not missing[after]:
                    ready.add(after)
        live = {j for j in live if unread[j]}
    return in_order(p, order)
