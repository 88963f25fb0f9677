"""The numbers of a plan and of a run, as the table and the JSON file show them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tvm_xengine.files.atomic_write import write_atomically
from tvm_xengine.planning.keep_all import keep_all_on
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.plan_again import Replanned
from tvm_xengine.report.intervals import cost_sources, step_interval_us
from tvm_xengine.scheduling.arena.plan import plan_arenas
from tvm_xengine.scheduling.schedule import Compute
from tvm_xengine.scheduling.simulate import simulate


@dataclass(frozen=True)
class DeviceSummary:
    """Memory and work of one device.

    Attributes
    ----------
    measured_peak_bytes
        None when nothing was run.
    computed_by
        For each op that the plan computes here the source of its kernel.
    """

    name: str
    budget_bytes: int
    planned_arena_bytes: int
    peak_bytes: int
    measured_peak_bytes: int | None
    ops: int
    busy_us: float
    computed_by: Mapping[str, str]


@dataclass(frozen=True)
class KeepAllSummary:
    """The keep-all step on one device."""

    device: str
    step_us_predicted: float
    step_us_measured: float | None
    arena_bytes: int


@dataclass(frozen=True)
class PlanSummary:
    """The figures of a plan before it runs; units in the names, value and bound as `objective`.

    `order_gap` is the gap among schedules that first run the ops in the graph's order, where it is
    smaller. `model_value_us` is that of a published program's own optimum where it cannot be executed. A
    problem from a file has no batch size, slices of it and kernels: they are None. The keep-all step runs in
    as many slices.
    """

    model: str
    batch: int | None
    slices: int | None
    graph_ops: int
    objective: str
    solver: str
    status: str
    scope: str
    cost_us: float
    makespan_us: float
    energy_uj: float
    bound_us: float
    gap: float | None
    order_gap: float | None
    model_value_us: float | None
    solve_s: float
    is_by_work: bool
    message: str
    recomputed_ops: int
    transfers: int
    step_us_predicted: float
    step_us_lo: float
    step_us_hi: float
    measured_kernels: int | None
    all_kernels: int | None
    cost_sources: Mapping[str, int]
    keep_all: KeepAllSummary | None
    devices: tuple[DeviceSummary, ...]


@dataclass(frozen=True)
class RunSummary:
    """The figures measured while the step ran.

    Attributes
    ----------
    steps
        Steps in all, those before a resumed checkpoint included.
    loss_first, loss_last
        Of this run; None where it took no step.
    validation
        Metrics by name, of the last state; empty where nothing is held out.
    losses
        Of every step of this run.
    replanned
        What measuring in place has changed; None where that was not asked for.
    slowdown_ratio
        How much longer the processor took for the same work than when kernels were measured; None where
        none were.
    """

    steps: int
    loss_first: float | None
    loss_last: float | None
    accuracy: float | None
    validation: Mapping[str, float]
    losses: tuple[float, ...]
    step_us_measured: float
    identical_to_keep_all: bool | None
    max_rel_diff: float | None
    replanned: Replanned | None = None
    slowdown_ratio: float | None = None


def summarize_plan(
    model: str,
    plan: Plan,
    *,
    batch: int | None = None,
    slices: int | None = None,
    measured_kernels: int | None = None,
    all_kernels: int | None = None,
    source_of: Callable[[str, str, str], str] | None = None,
) -> PlanSummary:
    """The summary of a plan, compared with the keep-all step on its home device.

    Parameters
    ----------
    slices
        Of the batch, in which the step runs one after the other or side by side.
    measured_kernels, all_kernels
        How many kernels were measured for the plan, and how many there are.
    source_of
        Where the kernel of an op on a device comes from; None where that is unknown.
    """
    problem, result = plan.problem, plan.result
    low_us, high_us = step_interval_us(plan)
    return PlanSummary(
        model=model,
        batch=batch,
        slices=slices,
        graph_ops=len(problem.graph.ops),
        objective=result.objective.value,
        solver=result.solver,
        status=result.status.value,
        scope=result.scope.value,
        cost_us=plan.simulation.cost_us,
        makespan_us=plan.simulation.makespan_us,
        energy_uj=plan.simulation.energy_uj,
        bound_us=result.bound,
        gap=result.gap,
        order_gap=result.order_gap,
        model_value_us=result.model_value,
        solve_s=result.solve_s,
        is_by_work=result.is_by_work,
        message=result.message,
        recomputed_ops=plan.recomputed_ops,
        transfers=plan.schedule.transfers,
        step_us_predicted=plan.step_us(),
        step_us_lo=low_us,
        step_us_hi=high_us,
        measured_kernels=measured_kernels,
        all_kernels=all_kernels,
        cost_sources=cost_sources(problem, plan.schedule),
        keep_all=keep_all_of(plan),
        devices=_devices(plan, source_of),
    )


def _devices(
    plan: Plan, source_of: Callable[[str, str, str], str] | None
) -> tuple[DeviceSummary, ...]:
    ops: dict[str, list[tuple[str, str]]] = {}
    for step in plan.schedule.steps:
        if isinstance(step, Compute):
            ops.setdefault(step.device, []).append((step.op, step.variant))
    return tuple(
        DeviceSummary(
            name=device.name,
            budget_bytes=device.budget_bytes,
            planned_arena_bytes=plan.arenas.arena_bytes[device.name],
            peak_bytes=plan.simulation.peak_bytes[device.name],
            measured_peak_bytes=None,
            ops=len(ops.get(device.name, ())),
            busy_us=plan.simulation.busy_us[device.name],
            computed_by={}
            if source_of is None
            else _sources(ops.get(device.name, ()), device.name, source_of),
        )
        for device in plan.problem.platform.devices
    )


def _sources(
    runs: Sequence[tuple[str, str]], device: str, source_of: Callable[[str, str, str], str]
) -> dict[str, str]:
    """For each op the sources of its kernels; several where its runs take several."""
    sources: dict[str, list[str]] = {}
    for op, variant in dict.fromkeys(runs):
        sources.setdefault(op, []).append(source_of(op, device, variant))
    return {op: ", ".join(dict.fromkeys(each)) for op, each in sources.items()}


def keep_all_of(plan: Plan) -> KeepAllSummary | None:
    """The step that keeps everything on the home device; None where some op cannot run there."""
    device = plan.problem.platform.home
    try:
        alone, schedule = keep_all_on(plan.problem, device)
    except ValueError:
        return None
    return KeepAllSummary(
        device=device,
        step_us_predicted=simulate(alone, schedule).cost_us,
        step_us_measured=None,
        arena_bytes=plan_arenas(alone, schedule).arena_bytes[device],
    )


def with_measurements(
    plan: PlanSummary, peak_bytes: Mapping[str, int], keep_all_us: float | None
) -> PlanSummary:
    """The summary with measured figures next to planned ones.

    Parameters
    ----------
    keep_all_us
        Of a keep-all step; None where none was run.
    """
    return replace(
        plan,
        keep_all=None
        if plan.keep_all is None
        else replace(plan.keep_all, step_us_measured=keep_all_us),
        devices=tuple(
            replace(device, measured_peak_bytes=peak_bytes[device.name]) for device in plan.devices
        ),
    )


def write_json(document: Mapping[str, object], path: Path) -> None:
    """Write a report; an existing file is replaced only when all is written."""
    write_atomically(path, json.dumps(document, indent=2) + "\n")


def as_document(plan: PlanSummary, run: RunSummary | None) -> dict[str, object]:
    """The keys of the JSON report."""
    return {**asdict(plan), **(asdict(run) if run is not None else {})}
