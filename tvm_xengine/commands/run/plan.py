"""``tvm-xengine plan``: everything up to the schedule; nothing is executed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from tvm_xengine import api
from tvm_xengine.commands.app import PlanOptions
from tvm_xengine.commands.arguments.options import SaveOptions
from tvm_xengine.commands.run.steps import (
    budgets_in,
    lowered_on,
    platform_of,
    solver_arguments,
    training_of,
    with_budgets,
)
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.compiler.costing.energy import check_energy
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.model.training import Training
from tvm_xengine.report.summary import as_document
from tvm_xengine.report.tables import print_report
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import write_problem
from tvm_xengine.scheduling.schedule import write_schedule
from tvm_xengine.session.stages.plan import StepPlan
from tvm_xengine.session.stages.problem import StepProblem
from tvm_xengine.solvers.result import Objective, StopReason


def run_plan(model: str, options: PlanOptions) -> None:
    """Plan, save and report what is predicted."""
    terminal = Terminal(options.output, options.save.paths)
    arguments = solver_arguments(options.solver, options.step.model.seed)
    training = training_of(model, options.step)
    with terminal.reporting() as reporter:
        problem = problem_of(training, options, reporter)
        planned = api.plan(problem, **arguments, replicas=options.division.replicas)
    save_plan(planned, options.save, terminal.writing)
    summary = planned.summary
    print_report(terminal.console, summary, None)
    if planned.plan.result.stopped_by is StopReason.INTERRUPTED:
        terminal.note("interrupted: this is the best plan so far")
    terminal.write(as_document(summary, None))


def problem_of(training: Training, options: PlanOptions, reporter: Reporter) -> StepProblem:
    """The scheduling problem of a training step on the machine and under the budgets."""
    return problem_on(platform_of(options.machine.platform), training, options, reporter)


def problem_on(
    platform: Platform, training: Training, options: PlanOptions, reporter: Reporter
) -> StepProblem:
    """The same on a machine that is given."""
    budgets = budgets_in(options.budget)
    budgets.check(platform)
    check_energy(platform, Objective(options.solver.objective))
    lowered = lowered_on(platform, training, options.machine, reporter)
    problem = api.make_problem(lowered, options.costs.costs)
    return with_budgets(problem, budgets)


def save_plan(
    planned: StepPlan,
    files: SaveOptions,
    writing: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Save a plan, and its problem and schedule, where asked; each file is written in `writing`."""
    plan = planned.plan
    if files.save_problem is not None:
        with writing():
            write_problem(plan.problem, files.save_problem)
    if files.save_schedule is not None:
        with writing():
            write_schedule(plan.schedule, files.save_schedule)
    if files.save_plan is not None:
        with writing():
            planned.save(files.save_plan)
    if files.report is not None:
        with writing():
            planned.write_report(files.report)


__all__ = ["StepPlan", "problem_of", "run_plan", "save_plan"]
