"""The validator: replays a schedule and says whether it is valid, how much memory it takes and how long.

Written from the problem definition, not from any formulation; no solver is trusted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass

from tvm_xengine.errors import BudgetExceededError
from tvm_xengine.scheduling.arena.plan import ArenaPlan
from tvm_xengine.scheduling.arena.taken_over import TakenOver
from tvm_xengine.scheduling.platform import Stream
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.residency import Residency, trace_residency
from tvm_xengine.scheduling.schedule import (
    Compute,
    Free,
    Schedule,
    Transfer,
    scratch_bytes,
    stream_of_step,
)


@dataclass(frozen=True)
class Simulation:
    """Times, memory and energy of a valid schedule.

    Attributes
    ----------
    cost_us
        Sum of all compute and transfer times.
    makespan_us
        End of the last step when every device and every link without an engine is an in-order
        stream of its own and allocations wait for memory: for room in the budget, or, in given arenas,
        until nothing uses their bytes any more.
    energy_uj
        Sum of the energy of all computations and transfers.
    peak_bytes
        For each device, the largest sum of bytes live at once, workspace and resident state
        included.
    busy_us
        For each device, the time its stream computes.
    intervals_us
        (start, end) of every step on the overlapped timeline; frees take no time.
    """

    cost_us: float
    makespan_us: float
    energy_uj: float
    peak_bytes: Mapping[str, int]
    busy_us: Mapping[str, float]
    intervals_us: tuple[tuple[float, float], ...]


def simulate(
    problem: Problem,
    schedule: Schedule,
    *,
    enforce_budgets: bool = True,
    arenas: ArenaPlan | None = None,
) -> Simulation:
    """The memory and time of `schedule`, after checking every rule.

    Parameters
    ----------
    arenas
        Where tensors lie while devices and links run side by side; None: not known yet.

    Raises
    ------
    InvalidScheduleError
        If a step does not find what it needs, or something is not delivered.
    BudgetExceededError
        If a device's live bytes exceed its budget and `enforce_budgets` is true.
    """
    residency = trace_residency(problem, schedule)
    live = live_bytes(problem, schedule, residency)
    if enforce_budgets:
        _check_budgets(problem, schedule, live)
    durations = [step_us(problem, step) for step in schedule.steps]
    busy = {device.name: 0.0 for device in problem.platform.devices}
    energy = 0.0
    for step, duration in zip(schedule.steps, durations, strict=True):
        match step:
            case Compute(op, device, variant):
                busy[device] += duration
                energy += problem.run_cost(op, device, variant).energy_uj
            case Transfer(tensor, src, dst):
                size = problem.graph.tensor[tensor].size_bytes
                energy += problem.platform.link_between[src, dst].transfer_uj(size)
            case Free():
                pass
    taken_over = None if arenas is None else TakenOver(problem, schedule, arenas)
    intervals = _overlap(problem, schedule, residency, live, durations, taken_over)
    return Simulation(
        cost_us=sum(durations),
        makespan_us=max((end for _, end in intervals), default=0.0),
        energy_uj=energy,
        peak_bytes={device: max(series, default=0) for device, series in live.items()},
        busy_us=busy,
        intervals_us=intervals,
    )


def step_us(problem: Problem, step: Compute | Transfer | Free) -> float:
    """Time of one step."""
    match step:
        case Compute(op, device, variant):
            return problem.run_cost(op, device, variant).compute_us
        case Transfer(tensor, src, dst):
            size = problem.graph.tensor[tensor].size_bytes
            return problem.platform.link_between[src, dst].transfer_us(size)
        case Free():
            return 0.0


def live_bytes(
    problem: Problem, schedule: Schedule, residency: Residency
) -> Mapping[str, tuple[int, ...]]:
    """For each device the bytes live during each step, workspace included."""
    count = len(schedule.steps)
    change = {device.name: [0] * (count + 2) for device in problem.platform.devices}
    for instance in residency.instances:
        # What is there when the step begins is there during the first step, even if that frees it.
        first = max(instance.start, 0)
        change[instance.device][first] += instance.size_bytes
        change[instance.device][min(max(instance.end, first) + 1, count)] -= instance.size_bytes
    live: dict[str, tuple[int, ...]] = {}
    for device, series in change.items():
        total, totals = 0, []
        for position in range(count):
            total += series[position]
            step = schedule.steps[position]
            runs_here = isinstance(step, Compute) and step.device == device
            totals.append(total + (scratch_bytes(problem, step) if runs_here else 0))
        live[device] = tuple(totals)
    return live


def _check_budgets(
    problem: Problem, schedule: Schedule, live: Mapping[str, tuple[int, ...]]
) -> None:
    for device in problem.platform.devices:
        for position, total in enumerate(live[device.name]):
            if total > device.budget_bytes:
                raise BudgetExceededError(
                    f"step {position} ({schedule.steps[position]}) needs {total} bytes on"
                    f" {device.name}, whose budget is {device.budget_bytes} bytes"
                )


def _overlap(
    problem: Problem,
    schedule: Schedule,
    residency: Residency,
    live: Mapping[str, tuple[int, ...]],
    durations: list[float],
    taken_over: TakenOver | None,
) -> tuple[tuple[float, float], ...]:
    """Start and end of every step when streams overlap.

    Allocation rule: a step that allocates on device d, with M bytes live there in program
    order, may start while the bytes of earlier frees whose last use has not finished total
    at most budget(d) - M. Then no instant exceeds the budget: at any time, let k be the last
    allocation started; what is live is within M_k plus the unfinished earlier frees. Where the
    addresses are known, a step waits for the bytes that it takes instead.

    What a step reads and another stream has written is there a handover after its end. Waits for
    memory are not counted so.
    """
    handover = problem.platform.handover_us or 0.0
    count = len(residency.instances)
    written_at = [0.0] * count  # end of the last write
    written_by: list[Stream | None] = [None] * count  # None: it was there when the step began
    touched_at = [0.0] * count  # end of the last read or write
    stream_free: dict[Stream, float] = {}
    frees: dict[str, list[tuple[float, int]]] = {d.name: [] for d in problem.platform.devices}
    allocating = _allocation_steps(schedule, residency)
    intervals: list[tuple[float, float]] = []
    for position, step in enumerate(schedule.steps):
        access = residency.accesses[position]
        match step:
            case Free(_, device):
                instance = access.freed
                assert instance is not None
                finished = touched_at[instance]
                insort(frees[device], (finished, residency.instances[instance].size_bytes))
                intervals.append((finished, finished))
                continue
            case Compute(_, device) | Transfer(_, _, device):
                stream = stream_of_step(problem.platform, step)
        start = stream_free.get(stream, 0.0)
        for instance in access.reads.values():
            is_handed_over = written_by[instance] not in (None, stream)
            start = max(start, written_at[instance] + is_handed_over * handover)
        for instance in access.writes.values():
            start = max(start, touched_at[instance])
        if taken_over is not None:
            start = max(start, taken_over.ready_us(position))
        elif position in allocating:
            room = problem.platform.device(device).budget_bytes - live[device][position]
            start = _memory_ready_us(frees[device], room, start)
        end = start + durations[position]
        stream_free[stream] = end
        for instance in access.reads.values():
            touched_at[instance] = max(touched_at[instance], end)
        for instance in access.writes.values():
            written_at[instance], written_by[instance] = end, stream
            touched_at[instance] = max(touched_at[instance], end)
        if taken_over is not None:
            taken_over.touch(position, end)
        intervals.append((start, end))
    return tuple(intervals)


def _memory_ready_us(frees: list[tuple[float, int]], room_bytes: int, after_us: float) -> float:
    """Earliest time, not before `after_us`, from which the unfinished frees fit into `room_bytes`.

    `frees` are sorted by time.
    """
    pending = 0
    for finished, size in reversed(frees):
        if finished <= after_us:
            break
        pending += size
        if pending > room_bytes:
            return finished
    return after_us


def _allocation_steps(schedule: Schedule, residency: Residency) -> set[int]:
    """Positions of the steps that take new bytes, workspace included."""
    allocating = {instance.start for instance in residency.instances if instance.start >= 0}
    allocating |= {
        position for position, step in enumerate(schedule.steps) if isinstance(step, Compute)
    }
    return allocating
