"""Solver `miqp`: the quadratic program of the full problem, from a schedule of the portfolio."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import InvalidProblemError, SolverUnavailableError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.process import run_backend
from tvm_xengine.solvers.backends.table import WITH_PRODUCTS
from tvm_xengine.solvers.exact.copies import Copies, CopiesAsProducts, CopiesOverLinks
from tvm_xengine.solvers.exact.encode_tight import encode_tight
from tvm_xengine.solvers.exact.tight import SCOPE, TightModel, formulate_tight
from tvm_xengine.solvers.index_problem import index_problem
from tvm_xengine.solvers.miqp.restricted import restricted
from tvm_xengine.solvers.miqp.windows import parts_of, windows
from tvm_xengine.solvers.portfolio.automatic import solve_automatically
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.request import (
    PROOF_RATIO,
    WRITING_SHARE,
    Proof,
    Request,
    TimeIsUpError,
    conclude,
)
from tvm_xengine.solvers.result import Limits, Scope, SolveResult, StopReason


@dataclass(frozen=True)
class MiqpOptions:
    """How the time is spent.

    Attributes
    ----------
    whole_cells
        Problems of up to so many places (devices by stages by tensors) are solved whole: HiGHS proved
        the programs of LeNet, 5,256 places and 10,250 columns, within half a minute on two cores, and
        found nothing for ResNet-8 with 51,084 and 96,366.
    most_cells, cells_per_s
        Larger programs are not written, nor such whose writing would take more than half of the time
        left: 66,304 places (DS-CNN) took 600 MB and 7 s, and a busy machine takes twice as long.
    start_share_of_whole, start_share_of_windows
        Share of the time left in which the portfolio finds a schedule to begin from and a bound that
        holds for every schedule. For windows, that bound is the only one.
    window_columns
        Columns of a window: what HiGHS solves to the end in about a second.
    licence_columns
        The same for Gurobi, whose licence from PyPI takes 2,000 variables and rows; a window
        has about 1.3 rows for each column.
    window_s
        Time limit of one window.
    """

    whole_cells: int = 12_000
    most_cells: int = 200_000
    cells_per_s: float = 5_000.0
    start_share_of_whole: float = 0.25
    start_share_of_windows: float = 0.5
    window_columns: int = 5_000
    licence_columns: int = 1_400
    window_s: float = 6.0


DEFAULTS = MiqpOptions()


def solve_miqp(problem: Problem, request: Request, options: MiqpOptions = DEFAULTS) -> SolveResult:
    """The optimum of the program over its class of schedules, or the best found in time.

    The first runs are in the order of the portfolio's schedule. A small program is solved whole; the
    portfolio then looks for a better order from its optimum, until it finds none. Of a larger program,
    windows are solved.

    Raises
    ------
    UnsupportedProblemError
        If the objective is the makespan.
    SolverUnavailableError
        If the backend cannot run here.
    """
    request.refuse_makespan("miqp")
    cells = _cells(problem)
    if cells > min(options.most_cells, options.cells_per_s * request.remaining_s / 2):
        return _answered_by(
            solve_automatically(problem, request),
            request,
            f"a program of {cells} places is too large to be written in this time",
        )
    is_whole = cells <= options.whole_cells
    share = options.start_share_of_whole if is_whole else options.start_share_of_windows
    found: SolveResult | None = None
    solved: set[tuple[str, ...]] = set()
    while True:
        best = request.start if found is None else found.schedule
        start = _portfolio(problem, replace(request, start=best), share)
        if start.scope is Scope.EVERY_SCHEDULE and start.stopped_by in _PROVEN:
            return _answered_by(start, request, "the proof came before the program was written")
        ordered = _in_order_of(problem, start.schedule)
        order = tuple(ordered.graph.op_index)
        if found is not None and (order in solved or request.is_over):
            return found
        try:
            search = _Search(ordered, request, options, start)
        except TimeIsUpError:
            return found or _answered_by(start, request, "the program was not written in time")
        search.run(is_whole=is_whole)
        found = conclude(
            problem,
            request,
            search.schedule,
            search.proof_of_best(),
            solver=f"miqp ({request.backend})",
            message="; ".join(search.sentences),
        )
        if not search.is_solved or request.is_over:
            return found
        solved.add(order)


_PROVEN = (StopReason.PROOF, StopReason.GAP)


def _portfolio(problem: Problem, request: Request, share: float) -> SolveResult:
    until_s = request.elapsed_s + share * request.remaining_s
    limits = Limits(until_s, request.limits.gap_ratio)
    return solve_automatically(problem, replace(request, limits=limits))


def _cells(problem: Problem) -> int:
    """Devices by stages by tensors: what the columns of the program are in proportion to."""
    graph = problem.graph
    return len(problem.platform.devices) * (len(graph.ops) + 1) * len(graph.bases)


def copies_for(backend: str) -> type[Copies]:
    """The form in which a backend gets the copies."""
    return CopiesAsProducts if backend in WITH_PRODUCTS else CopiesOverLinks


def _answered_by(result: SolveResult, request: Request, reason: str) -> SolveResult:
    """What the portfolio found, and why the program did not."""
    message = "; ".join(sentence for sentence in (reason, result.message) if sentence)
    return replace(
        result, solver=f"miqp ({result.solver} without {request.backend})", message=message
    )


def _in_order_of(problem: Problem, schedule: Schedule | None) -> Problem:
    """The problem with its ops in the order in which the schedule first runs them.

    Those that never run, which only others of them read, come last; where one of them reads a state before
    its update there is no such order, and the graph's is kept.
    """
    if schedule is None:
        return problem
    first = {name: k for k, name in reversed(list(enumerate(schedule.computed)))}
    graph, last = problem.graph, len(schedule.computed)
    ordered = tuple(sorted(graph.ops, key=lambda op: first.get(op.name, last)))
    try:
        return replace(problem, graph=replace(graph, ops=ordered))
    except InvalidProblemError:
        return problem


class _Search:
    """The program, whole or in windows, and the best schedule so far."""

    def __init__(
        self, problem: Problem, request: Request, options: MiqpOptions, start: SolveResult
    ) -> None:
        self.schedule = start.schedule
        self.proof = Proof(start.bound, start.scope)
        self.sentences: list[str] = []
        self.is_solved = False
        self._request, self._options = request, options
        self._problem = problem
        indexed = index_problem(problem, request.objective)
        self._model: TightModel = formulate_tight(
            indexed, copies_for(request.backend), request.looking(WRITING_SHARE)
        )
        program = self._model.program
        self._x = None if self.schedule is None else encode_tight(self._model, self.schedule)
        request.say(
            f"miqp: {program.column_count} columns, {program.row_count} rows,"
            f" {len(program.quadratic_values)} products, {request.backend}"
        )

    def run(self, *, is_whole: bool) -> None:
        """Solve the whole program, or windows of it."""
        if is_whole:
            try:
                self._solve_whole()
                return
            except SolverUnavailableError as error:
                if self._x is None or self._request.backend != "gurobi":
                    raise
                self.sentences.append(f"{error}; solved in windows instead")
        self._solve_windows()

    def proof_of_best(self) -> Proof:
        """The bound, unless the schedule is below it: then it is none of the scope."""
        value = self._request.value_of(self._problem, self.schedule)
        return self.proof.beside(value, self._model.indexed.cheapest)

    def _solve_whole(self) -> None:
        answer = self._answer(self._model.program, self._x, self._request.remaining_s)
        if answer.x is not None:
            self.schedule = self._best(self._model.schedule(answer.x))
        self.is_solved = answer.outcome in (Outcome.OPTIMAL, Outcome.INFEASIBLE)
        self.sentences.append(answer.message)
        value = self._request.value_of(self._problem, self.schedule)
        is_of_class = value is None or answer.bound <= value * (1 + PROOF_RATIO)
        if answer.outcome is not Outcome.INFEASIBLE and is_of_class:
            if answer.bound > self.proof.bound:
                self.proof = Proof(answer.bound, Scope.STAGE_MODEL)
                self.sentences.append(f"the stage model has {SCOPE}")
        elif value is not None:
            self.sentences.append("the schedule is better than any that the program can express")

    def _solve_windows(self) -> None:
        if self._x is None:
            self.sentences.append(
                "the schedule to begin from is none of the program's, so no window was solved"
            )
            return
        model, request, options = self._model, self._request, self._options
        parts, draw = parts_of(model), random.Random(request.seed)
        is_gurobi = request.backend == "gurobi"
        most = options.licence_columns if is_gurobi else options.window_columns
        solved = better = 0
        remaining = windows(model, parts, self._x, most, draw)
        while not request.is_over and (is_free := next(remaining, None)) is not None:
            solved += 1
            if self._improve(is_free):
                better += 1
                remaining = windows(model, parts, self._x, most, draw)
        self.sentences.append(f"{solved} windows, {better} of them better")

    def _improve(self, is_free: NDArray[np.bool_]) -> bool:
        """Solve one window; whether it led to a better schedule."""
        assert self._x is not None
        window = restricted(self._model.program, self._x, is_free)
        limit_s = min(self._options.window_s, self._request.remaining_s)
        try:
            answer = self._answer(window.program, self._x[window.free], limit_s)
        except SolverUnavailableError:
            return False  # too many rows for the licence
        if answer.x is None:
            return False
        x = window.extended(self._x, answer.x)
        program = self._model.program
        if program.objective(x) >= program.objective(self._x) * (1 - 1e-9):
            return False
        self._x = x
        self.schedule = self._best(self._model.schedule(x))
        self._request.say_found(program.objective(x), "a window of miqp")
        return True

    def _best(self, schedule: Schedule) -> Schedule | None:
        return self._request.best_of(self._problem, [schedule, self.schedule])

    def _answer(self, program: Program, x: NDArray[np.float64] | None, limit_s: float) -> Answer:
        request = self._request
        return run_backend(
            request.backend,
            program,
            BackendOptions(limit_s, request.limits.gap_ratio, x, seed=request.seed),
            stop=request.stop,
        )
