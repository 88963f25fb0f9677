"""Presolve: removes dominated devices, which another one with room for everything matches.

What runs on such a device, or is kept there, may be moved to the other one: there it costs no
more, and nothing has to leave for it. Only state must be looked at, because the two might hold
different versions of it, one before and one after its update. They need not where nothing reads
what the update makes: then it may as well run last of all, and what it makes goes home after that,
in the order in which it went. Until then its home holds the state or nothing, which is no larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule, Transfer
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.indexed import (
    IndexedProblem,
)
from tvm_xengine.solvers.relaxation.uncapacitated import uncapacitated_devices
from tvm_xengine.solvers.request import Request
from tvm_xengine.solvers.result import Objective, SolveResult

Solver = Callable[[Problem, Request], SolveResult]


def solved_without_dominated_devices(
    solver: Solver, problem: Problem, request: Request
) -> SolveResult:
    """The result of `solver` on the problem without dominated devices.

    Its optimum is the same. For the makespan, where devices work side by side, and with a
    schedule to begin from that uses what is left out, nothing is left out.
    """
    if request.objective is not Objective.MAKESPAN:
        reduced = without_dominated_devices(problem, request.objective)
        if request.start is None or _is_on(request.start, reduced):
            problem = reduced
    return solver(problem, request)


def without_dominated_devices(problem: Problem, objective: Objective) -> Problem:
    """The problem without the devices that are dominated under `objective`."""
    if len(problem.platform.devices) < 3:  # one is home, the other the only one to match it
        return problem
    indexed = index_problem(problem, objective)
    for r, name in enumerate(indexed.device_names):
        is_home = name in problem.home.values() or name == problem.platform.home
        if is_home or any(there.keys() == {name} for there in problem.costs.values()):
            continue
        others = np.flatnonzero(uncapacitated_devices(indexed)).tolist()
        if any(_dominates(indexed, other, r, range(indexed.tensor_count)) for other in others):
            return without_dominated_devices(without_device(problem, name), objective)
    return problem


def _is_on(schedule: Schedule, problem: Problem) -> bool:
    """Whether a schedule of a problem with more devices uses none that this one lacks."""
    known = problem.platform.index
    devices = {
        name
        for step in schedule.steps
        for name in ((step.src, step.dst) if isinstance(step, Transfer) else (step.device,))
    }
    return devices <= known.keys()


def without_dominated_runs(indexed: IndexedProblem) -> IndexedProblem:
    """The problem in which nothing runs on dominated devices."""
    for r in range(indexed.device_count):
        runs = np.flatnonzero(indexed.can_run[:, r]).tolist()
        touched = {j for i in runs for j in (*indexed.reads[i], *indexed.makes[i])}
        others = np.flatnonzero(uncapacitated_devices(indexed)).tolist() if runs else []
        if any(_dominates(indexed, other, r, touched) for other in others):
            weight = indexed.compute_value.copy()
            weight[:, r] = np.inf
            indexed = replace(indexed, compute_value=weight)
    return indexed


def without_device(problem: Problem, name: str) -> Problem:
    """The problem without a device, its links and what it could run."""
    platform = problem.platform
    return replace(
        problem,
        platform=replace(
            platform,
            devices=tuple(device for device in platform.devices if device.name != name),
            links=tuple(link for link in platform.links if name not in (link.src, link.dst)),
        ),
        costs={
            op: {device: cost for device, cost in there.items() if device != name}
            for op, there in problem.costs.items()
        },
    )


def _dominates(indexed: IndexedProblem, other: int, r: int, tensors: Iterable[int]) -> bool:
    """Whether every run on r, and whatever of `tensors` is there, may be moved to `other`.

    That is so where nothing must stay on r, and runs and copies there cost no less.
    """
    p = indexed
    if other == r or (p.home == r).any() or (p.must_end_on == r).any():
        return False
    rest = [d for d in range(p.device_count) if d not in (r, other)]
    as_near = (p.transfer_value[rest, other] <= p.transfer_value[rest, r]).all()
    as_near &= (p.transfer_value[other, rest] <= p.transfer_value[r, rest]).all()
    as_fast = (p.compute_value[:, other] <= p.compute_value[:, r]).all()
    return bool(as_near and as_fast) and not any(_may_differ(p, j, other) for j in tensors)


def _may_differ(p: IndexedProblem, j: int, other: int) -> bool:
    """Whether it may help to have j, or the state it replaces, elsewhere once `other` has the new
    version.
    """
    state = j if p.update_of[j] < 0 else int(p.update_of[j])
    updater = int(p.updated_by[state])
    if updater < 0:
        return False
    if p.home[state] == other:
        return True
    return bool(p.can_run[updater, other]) and any(p.consumers[made] for made in p.makes[updater])
