"""``tvm-xengine pareto``: how the time of the step grows as its memory shrinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm_xengine import api
from tvm_xengine.commands.app import ParetoOptions
from tvm_xengine.commands.run.solve import planner_options
from tvm_xengine.commands.run.steps import lowered_on, platform_of, training_of
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.compiler.costing.energy import check_energy
from tvm_xengine.compiler.lean.better_form import is_better, planned_forms
from tvm_xengine.compiler.lean.forms import least_value
from tvm_xengine.compiler.options import Budgets
from tvm_xengine.compiler.plan import plan_costed
from tvm_xengine.compiler.plan_kernels import PlannedStep, plan_kernels
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.errors import NoScheduleError
from tvm_xengine.planning.keep_all import budgets_for_ratios
from tvm_xengine.planning.pareto import ParetoPoint, pareto, with_best_of_smaller
from tvm_xengine.planning.plan import Plan
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.report.front import FrontPoint, check_plot, front_document, plot_front, print_front
from tvm_xengine.scheduling.problem import Problem, write_problem
from tvm_xengine.solvers.result import SolveResult, StopReason


def run_pareto(model: str, options: ParetoOptions) -> None:
    """Solve for every ratio, from ample to small, each solve starting from its neighbours."""
    terminal = Terminal(options.output, (options.save_problem,))
    if options.plot is not None:
        check_plot(options.plot)
    wanted = planner_options(options.solver, options.step.model.seed)
    with terminal.reporting() as reporter:
        costed, stores, interrupted = _costed(model, options, wanted, reporter)
    problem = costed.problem
    if options.save_problem is not None:
        write_problem(problem, options.save_problem)
    ratios = tuple(sorted(set(options.ratios), reverse=True))
    given = dict(options.budget)
    budgets = [{**each, **given} for each in budgets_for_ratios(problem, ratios)]
    points: Sequence[ParetoPoint]
    if interrupted is not None:
        points = [ParetoPoint(budgets[-1], interrupted, problem.graph)]
    else:
        points = _solved(problem, budgets, wanted, terminal)
        points = _with_other_forms(points, costed, wanted, stores, terminal)
    if _is_interrupted(points):
        terminal.note(f"interrupted: {len(points)} of {len(ratios)} budgets were solved")
    solved = ratios[len(ratios) - len(points) :]
    front = [FrontPoint.of(ratio, point) for ratio, point in zip(solved, points, strict=True)]
    print_front(terminal.console, model, front)
    for point in front:
        if point.slices > 1:
            terminal.note(
                f"at ratio {point.ratio:g} the step runs in {point.slices} slices of the batch"
            )
    if options.plot is not None:
        with terminal.writing():
            plot_front(model, front, options.plot)
    terminal.write(front_document(model, front))


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

        return pareto(problem, budgets, wanted, on_point=show)


def _with_other_forms(
    points: Sequence[ParetoPoint],
    costed: CostedStep,
    wanted: PlanOptions,
    stores: Stores,
    terminal: Terminal,
) -> Sequence[ParetoPoint]:
    """The points; those without a good schedule are planned with lean kernels and in slices, too.

    Nothing more is begun after an interrupt, which the solver of a point may have taken.
    """
    points = list(points)
    with terminal.reporting() as reporter:
        advance = reporter.stage("planning in other forms")
        try:
            for k, point in enumerate(points):
                if _is_interrupted(points):
                    break
                points[k] = _in_other_form(point, costed, wanted, stores, reporter)
                advance(k + 1, len(points), "")
        except KeyboardInterrupt:
            terminal.note("interrupted: smaller budgets were not tried in slices")
    return with_best_of_smaller(points)


def _is_interrupted(points: Sequence[ParetoPoint]) -> bool:
    return any(point.result.stopped_by is StopReason.INTERRUPTED for point in points)


def _in_other_form(
    point: ParetoPoint,
    costed: CostedStep,
    wanted: PlanOptions,
    stores: Stores,
    reporter: Reporter,
) -> ParetoPoint:
    tight = costed.with_budgets(Budgets(device_bytes=point.budgets))
    schedule = point.result.schedule
    floor = least_value(costed.problem, wanted.objective)
    try:
        if schedule is None:
            planned = plan_costed(tight, wanted, stores, reporter)
        else:
            known = Plan.of_schedule(tight.problem, schedule, point.result.solver)
            others = planned_forms(tight, known, floor, wanted, stores, reporter)
            value = wanted.objective.of(known.simulation)
            if not others or not is_better(others[0].value(wanted), value):
                return point
            planned = others[0].planned
    except NoScheduleError:
        return point
    problem = planned.plan.problem
    return ParetoPoint(
        *(point.budgets, planned.plan.result, problem.graph, planned.lowered.slices),
        floor=least_value(problem, wanted.objective),
    )


def _costed(
    model: str, options: ParetoOptions, wanted: PlanOptions, reporter: Reporter
) -> tuple[CostedStep, Stores, SolveResult | None]:
    """The step with the costs that all points share.

    Active costs are searched for with the smallest ratio that has a schedule of the whole batch. With
    them comes the answer for it, where an interrupt ended that search.
    """
    platform = platform_of(options.machine.platform)
    budgets = Budgets(device_bytes=dict(options.budget))
    budgets.check(platform)
    check_energy(platform, wanted.objective)
    training = training_of(model, options.step)
    lowered = lowered_on(platform, training, options.machine, reporter)
    costed = api.make_problem(lowered, options.costs).costed.with_budgets(budgets)
    if options.costs != "active":
        return costed, lowered.stores, None
    from_small = [Budgets(ratio, budgets.device_bytes) for ratio in sorted(options.ratios)]
    planned = _planned_for_smallest(from_small, costed, wanted, lowered.stores, reporter)
    asked = {device.name: device.budget_bytes for device in costed.problem.platform.devices}
    result = planned.plan.result
    is_interrupted = result.stopped_by is StopReason.INTERRUPTED
    problem = planned.plan.problem.with_budgets(asked)
    return replace(costed, problem=problem), lowered.stores, result if is_interrupted else None


def _planned_for_smallest(
    wanted_budgets: Sequence[Budgets],
    costed: CostedStep,
    wanted: PlanOptions,
    stores: Stores,
    reporter: Reporter,
) -> PlannedStep:
    """The plan, with active costs, of the first budgets under which the whole batch has one.

    Raises
    ------
    NoScheduleError
        If it has none under any; it is that of the last ones.
    """
    for budgets in wanted_budgets:
        try:
            return plan_kernels(costed.with_budgets(budgets), wanted, stores, reporter)
        except NoScheduleError as error:
            refused = error
    raise refused
