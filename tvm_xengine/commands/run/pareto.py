"""``tvm-xengine pareto``: how the time of the step grows as its memory shrinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm_xengine import api
from tvm_xengine.commands.app import ParetoOptions
from tvm_xengine.commands.run.solve import planner_options
from tvm_xengine.commands.run.steps import lowered_on, platform_of, training_of
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.compiler.costing.energy import check_energy
from tvm_xengine.compiler.options import Budgets
from tvm_xengine.compiler.plan import plan_kernels
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.planning.keep_all import budgets_for_ratio
from tvm_xengine.planning.pareto import ParetoPoint, pareto
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.report.front import FrontPoint, check_plot, front_document, plot_front, print_front
from tvm_xengine.scheduling.problem import Problem, write_problem
from tvm_xengine.solvers.result import SolveResult, StopReason


def run_pareto(model: str, options: ParetoOptions) -> None:
    """Solve for every ratio, from ample to small, each solve starting from its neighbours."""
    terminal = Terminal(options.output)
    if options.plot is not None:
        check_plot(options.plot)
    wanted = planner_options(options.solver, options.step.model.seed)
    with terminal.reporting() as reporter:
        problem, interrupted = _problem(model, options, wanted, reporter)
    if options.save_problem is not None:
        write_problem(problem, options.save_problem)
    ratios = tuple(sorted(set(options.ratios), reverse=True))
    budgets = [{**budgets_for_ratio(problem, r), **dict(options.budget)} for r in ratios]
    points: Sequence[ParetoPoint]
    if interrupted is not None:
        points = [ParetoPoint(budgets[-1], interrupted)]
    else:
        points = _solved(problem, budgets, wanted, terminal)
    if any(point.result.stopped_by is StopReason.INTERRUPTED for point in points):
        terminal.note(f"interrupted: {len(points)} of {len(ratios)} budgets were solved")
    solved = ratios[len(ratios) - len(points) :]
    front = [
        FrontPoint.of(ratio, point, problem.graph)
        for ratio, point in zip(solved, points, strict=True)
    ]
    print_front(terminal.console, model, front)
    terminal.write(front_document(model, front))
    if options.plot is not None:
        plot_front(model, front, options.plot)


def _solved(
    problem: Problem,
    budgets: Sequence[Mapping[str, int]],
    wanted: PlanOptions,
    terminal: Terminal,
) -> Sequence[ParetoPoint]:
    """The points of the front; fewer after an interrupt."""
    with terminal.reporting() as reporter:
        advance = reporter.stage("solving")
        done: list[ParetoPoint] = []

        def show(point: ParetoPoint) -> None:
            done.append(point)
            advance(len(done), len(budgets), "")

        return pareto(
            problem,
            budgets,
            solver=wanted.solver,
            backend=wanted.backend,
            objective=wanted.objective,
            limits=wanted.limits,
            seed=wanted.seed,
            on_point=show,
        )


def _problem(
    model: str, options: ParetoOptions, wanted: PlanOptions, reporter: Reporter
) -> tuple[Problem, SolveResult | None]:
    """The problem with the costs that all points share.

    With it comes the answer for the smallest budget, where an interrupt ended the search for costs.
    """
    platform = platform_of(options.machine.platform)
    budgets = Budgets(device_bytes=dict(options.budget))
    budgets.check(platform)
    check_energy(platform, wanted.objective)
    training = training_of(model, options.step)
    lowered = lowered_on(platform, training, options.machine, reporter)
    costed = api.make_problem(lowered, options.costs).costed.with_budgets(budgets)
    if options.costs != "active":
        return costed.problem, None
    smallest = costed.with_budgets(Budgets(min(options.ratios), budgets.device_bytes))
    planned = plan_kernels(smallest, wanted, lowered.stores, reporter)
    asked = {device.name: device.budget_bytes for device in costed.problem.platform.devices}
    result = planned.plan.result
    is_interrupted = result.stopped_by is StopReason.INTERRUPTED
    return planned.plan.problem.with_budgets(asked), result if is_interrupted else None
