"""An order of the ops that gives memory back as early as it can."""

from __future__ import annotations

from dataclasses import replace

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.local_search.arrays import END_NOWHERE, Arrays

_AHEAD = 12
"""How many ops of the given order are looked at for the next one."""


def in_lean_order(arrays: Arrays) -> Problem:
    """The same problem with its ops in an order that needs less memory when all is kept.

    Among the next ops that can run, the first that frees more than it takes goes first; if
    there is none, the given order is followed.
    """
    graph = arrays.problem.graph
    size = arrays.size_bytes.tolist()
    reads = [
        arrays.read_tensor[arrays.read_ptr[i] : arrays.read_ptr[i + 1]].tolist()
        for i in range(arrays.n_ops)
    ]
    grows = [
        sum(
            size[t]
            for t in arrays.made_tensor[arrays.made_ptr[i] : arrays.made_ptr[i + 1]].tolist()
            if arrays.state_of[t] < 0
        )
        for i in range(arrays.n_ops)
    ]
    stays = (arrays.end_device != END_NOWHERE) | (arrays.updater >= 0)
    readers_left = [0] * arrays.n_tensors
    for own in reads:
        for t in own:
            readers_left[t] += 1
    missing = [len(before) for before in arrays.prerequisites]

    waiting = list(range(arrays.n_ops))
    order: list[int] = []
    while waiting:
        ready = [i for i in waiting[:_AHEAD] if missing[i] == 0]

        def growth(i: int) -> int:
            freed = sum(size[t] for t in reads[i] if readers_left[t] == 1 and not stays[t])
            return int(grows[i] - freed)

        chosen = min(ready, key=lambda i: (min(growth(i), 0), i))
        waiting.remove(chosen)
        order.append(chosen)
        for t in reads[chosen]:
            readers_left[t] -= 1
        for i in arrays.dependents[chosen]:
            missing[i] -= 1
    ops = tuple(graph.ops[i] for i in order)
    return replace(arrays.problem, graph=replace(graph, ops=ops))
