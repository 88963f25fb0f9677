"""``tvm-xengine plan --simulate``: the plan of many equal machines, without them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tvm_xengine.commands.app import PlanOptions
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.run.plan import problem_on
from tvm_xengine.commands.run.solve import planner_options
from tvm_xengine.commands.run.steps import training_of
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.compiler.options import CostChoice
from tvm_xengine.compiler.simulated import plan_one_of_many, saying_what_is_simulated
from tvm_xengine.report.summary import as_document, summarize_plan
from tvm_xengine.report.tables import print_report
from tvm_xengine.scheduling.problem import write_problem
from tvm_xengine.scheduling.replicas.group import read_replica_group
from tvm_xengine.scheduling.schedule import write_schedule
from tvm_xengine.session.plans.plan_file import SavedPlan, write_plan
from tvm_xengine.solvers.result import Objective

_BATCH = 16
"""Samples of each machine where --batch is not given, as of a zoo network."""


def run_simulated(model: str, options: PlanOptions, file: Path) -> None:
    """Plan what each machine does; nothing is measured or executed."""
    terminal = Terminal(options.output, options.save.paths)
    if options.machine.platform.platform is not None or options.division.replicas is not None:
        raise UsageError(
            "--simulate FILE says which machines there are; leave out --platform, --replicas"
        )
    if options.save.report is not None:
        raise UsageError("--report is of a step that can run; use explain with --save-plan FILE")
    group = read_replica_group(file)
    batch = options.step.model.batch or _BATCH * group.count
    if batch % group.count:
        raise UsageError(
            f"--batch {batch} is not a multiple of the {group.count} machines of {file}"
        )
    lowered_batch = batch // group.count * min(group.count, 2)
    step = replace(options.step, model=replace(options.step.model, batch=lowered_batch))
    # What cannot be measured is predicted.
    costs = CostChoice(options.costs.costs)
    if costs in (CostChoice.ACTIVE, CostChoice.MEASURED):
        costs = CostChoice.PREDICTED
    options = replace(options, step=step, costs=replace(options.costs, costs=costs.value))
    wanted = planner_options(options.solver, options.step.model.seed)
    training = training_of(model, options.step)
    with terminal.reporting() as reporter:
        problem = problem_on(group.machine, training, options, reporter)
        stores = problem.lowered.stores
        found = plan_one_of_many(
            problem.costed,
            group,
            replace(wanted, objective=Objective.MAKESPAN),
            stores,
            reporter,
        )
    plan = saying_what_is_simulated(found)
    if options.save.save_problem is not None:
        with terminal.writing():
            write_problem(plan.problem, options.save.save_problem)
    if options.save.save_schedule is not None:
        with terminal.writing():
            write_schedule(plan.schedule, options.save.save_schedule)
    if options.save.save_plan is not None:
        with terminal.writing():
            write_plan(SavedPlan("", plan, {}, 0), options.save.save_plan)
    summary = summarize_plan(problem.lowered.training.source.training.name, plan, batch=batch)
    print_report(terminal.console, summary, None)
    terminal.write(as_document(summary, None))
