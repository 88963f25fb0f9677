"""A schedule: ordered steps that compute, transfer and free tensors, with derived frees."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from tvm_xengine.checks.documents import is_of_schema
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.files.atomic_write import write_atomically
from tvm_xengine.files.read_text import parse_json, read_document
from tvm_xengine.scheduling.graph import OpGraph
from tvm_xengine.scheduling.platform import Platform, Stream
from tvm_xengine.scheduling.problem import Problem

SCHEMA = 1
"""Version of the file, raised when a field is added or changes its meaning."""


@dataclass(frozen=True)
class Compute:
    """Run an op on a device; its outputs are then on that device.

    Attributes
    ----------
    variant
        The kernel that runs, of those that the op's cost names; ``""`` is the one without a name.
    """

    op: str
    device: str
    variant: str = ""


@dataclass(frozen=True)
class Transfer:
    """Copy a tensor from one device to another; the copy stays until it is freed."""

    tensor: str
    src: str
    dst: str


@dataclass(frozen=True)
class Free:
    """Free the bytes of a tensor on a device."""

    tensor: str
    device: str


Step = Compute | Transfer | Free


def place_of(device: str, variant: str) -> str:
    """A device, and the variant of the kernel that runs there if it has a name, in words."""
    return f"{device} with {variant}" if variant else device


def describe(step: Step) -> str:
    """A step in words."""
    match step:
        case Compute(op, device, variant):
            return f"{op} on {place_of(device, variant)}"
        case Transfer(tensor, src, dst):
            return f"copy of {tensor} from {src} to {dst}"
        case Free(tensor, device):
            return f"free of {tensor} on {device}"


@dataclass(frozen=True)
class Schedule:
    """Steps in program order."""

    steps: tuple[Step, ...]

    @property
    def computed(self) -> tuple[str, ...]:
        """Names of the ops in the order in which they run, repeats included."""
        return tuple(step.op for step in self.steps if isinstance(step, Compute))

    @property
    def recomputed_ops(self) -> int:
        """How many computations repeat an op that ran before."""
        return len(self.computed) - len(set(self.computed))

    def repeats(self, graph: OpGraph) -> tuple[str, ...]:
        """The computations that repeat another one, of the schedule or of the graph itself."""
        seen = set(graph.repetitions)
        found = []
        for op in self.computed:
            if op in seen:
                found.append(op)
            seen.add(op)
        return tuple(found)

    @property
    def transfers(self) -> int:
        """How many copies between devices there are."""
        return sum(isinstance(step, Transfer) for step in self.steps)


def with_frees(
    problem: Problem, steps: Iterable[Step], *, survivors: Mapping[str, str] | None = None
) -> Schedule:
    """The schedule of the computations and transfers in `steps` with the earliest frees.

    Each run takes the fastest kernel for which that leaves room (:func:`with_kernels_that_fit`).
    Frees that `steps` already contains are dropped. A tensor is freed on a device right
    after its last use there before it is written again or the step ends; persistent state
    survives on its home device, each result on the device that `survivors` names, by
    default the one where it was made last.
    """
    ordered = [step for step in steps if not isinstance(step, Free)]
    needed = needed_at_end(problem, ordered, survivors)
    reversed_steps: list[Step] = []
    for step in reversed(ordered):
        reads, writes, taken_over = accesses(problem, step)
        # What dies with this step: read or written here, needed by nothing after it.
        dying = [key for key in dict.fromkeys((*reads, *writes)) if key not in needed]
        reversed_steps.extend(
            Free(tensor, device)
            for tensor, device in reversed(dying)
            if (tensor, device) not in taken_over
        )
        reversed_steps.append(step)
        needed.difference_update(writes)
        needed.update(reads)
        needed.update(taken_over)
    unread = [
        Free(name, device) for name, device in problem.home.items() if (name, device) not in needed
    ]
    return with_kernels_that_fit(problem, Schedule((*unread, *reversed(reversed_steps))))


def with_kernels_that_fit(problem: Problem, schedule: Schedule) -> Schedule:
    """The schedule in which each run takes the fastest kernel that its budget has room for.

    For a sum over steps no other choice of kernels is better: what a run takes is free after it. Where
    there is room for none of them, the run takes the one of the least workspace.
    """
    if not problem.has_variants:
        return schedule
    value_of = attrgetter("energy_uj" if problem.saves_energy else "compute_us")
    tensor, there = problem.graph.tensor, set(problem.home.items())
    used = dict(problem.home_bytes)
    steps: list[Step] = []
    for step in schedule.steps:
        _, writes, taken_over = accesses(problem, step)
        gone = [(step.tensor, step.device)] if isinstance(step, Free) else taken_over
        for name, device in {*writes} - there:
            used[device] += tensor[name].size_bytes
        there.update(writes)
        for name, device in there.intersection(gone):
            used[device] -= tensor[name].size_bytes
        there.difference_update(gone)
        cost = problem.costs[step.op].get(step.device) if isinstance(step, Compute) else None
        if isinstance(step, Compute) and cost is not None:
            room = problem.platform.device(step.device).budget_bytes - used[step.device]
            kernels = cost.kernels
            fitting = [name for name, one in kernels.items() if one.workspace_bytes <= room]
            best = min(
                fitting or kernels,
                key=lambda name: (
                    0 if fitting else kernels[name].workspace_bytes,
                    value_of(kernels[name]),
                    kernels[name].workspace_bytes,
                ),
            )
            step = replace(step, variant=best)
        steps.append(step)
    return Schedule(tuple(steps))


def without_variants(schedule: Schedule) -> Schedule:
    """The schedule in which every run takes the usual kernel of its op."""
    steps = (
        replace(step, variant="") if isinstance(step, Compute) else step for step in schedule.steps
    )
    return Schedule(tuple(steps))


def scratch_bytes(problem: Problem, step: Step) -> int:
    """Workspace of the kernel that a step runs; 0 where it runs none."""
    if not isinstance(step, Compute):
        return 0
    return problem.run_cost(step.op, step.device, step.variant).workspace_bytes


def stream_of_step(platform: Platform, step: Compute | Transfer) -> Stream:
    """The stream that a step belongs to: that of its device, or of the copies of its link."""
    if isinstance(step, Compute):
        return (step.device,)
    return platform.copy_stream(step.src, step.dst)


def needed_at_end(
    problem: Problem, steps: Sequence[Step], survivors: Mapping[str, str] | None = None
) -> set[tuple[str, str]]:
    """The (tensor, device) pairs that must be there after `steps`; `survivors` as in `with_frees`."""
    graph = problem.graph
    needed: set[tuple[str, str]] = set()
    for name, device in problem.home.items():
        if graph.tensor[name].role.is_persistent:
            final = graph.updated_by[name][1] if name in graph.updated_by else name
            needed.add((final, device))
    delivered = {name for name, _ in needed}
    made_last = dict(problem.home)
    for step in steps:
        made_last.update(accesses(problem, step)[1])
    made_last.update(survivors or {})
    for name in dict.fromkeys(graph.base[name] for name in graph.outputs):
        if name not in delivered and name in made_last:
            needed.add((name, made_last[name]))
    return needed


def accesses(
    problem: Problem, step: Step
) -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[tuple[str, str]]]:
    """(reads, writes, taken over) of a step as (tensor, device) pairs.

    A state tensor is taken over where an update result replaces it in its bytes.
    """
    graph = problem.graph
    match step:
        case Compute(name, device, _):
            if name not in graph.op:
                raise InvalidScheduleError(
                    f"the schedule computes {name!r}, not an op of the graph"
                )
            op = graph.op[name]
            return (
                [(tensor, device) for tensor in graph.reads[name]],
                [(tensor, device) for tensor in op.outputs],
                [(state, device) for _, state in op.updates],
            )
        case Transfer(tensor, src, dst):
            state = graph.update_of.get(tensor)
            lands_on_state = state is not None and problem.home[state] == dst
            taken = [(state, dst)] if lands_on_state and state is not None else []
            return [(tensor, src)], [(tensor, dst)], taken
        case Free():
            return [], [], []


def schedule_to_json(schedule: Schedule) -> str:
    """`schedule` as JSON: one short list for each step."""
    rows: list[list[str]] = []
    for step in schedule.steps:
        match step:
            case Compute(op, device, variant):
                rows.append(["compute", op, device, *([variant] if variant else [])])
            case Transfer(tensor, src, dst):
                rows.append(["transfer", tensor, src, dst])
            case Free(tensor, device):
                rows.append(["free", tensor, device])
    return json.dumps({"schema": SCHEMA, "steps": rows}, indent=0)


def schedule_from_json(text: str) -> Schedule:
    """The schedule that `text` describes; `InvalidScheduleError` says what is wrong with it."""
    kinds = {"compute": (Compute, (3, 4)), "transfer": (Transfer, (4,)), "free": (Free, (3,))}
    try:
        document = parse_json(text)
        if not is_of_schema(document, SCHEMA):
            found = (
                document.get("schema") if isinstance(document, dict) else type(document).__name__
            )
            raise InvalidScheduleError(f"expected a schedule of schema {SCHEMA}, found {found!r}")
        if unknown := sorted(set(document) - {"schema", "steps"}):
            raise InvalidScheduleError(f"a schedule has the keys schema and steps, found {unknown}")
        rows = document["steps"]
        steps: list[Step] = []
        for row in rows:
            make, lengths = kinds[row[0]]
            if len(row) not in lengths or not all(isinstance(field, str) for field in row):
                expected = " or ".join(map(str, lengths))
                raise InvalidScheduleError(f"expected {expected} strings for a {row[0]}, got {row}")
            steps.append(make(*row[1:]))
    except ValueError as error:
        raise InvalidScheduleError(f"the schedule is not valid JSON: {error}") from error
    except (KeyError, TypeError, IndexError) as error:
        raise InvalidScheduleError(
            'expected {"schema": 1, "steps": [["compute", op, device], ...]}'
            f" ({type(error).__name__}: {error})"
        ) from error
    return Schedule(tuple(steps))


def read_schedule(path: str | Path) -> Schedule:
    """The schedule in the JSON file at `path`; errors as in `schedule_from_json`."""
    return read_document(Path(path), "schedule", InvalidScheduleError, schedule_from_json)


def write_schedule(schedule: Schedule, path: str | Path) -> None:
    """Write `schedule` as JSON; an existing file is replaced only when all is written."""
    write_atomically(Path(path), schedule_to_json(schedule))
