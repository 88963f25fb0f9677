"""Plans as JSON files: problem, schedule, addresses, and how good they are."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tvm_xengine.checks.documents import is_of_schema, reject_unknown_keys, typed, typed_value
from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.files.atomic_write import write_atomically
from tvm_xengine.files.read_text import parse_json, read_document
from tvm_xengine.planning.given_schedule import plan_given_schedule
from tvm_xengine.planning.plan import Plan
from tvm_xengine.scheduling.arena.document import arenas_from_document, arenas_to_document
from tvm_xengine.scheduling.problem import problem_from_json, problem_to_json, read_problem
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut
from tvm_xengine.scheduling.schedule import read_schedule, schedule_from_json, schedule_to_json
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.result import Objective, Scope, SolveResult, Status

SCHEMA = "tvm_xengine.plan/5"
"""Version of the file, raised when a field is added or changes its meaning."""
_KEYS = (
    *("schema", "fingerprint", "problem", "schedule", "arenas", "kernels", "measured_kernels"),
    *("names", "result", "cut"),
)
_ROUNDING_RATIO = 1e-9
"""A bound may exceed the value that is computed again by this share, from rounding in sums."""


@dataclass(frozen=True)
class SavedResult:
    """How good a plan is.

    Attributes
    ----------
    bound
        Proven lower bound on the objective, in its unit.
    scope
        Which schedules the bound holds for.
    order_bound
        The same for schedules that first run the ops in the graph's order; 0 without one.
    """

    status: Status
    objective: Objective
    bound: float
    solver: str
    scope: Scope
    solve_s: float
    message: str
    is_by_work: bool = False
    order_bound: float = 0.0

    def __post_init__(self) -> None:
        for name in ("bound", "order_bound", "solve_s"):
            number = getattr(self, name)
            if not (math.isfinite(number) and number >= 0):
                raise ValueError(f"expected {name} to be a number, at least 0, found {number!r}")


@dataclass(frozen=True)
class SavedPlan:
    """What a plan file holds.

    Attributes
    ----------
    fingerprint
        Of the lowered step that the plan was made for.
    sources
        The kernel source that was chosen, by ``kernel@device``.
    measured_kernels
        How many kernels were measured for the plan.
    names
        Names that the model gives the tensors of the step, by their names in the step.
    cut
        Where the batch is cut; None where the step takes all of it at once.
    """

    fingerprint: str
    plan: Plan
    sources: Mapping[str, str]
    measured_kernels: int
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cut: BatchCut | None = None


def write_plan(saved: SavedPlan, path: Path) -> None:
    """Write a plan file, whole or not at all."""
    plan = saved.plan
    document = {
        "schema": SCHEMA,
        "fingerprint": saved.fingerprint,
        "problem": json.loads(problem_to_json(plan.problem)),
        "schedule": json.loads(schedule_to_json(plan.schedule)),
        "arenas": arenas_to_document(plan.arenas),
        "kernels": saved.sources,
        "measured_kernels": saved.measured_kernels,
        "names": {name: list(names) for name, names in saved.names.items()},
        "cut": None if saved.cut is None else asdict(saved.cut),
        "result": {
            one.name: getattr(value := getattr(plan.result, one.name), "value", value)
            for one in fields(SavedResult)
        },
    }
    write_atomically(path, json.dumps(document))


def read_plan(path: Path) -> SavedPlan:
    """Read a plan file; its schedule, its addresses and its value are checked.

    Raises
    ------
    InvalidScheduleError
        If it is no plan, or a rule of its problem is broken.
    """
    document = read_document(path, "plan", InvalidScheduleError, parse_json)
    if not is_of_schema(document, SCHEMA):
        raise InvalidScheduleError(f"{path} is no plan of schema {SCHEMA}")
    try:
        reject_unknown_keys("it", document, _KEYS)
        return SavedPlan(
            typed_value(str, document["fingerprint"]),
            _plan(document),
            typed_value(Mapping[str, str], document["kernels"]),
            typed_value(int, document["measured_kernels"]),
            typed_value(Mapping[str, tuple[str, ...]], document["names"]),
            None if document["cut"] is None else typed(BatchCut, document["cut"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidScheduleError(f"{path} is damaged: {error}") from error


def read_plan_or_schedule(path: Path, problem: Path | None = None) -> SavedPlan:
    """The plan in a plan file, or of a schedule file and the file of its problem.

    Raises
    ------
    InvalidScheduleError
        If it is neither, if a schedule comes without a problem, or if a rule of that is broken.
    """
    document = read_document(path, "plan", InvalidScheduleError, parse_json)
    if not isinstance(document, dict) or "steps" not in document:
        return read_plan(path)
    if problem is None:
        raise InvalidScheduleError(
            f"{path} is a schedule, which means nothing without its problem; add --problem FILE (written"
            " by --save-problem), or take a plan file (written by --save-plan)"
        )
    plan = plan_given_schedule(read_problem(problem), read_schedule(path), str(path))
    return SavedPlan("", plan, {}, 0)


def _plan(document: Mapping[str, Any]) -> Plan:
    problem = problem_from_json(json.dumps(document["problem"]))
    schedule = schedule_from_json(json.dumps(document["schedule"]))
    result = typed(SavedResult, document["result"])
    arenas = arenas_from_document(problem, schedule, document["arenas"])
    is_overlapped = result.objective is Objective.MAKESPAN
    simulation = simulate(problem, schedule, arenas=arenas if is_overlapped else None)
    value = result.objective.of(simulation)
    if result.bound > value * (1 + _ROUNDING_RATIO):
        raise ValueError(f"the bound {result.bound} exceeds the value {value} of the schedule")
    solved = SolveResult(
        status=result.status,
        schedule=schedule,
        objective=result.objective,
        value=value,
        bound=min(result.bound, value),
        solve_s=result.solve_s,
        solver=result.solver,
        scope=result.scope,
        order_bound=result.order_bound,
        message=result.message,
        is_by_work=result.is_by_work,
    )
    return Plan(problem, solved, schedule, simulation, arenas)
