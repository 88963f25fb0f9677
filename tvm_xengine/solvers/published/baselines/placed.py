"""Keep everything: every op runs once, on a device that is given, and nothing is dropped early."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, Step, Transfer, with_frees
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.working_set import required_ops


def keep_all(problem: Problem, request: Request) -> Schedule | None:
    """The best schedule that runs every op once; None when none of those tried fits."""
    best: tuple[float, Schedule] | None = None
    for placement in _placements(problem):
        schedule = run_once(problem, placement)
        value = request.value_of(problem, schedule)
        if schedule is not None and value is not None and (best is None or value < best[0]):
            best = value, schedule
    return best[1] if best else None


def run_once(problem: Problem, placement: dict[str, str]) -> Schedule | None:
    """The schedule that runs each op once on its device of `placement`, in the graph's order.

    Tensors are copied along the cheapest links right before they are read; updates go home
    right after. None when a link is missing.
    """
    graph = problem.graph
    where: dict[str, set[str]] = {name: {device} for name, device in problem.home.items()}
    steps: list[Step] = []

    def bring(tensor: str, device: str) -> bool:
        if device in where[tensor]:
            return True
        route = _cheapest_route(problem, tensor, where[tensor], device)
        steps.extend(Transfer(tensor, src, dst) for src, dst in route)
        where[tensor].update(dst for _, dst in route)
        return bool(route)

    for op in graph.ops:
        if op.name not in placement:
            continue
        device = placement[op.name]
        if not all(bring(tensor, device) for tensor in graph.reads[op.name]):
            return None
        steps.append(Compute(op.name, device))
        for output in op.outputs:
            where[output] = {device}
        for output, state in op.updates:
            if not bring(output, problem.home[state]):
                return None
    return with_frees(problem, steps)


def _placements(problem: Problem) -> Iterator[dict[str, str]]:
    """Everything on one device, for each that can; every op where it is fastest."""
    required = required_ops(problem.graph)
    names = [op.name for op in problem.graph.ops if op.name in required]
    for device in problem.platform.computing:
        if all(problem.can_run(name, device.name) for name in names):
            yield dict.fromkeys(names, device.name)
    if len(problem.platform.computing) > 1:
        yield {
            name: min(problem.costs[name], key=lambda d: problem.costs[name][d].compute_us)
            for name in names
        }


def _cheapest_route(
    problem: Problem, tensor: str, sources: set[str], device: str
) -> list[tuple[str, str]]:
    """The links over which `tensor` reaches `device` soonest; empty when it cannot."""
    size = problem.graph.tensor[tensor].size_bytes
    heap: list[tuple[float, str, list[tuple[str, str]]]] = [(0.0, s, []) for s in sorted(sources)]
    done: set[str] = set()
    while heap:
        reached, at, route = heapq.heappop(heap)
        if at == device:
            return route
        if at in done:
            continue
        done.add(at)
        for (src, dst), link in problem.platform.link_between.items():
            if src == at and dst not in done:
                total = reached + link.transfer_us(size)
                heapq.heappush(heap, (total, dst, [*route, (src, dst)]))
    return []
