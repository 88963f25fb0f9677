"""CP-SAT (ortools): the retention model, in a process of its own, since it clashes with HiGHS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.backends.answer import (
    Answer,
    BackendOptions,
    Incumbent,
    Outcome,
    Report,
    Unavailable,
)
from tvm_xengine.solvers.published.retention import RetentionProgram, event

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_WEIGHT_STEPS = 2**40
"""Weights become integers: the sum of all is about so many steps."""


def solve_program(
    program: RetentionProgram, options: BackendOptions, report: Report
) -> Answer | Unavailable:
    """The answer of CP-SAT; its bound holds for the program's number of retentions."""
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        return Unavailable(f"ortools is not installed ({error}); install tvm-xengine[retention]")
    if program.budget < 0:
        return Answer(Outcome.INFEASIBLE, None, None, -np.inf, "the state exceeds the budget")
    draft = _draft(program)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = options.time_limit_s
    solver.parameters.relative_gap_limit = options.gap_ratio
    solver.parameters.num_workers = options.threads
    solver.parameters.random_seed = options.seed % 2**31

    class Watcher(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        """Reports every better solution as it is found."""

        def on_solution_callback(self) -> None:
            x = _starts(draft, self)
            bound = self.best_objective_bound / draft.steps_per_unit
            report(Incumbent(x, _value(program, x), bound))

    status = solver.solve(draft.model, Watcher())
    name = solver.status_name(status)
    if status == cp_model.INFEASIBLE:
        return Answer(Outcome.INFEASIBLE, None, None, -np.inf, name)
    bound = solver.best_objective_bound / draft.steps_per_unit
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(Outcome.UNKNOWN, None, None, bound, name)
    x = _starts(draft, solver)
    outcome = Outcome.OPTIMAL if status == cp_model.OPTIMAL else Outcome.FEASIBLE
    # The rounding of the weights is taken off the bound.
    slack = program.column_count / draft.steps_per_unit
    return Answer(outcome, x, _value(program, x), bound - slack, name)


@dataclass(frozen=True)
class _Retention:
    """Variables of one retention; `is_on` is None for the first, which always exists."""

    start: cp_model.IntVar
    end: cp_model.IntVar
    is_on: cp_model.IntVar | None


@dataclass(frozen=True)
class _Draft:
    model: cp_model.CpModel
    retentions: tuple[tuple[_Retention, ...], ...]
    steps_per_unit: float


def _draft(program: RetentionProgram) -> _Draft:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    retentions = tuple(_retentions(model, program, i) for i in range(program.op_count))
    _fit_into_memory(model, program, retentions)
    for u, v in program.edges:
        for reader in retentions[v]:
            _cover(model, reader, retentions[u])
    horizon = event(program.op_count, 0)
    for i, survives in enumerate(program.survives):
        if survives:
            model.add_max_equality(horizon, [r.end for r in retentions[i]])
    total = float(program.compute_value.sum()) * program.retentions
    steps_per_unit = _WEIGHT_STEPS / max(total, 1e-9)
    fixed, terms = 0, []
    for value, own in zip(program.compute_value.tolist(), retentions, strict=True):
        steps = round(value * steps_per_unit)
        fixed += steps
        terms += [steps * r.is_on for r in own if r.is_on is not None]
    model.minimize(fixed + sum(terms))
    return _Draft(model, retentions, steps_per_unit)


def _retentions(
    model: cp_model.CpModel, program: RetentionProgram, i: int
) -> tuple[_Retention, ...]:
    """The first is at slot i of stage i; the others are optional, in order and apart."""
    from ortools.sat.python import cp_model

    horizon = event(program.op_count, 0)
    first = _Retention(
        model.new_constant(event(i, i)), model.new_int_var(event(i, i), horizon, ""), None
    )
    own = [first]
    stages = range(i + 1, min(program.last_run[i], program.op_count - 1) + 1)
    events = [event(t, i) for t in stages]
    for _ in range(program.retentions - 1 if events else 0):
        start = model.new_int_var_from_domain(cp_model.Domain.from_values(events), "")
        end, is_on = model.new_int_var(0, horizon, ""), model.new_bool_var("")
        model.add(start > own[-1].end).only_enforce_if(is_on)
        model.add(end >= start).only_enforce_if(is_on)
        model.add(start == events[-1]).only_enforce_if(~is_on)
        model.add(end == 0).only_enforce_if(~is_on)
        if own[-1].is_on is not None:
            model.add_implication(is_on, own[-1].is_on)
        own.append(_Retention(start, end, is_on))
    return tuple(own)


def _fit_into_memory(
    model: cp_model.CpModel,
    program: RetentionProgram,
    retentions: tuple[tuple[_Retention, ...], ...],
) -> None:
    """Results from their start to their end, workspace at the start, together in the budget."""
    intervals, demands = [], []
    horizon = event(program.op_count, 0)
    for i, own in enumerate(retentions):
        for r in own:
            for size, last in ((program.size[i], r.end), (program.workspace[i], r.start)):
                if size == 0:
                    continue
                length = model.new_int_var(1, horizon + 1, "")
                if r.is_on is None:
                    interval = model.new_interval_var(r.start, length, last + 1, "")
                else:
                    interval = model.new_optional_interval_var(
                        r.start, length, last + 1, r.is_on, ""
                    )
                intervals.append(interval)
                demands.append(int(size))
    model.add_cumulative(intervals, demands, program.budget)


def _cover(model: cp_model.CpModel, reader: _Retention, sources: tuple[_Retention, ...]) -> None:
    """One of `sources` has begun before `reader` runs, and lasts until then."""
    choices = []
    for source in sources:
        chosen = model.new_bool_var("")
        model.add(source.start < reader.start).only_enforce_if(chosen)
        model.add(source.end >= reader.start).only_enforce_if(chosen)
        if source.is_on is not None:
            model.add_implication(chosen, source.is_on)
        choices.append(chosen)
    if reader.is_on is None:
        model.add_bool_or(choices)
    else:
        model.add_bool_or([*choices, ~reader.is_on])


def _starts(
    draft: _Draft, values: cp_model.CpSolver | cp_model.CpSolverSolutionCallback
) -> NDArray[np.float64]:
    """The event of each run, -1 where there is none, shape (n, C)."""
    most = max(len(own) for own in draft.retentions)
    x = np.full((len(draft.retentions), most), -1.0)
    for i, own in enumerate(draft.retentions):
        for c, r in enumerate(own):
            if r.is_on is None or values.value(r.is_on):
                x[i, c] = values.value(r.start)
    return x


def _value(program: RetentionProgram, x: NDArray[np.float64]) -> float:
    return float((program.compute_value[:, None] * (x >= 0)).sum())
