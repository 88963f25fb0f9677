"""Solves a problem with a formulation and a backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.process import run_backend
from tvm_xengine.solvers.backends.table import WITH_PRODUCTS
from tvm_xengine.solvers.exact import tight
from tvm_xengine.solvers.exact.encode_tight import encode_tight
from tvm_xengine.solvers.indexed import IndexedProblem, index_problem
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.published import checkmate, poet, retention, xengine
from tvm_xengine.solvers.published.retention import RetentionProgram
from tvm_xengine.solvers.request import Proof, Request, conclude
from tvm_xengine.solvers.result import Scope, SolveResult


class Model(Protocol):
    """A program whose solutions are schedules."""

    @property
    def program(self) -> Program | RetentionProgram:
        """The program for a backend."""
        ...

    def schedule(self, x: NDArray[np.float64]) -> Schedule:
        """The schedule that the solution `x` describes."""
        ...


@dataclass(frozen=True)
class Formulation:
    """A named way to write a problem as a program.

    Attributes
    ----------
    formulate
        Writes the program; raises `ValueError` for problems that it cannot express.
    scope
        The schedules among which its optimum is one.
    is_faithful
        Whether its objective is that of the schedules, so that its bound is one on them.
    """

    name: str
    formulate: Callable[[IndexedProblem], Model]
    scope: str
    is_faithful: bool = True


def formulation(name: str, backend: str) -> Formulation:
    """The formulation of that name, in the form that suits the backend."""
    if name == "xengine" and backend not in WITH_PRODUCTS:
        name = "xengine-flows"
    return {
        "tight": Formulation("tight", tight.formulate_tight, tight.SCOPE),
        "checkmate": Formulation("checkmate", checkmate.formulate_checkmate, checkmate.SCOPE),
        "poet": Formulation("poet", poet.formulate_poet, poet.SCOPE),
        "retention": Formulation("retention", retention.formulate_retention, retention.SCOPE),
        "xengine": Formulation("xengine", xengine.formulate_xengine, xengine.SCOPE, False),
        "xengine-flows": Formulation(
            "xengine-flows",
            lambda indexed: xengine.formulate_xengine(indexed, with_products=False),
            xengine.SCOPE,
            False,
        ),
    }[name]


def solve_formulated(problem: Problem, request: Request) -> SolveResult:
    """The optimum of the formulation, or the best that the backend of the request found in time.

    Raises
    ------
    UnsupportedProblemError
        If the objective is the makespan, or the formulation cannot express the problem.
    SolverUnavailableError
        If the backend cannot run here.
    """
    name, backend = request.solver, request.backend
    request.refuse_makespan(name)
    chosen = formulation(name, backend)
    indexed = index_problem(problem, request.objective)
    model = chosen.formulate(indexed)
    program = model.program
    request.say(f"{name}: {program.column_count} columns, {program.row_count} rows, {backend}")
    answer = run_backend(
        backend,
        program,
        BackendOptions(
            time_limit_s=request.remaining_s,
            gap_ratio=request.limits.gap_ratio,
            start=_start(model, request.start),
            seed=request.seed,
        ),
        floor=indexed.cheapest,
        on_incumbent=lambda _, value: request.say(f"{name}: found {value:g}"),
        stop=request.stop,
    )
    schedule = model.schedule(answer.x) if answer.x is not None else None
    best = request.best_of(problem, [schedule, request.start]) or schedule
    proof = _proof(chosen, answer, indexed.cheapest)
    if best is not schedule:
        proof = proof.beside(request.value_of(problem, best), indexed.cheapest)
    return conclude(
        problem,
        request,
        best,
        proof,
        solver=f"{name} ({backend})",
        message=_message(chosen, answer, backend),
    )


def _start(model: Model, start: Schedule | None) -> NDArray[np.float64] | None:
    """The schedule to begin from as a solution of `model`, where that can be written."""
    if start is None or not isinstance(model, tight.TightModel):
        return None
    return encode_tight(model, start)


def _proof(chosen: Formulation, answer: Answer, floor: float) -> Proof:
    if not chosen.is_faithful:
        return Proof(floor)
    is_infeasible = answer.outcome is Outcome.INFEASIBLE
    bound = floor if is_infeasible else answer.bound
    return Proof(bound, Scope.STAGE_MODEL, is_infeasible)


def _message(chosen: Formulation, answer: Answer, backend: str) -> str:
    if answer.value is None:
        return (
            f"{backend}: {answer.message}, for {chosen.scope}; others, such as those of another"
            " order, may fit"
        )
    if chosen.is_faithful:
        return f"{backend}: {answer.message}; the stage model has {chosen.scope}"
    return (
        f"{backend}: {answer.message}; {answer.value:g} with bound {answer.bound:g} for"
        f" {chosen.scope}"
    )
