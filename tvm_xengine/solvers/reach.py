"""Finds ops whose inputs can never come together, because no links lead there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.solvers.working_set import required_ops


def cut_off(problem: Problem) -> str | None:
    """A sentence that names a required op which no chain of links lets run; None without one.

    Budgets play no part: what is cut off has no schedule, however large they are.
    """
    graph, platform = problem.graph, problem.platform
    beyond: dict[str, list[str]] = {name: [] for name in platform.index}
    for src, dst in platform.link_between:
        beyond[src].append(dst)
    leads_to = {name: _reached_from(beyond, name) for name in platform.index}
    on: dict[str, set[str]] = {name: set(leads_to[device]) for name, device in problem.home.items()}
    required = required_ops(graph)
    for op in graph.ops:
        if op.name not in required:
            continue
        devices = set(problem.costs[op.name])
        for name in graph.reads[op.name]:
            if not devices & on[name]:
                return (
                    f"op {op.name} can run on {sorted(problem.costs[op.name])}, but {name}, which it"
                    f" reads, can only be on {sorted(on[name])}, and no links lead from there"
                )
            devices &= on[name]
        for output, state in op.updates:
            home = problem.home[state]
            landing = {device for device in devices if home in leads_to[device]}
            if not landing:
                return (
                    f"op {op.name} can run on {sorted(devices)}, but no links lead from there to"
                    f" {home}, the home of {state}, which becomes {output}"
                )
            devices = landing
        if not devices:
            return f"no device can hold all that op {op.name} reads: links are missing"
        for output in op.outputs:
            on[output] = set().union(*(leads_to[device] for device in devices))
    return None


def _reached_from(beyond: Mapping[str, Sequence[str]], device: str) -> set[str]:
    """The device and all to which links lead from it, by those at the ends of each one's links."""
    reached, ahead = {device}, [device]
    while ahead:
        new = set(beyond[ahead.pop()]) - reached
        reached |= new
        ahead += new
    return reached
