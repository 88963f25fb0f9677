"""``tvm-xengine pareto``: how the time of the step grows as its memory shrinks."""

from __future__ import annotations

from rich.console import Console

from tvm_xengine.commands.options import Request
from tvm_xengine.commands.prepare import compile_options, lower
from tvm_xengine.commands.progress import show_progress
from tvm_xengine.compile.energy import check_energy
from tvm_xengine.compile.plan import cost_step
from tvm_xengine.planning.pareto import ParetoPoint, pareto
from tvm_xengine.planning.planner import budgets_for_ratio
from tvm_xengine.report.front import FrontPoint, front_document, plot_front, print_front
from tvm_xengine.report.summary import write_json
from tvm_xengine.scheduling.problem import write_problem
from tvm_xengine.solvers.result import StopReason


def run_pareto(request: Request, console: Console) -> None:
    """Solve for every ratio, from ample to small, each solve starting from its neighbours."""
    with show_progress(console) as reporter:
        step = lower(request, reporter)
        costed = cost_step(step.lowered, request.costs, step.stores, reporter)
    problem = costed.with_budgets(compile_options(request).budgets).problem
    check_energy(problem.platform, request.plan.objective)
    if request.output.problem is not None:
        write_problem(problem, request.output.problem)
    ratios = sorted(request.ratios, reverse=True)
    budgets = [{**budgets_for_ratio(problem, ratio), **request.budget.budgets} for ratio in ratios]
    with console.status("solving") as status:
        done: list[ParetoPoint] = []

        def show(point: ParetoPoint) -> None:
            done.append(point)
            status.update(f"solving: {len(done)} of {len(ratios)} budgets")

        points = pareto(
            problem,
            budgets,
            solver=request.plan.solver,
            backend=request.plan.backend,
            objective=request.plan.objective,
            limits=request.plan.limits,
            seed=request.plan.seed,
            on_point=show,
        )
    if any(point.result.stopped_by is StopReason.INTERRUPTED for point in points):
        console.print(f"interrupted: {len(points)} of {len(ratios)} budgets were solved")
    solved = ratios[len(ratios) - len(points) :]
    front = [FrontPoint.of(ratio, point) for ratio, point in zip(solved, points, strict=True)]
    print_front(console, request.model.model, front)
    if request.output.json is not None:
        write_json(front_document(request.model.model, front), request.output.json)
    if request.output.plot is not None:
        plot_front(request.model.model, front, request.output.plot)
