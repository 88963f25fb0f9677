"""Solves a problem with a formulation and a backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.scheduling.simulate import simulate
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.process import News, run_backend
from tvm_xengine.solvers.backends.table import WITH_PRODUCTS
from tvm_xengine.solvers.exact import tight
from tvm_xengine.solvers.exact.encode_tight import encode_tight
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.indexed import (
    IndexedProblem,
)
from tvm_xengine.solvers.program import Look, Program
from tvm_xengine.solvers.published import checkmate, poet, retention, xengine
from tvm_xengine.solvers.published.cuts import Cuttable, best_executable
from tvm_xengine.solvers.published.retention import RetentionProgram
from tvm_xengine.solvers.request import WRITING_SHARE, Proof, Request, conclude
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
        Writes the program, and looks at the clock meanwhile; raises `ValueError` for problems that it
        cannot express.
    scope
        The schedules among which its optimum is one.
    is_faithful
        Whether its objective is that of the schedules, so that its bound is one on them.
    """

    name: str
    formulate: Callable[[IndexedProblem, Look], Model]
    scope: str
    is_faithful: bool = True


def formulation(name: str, backend: str) -> Formulation:
    """The formulation of that name, in the form that suits the backend."""
    if name == "xengine" and backend not in WITH_PRODUCTS:
        name = "xengine-flows"
    return {
        "tight": Formulation(
            "tight", lambda p, look: tight.formulate_tight(p, look=look), tight.SCOPE
        ),
        "checkmate": Formulation("checkmate", checkmate.formulate_checkmate, checkmate.SCOPE),
        "poet": Formulation("poet", poet.formulate_poet, poet.SCOPE),
        "retention": Formulation(
            "retention", lambda p, _look: retention.formulate_retention(p), retention.SCOPE
        ),
        "xengine": Formulation("xengine", xengine.formulate_xengine, xengine.SCOPE, False),
        "xengine-flows": Formulation(
            "xengine-flows",
            lambda p, look: xengine.formulate_xengine(p, look, with_products=False),
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
    model = chosen.formulate(indexed, request.looking(WRITING_SHARE))
    program = model.program
    request.say(f"{name}: {program.column_count} columns, {program.row_count} rows, {backend}")
    first = answer = _ask(program, request, indexed, _start(model, request.start))
    schedule = model.schedule(answer.x) if answer.x is not None else None
    refusal, cuts = _refusal(problem, schedule), 0
    if refusal and isinstance(model, Cuttable) and problem.state_fits:
        answer, schedule, cuts = best_executable(
            model,
            answer,
            lambda program: _ask(program, request, indexed),
            lambda schedule: not _refusal(problem, schedule) or request.is_over,
        )
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
        message=_message(chosen, first, backend) + _said_of_cuts(refusal, cuts, answer, schedule),
        model_value=None if first.value is None or not refusal else first.value,
    )


def _ask(
    program: Program | RetentionProgram,
    request: Request,
    indexed: IndexedProblem,
    start: NDArray[np.float64] | None = None,
) -> Answer:
    return run_backend(
        request.backend,
        program,
        BackendOptions(
            time_limit_s=request.remaining_s,
            gap_ratio=request.limits.gap_ratio,
            start=start,
            seed=request.seed,
        ),
        floor=indexed.cheapest,
        news=News(lambda _, value: request.say_found(value, request.solver)),
        stop=request.stop,
    )


def _refusal(problem: Problem, schedule: Schedule | None) -> str:
    """Why a schedule cannot be executed; nothing where it can be, or there is none."""
    if schedule is not None:
        try:
            simulate(problem, schedule)
        except InvalidScheduleError as error:
            return str(error)
    return ""


def _said_of_cuts(refusal: str, cuts: int, answer: Answer, schedule: Schedule | None) -> str:
    """What became of an optimum that cannot be executed, as the end of a sentence."""
    if not refusal:
        return ""
    said = f"; that one cannot be executed: {refusal}"
    if not cuts:
        return said
    if schedule is None:
        ruled_out = answer.outcome is Outcome.INFEASIBLE
        end = "no schedule of the model is left" if ruled_out else "none was found in time"
        return f"{said}; after {cuts} cuts {end}"
    lead = "cut leads" if cuts == 1 else "cuts lead"
    return f"{said}; {cuts} {lead} to {answer.value:g} with bound {answer.bound:g}"


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
