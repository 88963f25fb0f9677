"""One entry point for every solver.

To add a solver, write a function that takes a problem and a `Request`, and name it in `SOLVERS`, or,
from another package, name a `Solver` that holds the function in its entry points::

    [project.entry-points."tvm_xengine.solvers"]
    mysolver = "my_package.solver:MY_SOLVER"
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import cast

from tvm_xengine.errors import ExtensionError, InvalidProblemError, InvalidScheduleError
from tvm_xengine.extensions.extended import Extended, extended
from tvm_xengine.scheduling.needless_steps import without_idle_steps
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule, with_kernels_that_fit
from tvm_xengine.solvers.backends.table import backends, require_installed
from tvm_xengine.solvers.first_use import compile_searches_for
from tvm_xengine.solvers.request import PROOF_RATIO, Proof, Request, TimeIsUpError, conclude
from tvm_xengine.solvers.result import Limits, Objective, SolveResult, Status, StopReason

SolverFunction = Callable[[Problem, Request], SolveResult]


@dataclass(frozen=True)
class Solver:
    """The function of a solver, and what it works with.

    Attributes
    ----------
    place
        The function, or ``module:function`` below `tvm_xengine.solvers`, which is imported when it
        is used.
    backends
        Those that can solve its programs, the default first; empty where it has none.
    is_linear
        Whether its programs are linear with integers for every backend that `backends` does not
        name, so that the backends of other packages can solve them.
    without_dominated
        Whether dominated devices are removed in presolve.
    counts_work
        Whether its limits may be of work (:meth:`Limits.by_work`).
    """

    place: str | SolverFunction
    backends: tuple[str, ...] = ()
    is_linear: bool = False
    without_dominated: bool = False
    counts_work: bool = False

    def load(self) -> SolverFunction:
        """The function that solves."""
        if not isinstance(self.place, str):
            return _verified(self.place)
        return cast("SolverFunction", resolve_name(f"tvm_xengine.solvers.{self.place}"))

    def suitable_backends(self) -> tuple[str, ...]:
        """Every installed backend that can solve its programs, the default first."""
        return (*self.backends, *(backends().plugged if self.is_linear else ()))


_FORMULATED = "exact.solve:solve_formulated"
_BASELINE = "published.baselines.answer:answer_baseline"

SOLVERS: dict[str, Solver] = {
    "auto": Solver(
        *("portfolio.automatic:solve_automatically", ("highs",)),
        without_dominated=True,
        counts_work=True,
    ),
    "local-search": Solver(
        "local_search.alone:search_alone", without_dominated=True, counts_work=True
    ),
    "astar": Solver("astar.alone:solve_by_astar", without_dominated=True, counts_work=True),
    "miqp": Solver(
        "miqp.solve:solve_miqp", ("highs", "scip", "gurobi"), is_linear=True, without_dominated=True
    ),
    "tight": Solver(_FORMULATED, ("highs", "scip", "gurobi"), is_linear=True),
    "xengine": Solver(_FORMULATED, ("scip", "gurobi", "highs"), is_linear=True),
    "checkmate": Solver(_FORMULATED, ("highs", "scip", "gurobi"), is_linear=True),
    "checkmate-rounding": Solver("published.rounding:solve_by_rounding", ("highs",)),
    "retention": Solver(_FORMULATED, ("cp-sat",)),
    "poet": Solver(_FORMULATED, ("highs", "gurobi"), is_linear=True),
    "greedy": Solver(_BASELINE, counts_work=True),
    "keep-all": Solver(_BASELINE, counts_work=True),
    "recompute-all": Solver(_BASELINE, counts_work=True),
    "revolve": Solver(_BASELINE, counts_work=True),
    "rotor": Solver(_BASELINE, counts_work=True),
    "sqrt-n": Solver(_BASELINE, counts_work=True),
}
"""The solvers of this package by name."""


def solvers() -> Extended[Solver]:
    """Every solver by name, those of other packages after `SOLVERS`."""
    return extended("tvm_xengine.solvers", SOLVERS)


def solve(
    problem: Problem,
    solver: str = "auto",
    backend: str | None = None,
    *,
    objective: Objective = Objective.COST,
    limits: Limits | None = None,
    seed: int = 0,
    start: Schedule | None = None,
    on_progress: Callable[[str], None] | None = None,
    on_better: Callable[[float, Schedule], None] | None = None,
    stop: threading.Event | None = None,
) -> SolveResult:
    """The best schedule that `solver` finds within `limits`, and how good it provably is.

    A KeyboardInterrupt ends the solve like `stop`: the result holds the best schedule so far, and
    its `stopped_by` says that it was interrupted.

    Parameters
    ----------
    solver
        A key of `solvers()`.
    backend
        One of those that the solver works with; None takes its default.
    seed
        From 0 to 2^31 - 1.
    start
        A schedule to begin from; never made worse.
    on_progress
        Called with a sentence when there is news.
    on_better
        Called by ``auto``, ``local-search`` and ``miqp`` with the value and the schedule where one is
        better than those before.
    stop
        Set it, from any thread, to end the solve.

    Raises
    ------
    InvalidProblemError
        If the step delivers nothing: no output and no new state.
    ValueError
        If there is no such solver, or it cannot work with `backend`.
    UnsupportedProblemError
        If it cannot express the problem, or minimise `objective`.
    SolverUnavailableError
        If the solver cannot run here: not installed, or its licence is too small.
    """
    limits = limits or Limits()
    refuse_uncounted(solver, limits)
    if not problem.graph.outputs and not problem.graph.updated_by:
        raise InvalidProblemError(
            "the graph has no outputs and updates no state, so there is nothing to schedule; name the"
            " tensors that the step delivers in `outputs`"
        )
    compile_searches_for(problem, solver, objective, on_progress)
    request = Request(
        objective=objective,
        limits=limits,
        seed=seed,
        start=start,
        on_progress=on_progress,
        on_better=on_better,
        solver=solver,
        backend=backend_for(solver, backend) or "",
        stop=stop or threading.Event(),
    )
    problem = problem.without_constraints
    result = answer(problem, request)
    is_given_up = limits.gives_up and result.status is not Status.INFEASIBLE
    is_open = result.schedule is None and result.diagnosis is None and not request.stop.is_set()
    if is_open and not is_given_up:
        from tvm_xengine.solvers.diagnosis import diagnose

        result = replace(result, diagnosis=diagnose(problem, request))
    return replace(result, solve_s=request.elapsed_s)


def refuse_uncounted(solver: str, limits: Limits) -> None:
    """Refuse limits by work for a solver that does not count it.

    Raises
    ------
    ValueError
        Names the solvers that do.
    """
    found = solvers().get(solver)
    if limits.clock.counts_work and isinstance(found, Solver) and not found.counts_work:
        able = ", ".join(name for name, entry in SOLVERS.items() if entry.counts_work)
        raise ValueError(
            f"solver {solver} does not count its work; a work limit needs one of {able}"
        )


def answer(problem: Problem, request: Request) -> SolveResult:
    """What the solver of the request finds, without a diagnosis of budgets that are too small."""
    chosen, problem = _solver(request.solver), problem.without_constraints
    if problem.has_variants:
        problem = replace(problem, saves_energy=request.objective is Objective.ENERGY)
    request = _with_fitting_start(problem, request)
    try:
        if chosen.without_dominated:
            from tvm_xengine.solvers.presolve import solved_without_dominated_devices

            result = solved_without_dominated_devices(chosen.load(), problem, request)
        else:
            result = chosen.load()(problem, request)
    except KeyboardInterrupt:
        request.stop.set()
        result = None
    except TimeIsUpError:
        result = _begun_too_late(problem, request)
    if request.stop.is_set() and (result is None or result.status is Status.NO_SOLUTION):
        from tvm_xengine.solvers.portfolio.quick import quick_answer

        result = quick_answer(problem, request)
    assert result is not None
    is_makespan = request.objective is Objective.MAKESPAN
    return _without_idle_steps(problem, request, result) if is_makespan else result


def _begun_too_late(problem: Problem, request: Request) -> SolveResult:
    """What is known where the time was over before anything was solved."""
    schedule = request.best_of(problem, [request.start])
    lacked = f"program that {request.backend} could solve" if request.backend else "schedule"
    message = f"the time was over before there was a {lacked}"
    result = conclude(
        problem, request, schedule, Proof(0.0), solver=request.solver, message=message
    )
    is_interrupted = result.stopped_by is StopReason.INTERRUPTED
    return result if is_interrupted else replace(result, stopped_by=StopReason.LIMIT)


def _with_fitting_start(problem: Problem, request: Request) -> Request:
    """The request whose schedule to begin from takes kernels that fit the budgets of this problem."""
    if request.start is None:
        return request
    try:
        return replace(request, start=with_kernels_that_fit(problem, request.start))
    except InvalidScheduleError:
        return request  # solvers leave out a schedule that breaks a rule


def _without_idle_steps(problem: Problem, request: Request, result: SolveResult) -> SolveResult:
    """Beside what takes longer, a search for the least makespan does not see them."""
    if result.schedule is None:
        return result
    schedule = without_idle_steps(problem, result.schedule, lambda: not request.is_late)
    value = request.value_of(problem, schedule)
    assert value is not None
    bound = min(result.bound, value)
    is_proven = value - bound <= PROOF_RATIO * abs(value)
    status = Status.OPTIMAL if is_proven else result.status
    return replace(result, schedule=schedule, value=value, bound=bound, status=status)


def _solver(name: str) -> Solver:
    """The solver with a name; refuses what another package names and is none."""
    found = solvers()[name]
    if not isinstance(found, Solver):
        raise ExtensionError(
            f"solver {name!r}: expected a Solver at its entry point, got {found!r}"
        )
    return found


def _verified(function: SolverFunction) -> SolverFunction:
    """A solver of another package, whose schedules are validated and valued here."""

    def solved(problem: Problem, request: Request) -> SolveResult:
        result: object = function(problem, request)
        if not isinstance(result, SolveResult):
            raise ExtensionError(
                f"solver {request.solver!r}: expected a SolveResult, got {result!r}"
            )
        proof = Proof(result.bound, result.scope, result.status is Status.INFEASIBLE)
        return conclude(
            *(problem, request, result.schedule, proof),
            solver=result.solver,
            message=result.message,
        )

    return solved


def check_solver(solver: str, backend: str | None) -> None:
    """Refuse, before any other work, a solver that cannot run here.

    Raises
    ------
    ValueError
        As `backend_for`.
    SolverUnavailableError
        If the package of its backend is not installed.
    """
    if (needed := backend_for(solver, backend)) is not None:
        require_installed(needed)


def backend_for(solver: str, backend: str | None) -> str | None:
    """The backend that `solver` works with: `backend`, or its default; None where it needs none.

    Raises
    ------
    ValueError
        If there is no such solver, or it cannot work with `backend`; those that can are listed.
    """
    if solver not in solvers():
        raise ValueError(f"expected a solver among {sorted(solvers())}, got {solver!r}")
    suitable = _solver(solver).suitable_backends()
    if backend is None:
        return suitable[0] if suitable else None
    if backend in suitable:
        return backend
    if not suitable:
        able = ", ".join(
            name for name, entry in SOLVERS.items() if backend in entry.suitable_backends()
        )
        raise ValueError(
            f"solver {solver} works without a backend; leave out backend {backend!r}, or choose a"
            f" solver that uses it: {able or 'none does'}"
        )
    raise ValueError(f"solver {solver} works with backend {' or '.join(suitable)}, got {backend!r}")
