"""The order of ops on given devices by list scheduling: none waits while it could run something."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tvm_xengine.scheduling.constraints import Constraints
from tvm_xengine.scheduling.graph import Op
from tvm_xengine.scheduling.problem import Problem


def placed_in_order(problem: Problem, places: Mapping[str, str]) -> Problem:
    """The problem with each op pinned to its place, and its ops in the order in which they can begin.

    Copies begin once what they copy is there, and those of a link follow one another. Of ops that can
    begin at the same time on a device, the first one in the graph does. Memory does not count.

    Parameters
    ----------
    places
        The device of each op.
    """
    walk = _Walk(problem, places)
    graph = replace(problem.graph, ops=tuple(walk.run()))
    pinned = Constraints(places, problem.constraints.kept)
    return replace(problem, graph=graph, constraints=pinned)


@dataclass
class _Walk:
    """Runs the ops, each time the one that can begin first."""

    problem: Problem
    places: Mapping[str, str]
    free_at: dict[tuple[str, ...], float] = field(default_factory=dict)
    there_at: dict[tuple[str, str], float] = field(default_factory=dict)
    made_on: dict[str, str] = field(default_factory=dict)

    def run(self) -> list[Op]:
        graph = self.problem.graph
        self.made_on.update(self.problem.home)
        self.there_at.update(((name, at), 0.0) for name, at in self.problem.home.items())
        after = self._successors()
        missing = {op.name: 0 for op in graph.ops}
        for names in after.values():
            for name in names:
                missing[name] += 1
        waiting = [(0.0, k, op) for k, op in enumerate(graph.ops) if not missing[op.name]]
        heapq.heapify(waiting)
        order: list[Op] = []
        while waiting:
            guess, k, op = heapq.heappop(waiting)
            begin = self._begin(op)
            if begin > guess and waiting and (begin, k) > waiting[0][:2]:
                heapq.heappush(waiting, (begin, k, op))
                continue
            self._take(op)
            order.append(op)
            for name in after[op.name]:
                missing[name] -= 1
                if not missing[name]:
                    position = graph.op_index[name]
                    heapq.heappush(waiting, (self._begin(graph.op[name]), position, graph.op[name]))
        return order

    def _successors(self) -> dict[str, set[str]]:
        """The ops that must come later: those that read a result, and updates of what was read."""
        graph = self.problem.graph
        after: dict[str, set[str]] = {op.name: set() for op in graph.ops}
        for op in graph.ops:
            for tensor in graph.reads[op.name]:
                if (producer := graph.producer.get(tensor)) is not None:
                    after[producer].add(op.name)
                if (update := graph.updated_by.get(tensor)) is not None and update[0] != op.name:
                    after[op.name].add(update[0])
        return after

    def _begin(self, op: Op) -> float:
        """When an op could begin, if nothing else did before."""
        device = self.places[op.name]
        begin = self.free_at.get((device,), 0.0)
        return max([begin, *(self._arrival(t, device) for t in self.problem.graph.reads[op.name])])

    def _arrival(self, tensor: str, device: str) -> float:
        known = self.there_at.get((tensor, device))
        if known is not None:
            return known
        src = self.made_on[tensor]
        start = max(self.there_at[tensor, src], self._stream_free(src, device))
        return start + self._copy_us(tensor, src, device)

    def _take(self, op: Op) -> None:
        device = self.places[op.name]
        begin = self.free_at.get((device,), 0.0)
        for tensor in self.problem.graph.reads[op.name]:
            at = self._arrival(tensor, device)
            if (tensor, device) not in self.there_at:
                self.there_at[tensor, device] = at
                stream = self.problem.platform.copy_stream(self.made_on[tensor], device)
                self.free_at[stream] = at
            begin = max(begin, at)
        end = begin + self.problem.costs[op.name][device].compute_us
        self.free_at[device,] = end
        for output in op.outputs:
            self.there_at[output, device] = end
            self.made_on[output] = device

    def _stream_free(self, src: str, dst: str) -> float:
        return self.free_at.get(self.problem.platform.copy_stream(src, dst), 0.0)

    def _copy_us(self, tensor: str, src: str, dst: str) -> float:
        """Time of a copy, without a link by way of the device that makes it shortest."""
        platform, size = self.problem.platform, self.problem.graph.tensor[tensor].size_bytes
        links, handover_us = platform.link_between, platform.handover_us or 0.0
        ways = (((src, dst),), *(((src, via), (via, dst)) for via in platform.index))
        return min(
            (
                sum(links[hop].transfer_us(size) + handover_us for hop in way)
                for way in ways
                if all(hop in links for hop in way)
            ),
            default=math.inf,
        )
