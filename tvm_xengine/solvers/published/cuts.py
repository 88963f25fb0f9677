"""Cuts that rule out solutions of a published program which cannot be executed.

The published programs leave out memory that a schedule takes, such as that of copies where they arrive.
A solution x* whose schedule is refused is ruled out by

    sum_{c in set} (1 - x_c) + sum_{c in clear} x_c >= 1

where x*_c = 1 for columns that are set and 0 for those that are clear. At worst these are all columns
that the schedule is read from; with fewer of them a cut rules out more. Every schedule of the model that
can be executed stays, or one of the same value with less kept, so that the last optimum is the best of
these by the model's objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.residency import trace_residency
from tvm_xengine.scheduling.schedule import Compute, Schedule
from tvm_xengine.scheduling.simulate import live_bytes
from tvm_xengine.solvers.backends.answer import Answer
from tvm_xengine.solvers.program import Program, is_set


@dataclass(frozen=True)
class Cut:
    """Columns that may not all be as they are in a refused solution.

    Attributes
    ----------
    set_columns, clear_columns
        Those that are 1 there, and those that are 0.
    """

    set_columns: tuple[int, ...]
    clear_columns: tuple[int, ...] = ()


@runtime_checkable
class Cuttable(Protocol):
    """A program of which some solutions cannot be executed."""

    @property
    def program(self) -> Program:
        """The program for a backend."""
        ...

    def schedule(self, x: NDArray[np.float64]) -> Schedule:
        """The schedule that the solution `x` describes."""
        ...

    def cut(self, x: NDArray[np.float64], schedule: Schedule, /) -> Cut:
        """A cut that rules out the solution `x`, whose schedule is refused."""
        ...


def best_executable(
    model: Cuttable,
    answer: Answer,
    ask: Callable[[Program], Answer],
    is_enough: Callable[[Schedule], bool],
) -> tuple[Answer, Schedule | None, int]:
    """The best solution whose schedule is enough, that schedule, and how many cuts led to it.

    Parameters
    ----------
    answer
        To the program without cuts.
    ask
        Solves the program with cuts.
    """
    program, cuts = model.program, 0
    while answer.x is not None:
        schedule = model.schedule(answer.x)
        if is_enough(schedule):
            return answer, schedule, cuts
        program, cuts = with_cut(program, model.cut(answer.x, schedule)), cuts + 1
        answer = ask(program)
    return answer, None, cuts


def no_good(decisions: NDArray[np.int64], x: NDArray[np.float64]) -> Cut:
    """The cut that rules out nothing but the decisions of `x`."""
    columns = decisions[decisions >= 0].tolist()
    return Cut(
        tuple(c for c in columns if is_set(x, c)), tuple(c for c in columns if not is_set(x, c))
    )


def with_cut(program: Program, cut: Cut) -> Program:
    """The program with a cut as its last row."""
    columns = np.array([*cut.set_columns, *cut.clear_columns], np.int64)
    signs = np.repeat([-1.0, 1.0], [len(cut.set_columns), len(cut.clear_columns)])
    order = np.argsort(columns)
    return replace(
        program,
        row_lower=np.append(program.row_lower, 1.0 - len(cut.set_columns)),
        row_upper=np.append(program.row_upper, np.inf),
        starts=np.append(program.starts, program.starts[-1] + len(columns)),
        columns=np.concatenate([program.columns, columns[order]]),
        values=np.concatenate([program.values, signs[order]]),
    )


def overfull_run(problem: Problem, schedule: Schedule) -> tuple[int, str] | None:
    """The first run at or before which a device is over its budget: its number among runs, the device.

    None where no device is, or none runs afterwards.
    """
    live = live_bytes(problem, schedule, trace_residency(problem, schedule))
    budgets = {device.name: device.budget_bytes for device in problem.platform.devices}
    runs = 0
    for position, step in enumerate(schedule.steps):
        over = [name for name, size in budgets.items() if live[name][position] > size]
        if over:
            later = schedule.steps[position:]
            return (runs, over[0]) if any(isinstance(s, Compute) for s in later) else None
        runs += isinstance(step, Compute)
    return None
