"""``tvm-xengine train`` of several models: planned under one budget per device, trained in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace

from tvm_xengine.commands.app import TrainOptions
from tvm_xengine.commands.arguments.options import BudgetOptions
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.run.learning import Curve, showing_each
from tvm_xengine.commands.run.plan import problem_of, save_plan
from tvm_xengine.commands.run.steps import budgets_in, platform_of, solver_arguments
from tvm_xengine.commands.run.together.workloads import NamedWorkload
from tvm_xengine.commands.run.train import (
    Wanted,
    finished,
    following,
    is_timed,
    summary_of,
    wanted_of,
)
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.model.lr_schedules import ScheduleLike
from tvm_xengine.planning.shared_budget import SharedMemory
from tvm_xengine.report.shared_memory import print_shared_memory
from tvm_xengine.session.loop.workload import FitProgress, Workload
from tvm_xengine.session.together.build import StepsTogether, build_together
from tvm_xengine.session.together.fit import fit_together
from tvm_xengine.session.together.plan import plan_together


def run_train_together(workloads: Sequence[NamedWorkload], options: TrainOptions) -> None:
    """Plan all, train in turns, and report each and their memory."""
    terminal = Terminal(options.plan.output)
    _check_one_model_only(options)
    wanted: dict[str, Wanted] = {}
    for one in workloads:
        terminal.note(f"{one.name}: {one.model}, {_steps_in_turn(one.share)}")
        wanted[one.name] = wanted_of(one.model, one.options, terminal)
    with terminal.reporting() as reporter:
        steps = _built(wanted, options, reporter)
    curves = {name: Curve() for name in wanted}
    with ExitStack() as stack:
        shown = {name: one.steps for name, one in wanted.items()}
        show = stack.enter_context(showing_each(terminal, shown))
        marks = {
            name: stack.enter_context(steps[name].timed())
            for name, one in wanted.items()
            if is_timed(one.options)
        }
        results = fit_together(
            {
                one.name: _workload(one, wanted[one.name], steps, curves[one.name], show[one.name])
                for one in workloads
            }
        )
    documents: dict[str, object] = {}
    for name, each in wanted.items():
        run = summary_of(steps[name], each.data, results[name], curves[name])
        documents[name] = finished(terminal, steps[name], each, run, marks.get(name))
    measured = steps.measured_peak_bytes
    print_shared_memory(terminal.console, steps.plans.memory, measured)
    terminal.write({"workloads": documents, "memory": _memory(steps.plans.memory, measured)})


def _check_one_model_only(options: TrainOptions) -> None:
    """Refuse what cannot be done with several models."""
    if options.loop.replan:
        raise UsageError(
            "--replan is for one model: other plans would take other memory than the models share; leave"
            " it out"
        )
    if platform_of(options.plan.machine.platform).ranks > 1:
        raise UsageError(
            "the devices of the platform are on several ranks, where one model is trained at a time; leave"
            " out `rank` and `host` in the platform file"
        )
    if options.loop.schedule is not None:
        raise UsageError("--schedule is for one model; leave it out, or train each model alone")


def _built(
    wanted: Mapping[str, Wanted], options: TrainOptions, reporter: Reporter
) -> StepsTogether:
    plain = {
        name: replace(one.options.plan, budget=BudgetOptions()) for name, one in wanted.items()
    }
    problems = {
        name: problem_of(one.training, plain[name], reporter) for name, one in wanted.items()
    }
    arguments = solver_arguments(options.plan.solver, options.plan.step.model.seed)
    plans = plan_together(problems, budgets_in(options.plan.budget), **arguments)
    for name, one in wanted.items():
        save_plan(plans.plans[name], replace(one.options.plan.save, report=None))
    rates: dict[str, ScheduleLike] = {name: one.lr_schedule for name, one in wanted.items()}
    steps = build_together(plans, lr_schedules=rates)
    for name, one in wanted.items():
        if not one.options.loop.no_compare:
            steps[name].compare_with_keep_all()
    return steps


def _workload(
    one: NamedWorkload,
    wanted: Wanted,
    steps: StepsTogether,
    curve: Curve,
    show: Callable[[FitProgress], None],
) -> Workload:
    step = steps[one.name]
    return Workload(
        step,
        wanted.data,
        share=one.share,
        epochs=wanted.epochs,
        max_steps=wanted.max_steps,
        checkpoint=wanted.saving,
        on_progress=following(curve, step, show),
        guard=not one.options.loop.no_guard,
        seed=one.options.plan.step.model.seed,
    )


def _memory(
    memory: Sequence[SharedMemory], measured: Mapping[str, int]
) -> dict[str, dict[str, object]]:
    """The memory of each device for the JSON report."""
    return {
        one.device: {
            **{key: value for key, value in asdict(one).items() if key != "device"},
            "shared_bytes": one.shared_bytes,
            "planned_arena_bytes": one.arena_bytes,
            "apart_bytes": one.apart_bytes,
            "measured_peak_bytes": measured[one.device],
        }
        for one in memory
    }


def _steps_in_turn(share: int) -> str:
    return f"{share} step{'s' if share > 1 else ''} in its turn"
