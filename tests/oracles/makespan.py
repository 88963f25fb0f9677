"""The shortest makespan of a small problem, by trying sequences of steps.

It knows the rules of the problem and the validator, and nothing of the solvers.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Step, Transfer, stream_of_step, with_frees
from tvm_xengine.scheduling.simulate import simulate, step_us

MOST_STEPS = 9
"""Sequences are no longer, which is enough for four ops with some copies and repetitions."""
MOST_NODES = 20_000
"""So many sequences are looked at; the best of them is an upper bound on the optimum in any case."""


def shortest_makespan(problem: Problem, known_us: float) -> float:
    """The makespan of the best sequence that is found, or what is known already.

    An op runs at most once on each device, and a tensor is copied at most once to each.
    """
    problem = problem.without_constraints
    search = _Search(problem, known_us)
    search.extend([], {}, dict.fromkeys(problem.home.items(), 0.0))
    return search.best_us


class _Search:
    """Depth first, while streams and data alone allow a shorter makespan than the best."""

    def __init__(self, problem: Problem, best_us: float) -> None:
        self.problem, self.best_us, self.nodes = problem, best_us, 0

    def extend(
        self,
        steps: list[Step],
        stream_us: dict[tuple[str, ...], float],
        there_us: dict[tuple[str, str], float],
    ) -> None:
        """Value a sequence, and try each step after it."""
        self.nodes += 1
        if self.nodes > MOST_NODES:
            return
        self._value(steps)
        if len(steps) == MOST_STEPS:
            return
        found = []
        for step, needs, gives in self._next_steps(steps, there_us):
            stream = stream_of_step(self.problem.platform, step)
            begin = max([stream_us.get(stream, 0.0), *(there_us[key] for key in needs)])
            end = begin + step_us(self.problem, step)
            if end < self.best_us:
                found.append((end, len(found), step, stream, gives))
        for end, _, step, stream, gives in sorted(found, key=lambda one: one[:2]):
            if end < self.best_us:
                later = {**there_us, **{key: min(there_us.get(key, end), end) for key in gives}}
                self.extend([*steps, step], {**stream_us, stream: end}, later)

    def _value(self, steps: list[Step]) -> None:
        try:
            found = simulate(self.problem, with_frees(self.problem, steps))
        except InvalidScheduleError:
            return
        self.best_us = min(self.best_us, found.makespan_us)

    def _next_steps(
        self, steps: list[Step], there_us: dict[tuple[str, str], float]
    ) -> Iterator[tuple[Compute | Transfer, list[tuple[str, str]], list[tuple[str, str]]]]:
        graph, base = self.problem.graph, self.problem.graph.base
        for op in graph.ops:
            ran = [step for step in steps if isinstance(step, Compute) and step.op == op.name]
            if ran and not op.recomputable:
                continue
            for device in self.problem.costs[op.name]:
                needs = [(base[name], device) for name in op.inputs]
                if all(run.device != device for run in ran) and all(n in there_us for n in needs):
                    yield Compute(op.name, device), needs, [(name, device) for name in op.outputs]
        for name, src in list(there_us):
            for link in self.problem.platform.links:
                is_new = (name, link.dst) not in there_us
                if link.src == src and is_new:
                    yield Transfer(name, src, link.dst), [(name, src)], [(name, link.dst)]
