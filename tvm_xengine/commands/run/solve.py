"""``tvm-xengine solve``: a saved problem, without a compiler."""

from __future__ import annotations

from pathlib import Path

from tvm_xengine.commands.app import SolveOptions
from tvm_xengine.commands.arguments.options import ExportSolverOptions, SolverOptions
from tvm_xengine.commands.arguments.usage import refusing_values
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.planning.keep_all import budgets_for_ratio
from tvm_xengine.planning.planner import PlanOptions, plan_schedule
from tvm_xengine.report.summary import as_document, summarize_plan
from tvm_xengine.report.tables import print_report
from tvm_xengine.scheduling.problem import Problem, read_problem
from tvm_xengine.scheduling.schedule import write_schedule
from tvm_xengine.session.plans.plan_file import SavedPlan, write_plan
from tvm_xengine.solvers.result import Limits, Objective, StopReason
from tvm_xengine.solvers.solve import check_solver, refuse_uncounted


def run_solve(path: Path, options: SolveOptions) -> None:
    """Solve, save and report."""
    terminal = Terminal(options.output, (options.save_schedule, options.save_plan))
    wanted = planner_options(options.solver, options.seed)
    problem = _with_budgets(read_problem(path), options)
    with terminal.reporting() as reporter:
        plan = plan_schedule(problem, wanted, lambda text: reporter.status(f"solving: {text}"))
        reporter.status("")
    if options.save_schedule is not None:
        with terminal.writing():
            write_schedule(plan.schedule, options.save_schedule)
    if options.save_plan is not None:
        with terminal.writing():
            write_plan(SavedPlan("", plan, {}, 0), options.save_plan)
    summary = summarize_plan(path.stem, plan)
    print_report(terminal.console, summary, None)
    if plan.result.stopped_by is StopReason.INTERRUPTED:
        terminal.note("interrupted: this is the best plan so far")
    terminal.write(as_document(summary, None))


def planner_options(options: SolverOptions | ExportSolverOptions, seed: int) -> PlanOptions:
    """The planner's options.

    Raises
    ------
    UsageError
        If the solver does not work with the backend.
    """
    limits = Limits.of(options.time_limit, options.gap, options.work_limit)
    with refusing_values():
        check_solver(options.solver, options.backend)
        refuse_uncounted(options.solver, limits)
    return PlanOptions(
        solver=options.solver,
        objective=Objective(options.objective),
        limits=limits,
        seed=seed,
        backend=options.backend,
    )


def _with_budgets(problem: Problem, options: SolveOptions) -> Problem:
    given = dict(options.budget.budget)
    if unknown := [name for name in given if name not in problem.platform.index]:
        raise InvalidPlatformError(
            f"budgets are given for {', '.join(unknown)}, but the platform has"
            f" {', '.join(problem.platform.index)}"
        )
    ratio = options.budget.budget_ratio
    by_ratio = {} if ratio is None else budgets_for_ratio(problem, ratio)
    return problem.with_budgets({**by_ratio, **given})
