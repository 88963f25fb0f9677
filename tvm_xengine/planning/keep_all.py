"""The step that keeps every tensor, and budgets that are a share of what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from tvm_xengine.scheduling.arena.plan import PACKING_EFFORT, plan_arenas
from tvm_xengine.scheduling.constraints import Constraints
from tvm_xengine.scheduling.graph import MAX_BYTES, OpGraph
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Schedule, with_frees
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES

_FULL_EFFORT_OPS = 2000
"""Of longer steps fewer items are placed, as each is looked past more others: 2,000 ops took 3 s, 10,000
took 21."""


def keep_all_on(problem: Problem, device: str) -> tuple[Problem, Schedule]:
    """The step that keeps every tensor until its last use, all on one device.

    Returns
    -------
    problem, schedule
        The problem with its state at home on `device`, no budget and no constraints, and its
        schedule.

    Raises
    ------
    ValueError
        If some op cannot run on `device`.
    """
    missing = [op.name for op in problem.graph.ops if device not in problem.costs[op.name]]
    if missing:
        raise ValueError(f"{device} cannot run {missing}, so it cannot run the whole step")
    platform = problem.platform.with_budgets(
        {other.name: UNLIMITED_BYTES for other in problem.platform.devices}
    )
    home = dict.fromkeys(problem.home, device)
    alone = replace(problem, platform=platform, home=home, constraints=Constraints())
    return alone, with_frees(alone, [Compute(op.name, device) for op in problem.graph.ops])


def kept_bytes(graph: OpGraph) -> int:
    """Most bytes that are alive at once where each tensor is kept until its last use, workspaces aside."""
    change = [0] * (len(graph.ops) + 1)
    last = {graph.base[output] for output in graph.outputs}
    for tensor in graph.bases:
        if tensor.name in graph.update_of:  # it takes over the bytes of its state
            continue
        makers = [graph.producer[tensor.name]] if tensor.name in graph.producer else []
        uses = [graph.op_index[op] for op in (*makers, *graph.consumers[tensor.name])]
        stays = tensor.name in last or tensor.role.is_persistent
        if uses or stays:
            change[uses[0] if makers else 0] += tensor.size_bytes
            change[-1 if stays else max(uses) + 1] -= tensor.size_bytes
    return max(accumulate(change))


def budgets_for_ratio(problem: Problem, ratio: float) -> Mapping[str, int]:
    """Budget of each computing device: resident state plus `ratio` of the rest.

    The rest is what keep-all's arena on that device needs beyond the resident
    state. Devices that cannot run the whole step keep their budget.
    """
    (budgets,) = budgets_for_ratios(problem, [ratio])
    return budgets


def budgets_for_ratios(problem: Problem, ratios: Sequence[float]) -> list[Mapping[str, int]]:
    """The same for several ratios, for which keep-all is laid out once."""
    for ratio in ratios:
        if not ratio >= 0:
            raise ValueError(f"the budget ratio must be >= 0, got {ratio}")
    resident_bytes = sum(problem.home_bytes.values())
    arenas = _keep_all_bytes(problem)
    return [
        {
            device: int(min(resident_bytes + ratio * (arena_bytes - resident_bytes), MAX_BYTES))
            for device, arena_bytes in arenas.items()
        }
        for ratio in ratios
    ]


def _keep_all_bytes(problem: Problem) -> Mapping[str, int]:
    """The arena of keep-all on each device that can run the whole step."""
    op_count = len(problem.graph.ops)
    effort = PACKING_EFFORT * _FULL_EFFORT_OPS // max(op_count, _FULL_EFFORT_OPS)
    found = {}
    for device in problem.platform.computing:
        if all(device.name in problem.costs[op.name] for op in problem.graph.ops):
            alone, schedule = keep_all_on(problem, device.name)
            arenas = plan_arenas(alone, schedule, effort=effort)
            found[device.name] = arenas.arena_bytes[device.name]
    return found
