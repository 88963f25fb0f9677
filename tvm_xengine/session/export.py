"""A training step as C: with a plan that the user has, or planned for the memory of a board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tvm_xengine.aot.entries import chosen_entries
from tvm_xengine.aot.export import ExportReport, export_step, write_package
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.package.layout import layout_called
from tvm_xengine.aot.plan.kernels import Optimize
from tvm_xengine.aot.plan.regions import Region, parse_regions
from tvm_xengine.aot.prepare import prepare_planned
from tvm_xengine.checks.arguments import checked
from tvm_xengine.files.write_directory import check_free
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.model.arguments import one_of, patterns
from tvm_xengine.model.training import Training
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.session.layers.train_budget import TrainBudget, choose_trained, rebuilt
from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.session.stages.plan import StepPlan, check_plan_is_of
from tvm_xengine.solvers.result import Limits, Objective
from tvm_xengine.training.model_loss import ModelLoss


def evaluated_model(training: Training) -> ForwardModel | None:
    """The model without the loss that became a part of it; None where no loss did, or that is unknown.

    It must be the same state that both read: traced apart, they may have constants of one name.
    """
    source = training.source
    evaluated, trained = source.evaluation, source.training
    if not isinstance(training.known_recipe.loss, ModelLoss):
        return None
    same = all(
        name in trained.state and np.array_equal(value, trained.state[name])
        for name, value in evaluated.state.items()
    )
    return evaluated if same else None


@checked
def export_c(
    lowered: Lowered,
    plan: StepPlan,
    directory: str | Path,
    *,
    target: str = "host",
    force: bool = False,
    name: str | None = None,
) -> ExportReport:
    """Write a planned training step as C, with the schedule and the budgets of the plan.

    Each device of the platform becomes a memory region that the one processor of the target
    addresses. Kernels are made for the target, so their scratch memory may differ from that of
    the plan; addresses are laid out anew.

    Parameters
    ----------
    lowered
        What was planned.
    plan
        Its schedule and budgets, made here or loaded from a file.
    directory
        Written whole or not at all.
    target
        ``host``, a processor such as ``cortex-m4``, or what else ``export --target`` takes.
    force
        Replaces what an earlier export wrote there.
    name
        Prefix of files and C names, so that several packages are linked into one program; None follows
        the model's name.

    Raises
    ------
    BudgetExceededError
        If the scratch memory of a kernel does not fit the budgets of the plan.
    ExportError
        If the directory exists, and is not replaced, or the name is no C identifier in lower case.
    InvalidPlatformError
        If a device of the plan has a name that is no C identifier in lower case.
    InvalidScheduleError
        If the plan is of another step.
    """
    check_plan_is_of(plan, lowered)
    check_free(Path(directory), force=force)
    training, planned = lowered.training, plan.planned
    options = ExportOptions(
        target=target,
        regions=tuple(
            Region(device.name, device.budget_bytes)
            for device in planned.plan.problem.platform.devices
        ),
        learning_rate=training.known_recipe.optimizer.lr,
        evaluated=evaluated_model(training),
        name=name,
    )
    prepared = prepare_planned(training.source.training, training.step, planned, options)
    return write_package(prepared, Path(directory), force=force)


@checked
def export_for_target(
    training: Training,
    directory: str | Path,
    *,
    target: str = "host",
    regions: Mapping[str, str | int],
    force: bool = False,
    time_limit_s: float = 60.0,
    entries: Sequence[str] = ("train_step", "eval"),
    train_budget: TrainBudget | None = None,
    objective: str = "cost",
    work_limit: float | None = None,
    name: str | None = None,
    layout: str = "cmake",
    optimize: str = "speed",
) -> ExportReport:
    """Write the training step as C, planned for the memory regions of a target.

    Parameters
    ----------
    training
        Loss, gradients and updates in one function.
    directory
        Written whole or not at all.
    target
        ``host``, a processor such as ``cortex-m4``, or what else ``export --target`` takes.
    regions
        Bytes by name of region, fastest first; ``"4MiB@0.08"`` says how fast it is read, in GB/s.
    force
        Replaces what an earlier export wrote there.
    time_limit_s
        Of planning each function of the package.
    entries
        Functions of the package: ``train_step``, ``eval``, ``infer`` (one sample), and ``accumulate``
        with ``apply`` (gradients over single samples).
    train_budget
        Chooses which of the trained layers are trained, so that all fits; None trains them all. The
        report has the choice.
    objective
        ``cost``, the sum of all times; ``makespan``, where DMA copies between regions while the processor
        computes in the first one.
    work_limit
        In place of the time limit, units of work of about a second each: the same package in every run, byte
        for byte, however busy the machine is.
    name
        As that of `export_c`.
    layout
        Build system that the package is laid out for: ``cmake``, ``zephyr``, ``arduino``, ``platformio`` or
        ``esp-idf``.
    optimize
        What kernels are optimised for, ``speed`` or ``size``.

    Raises
    ------
    ExportError
        If the directory exists, and is not replaced, there is no such entry point, or the name is no C
        identifier in lower case.
    InvalidScoresError
        If a score is no finite number of at least 0, or its name is none of the model.
    NoScheduleError
        If the regions are too small; the message says what each one needs.
    """
    asked = one_of("optimize", Optimize, optimize)
    if asked is Optimize.SIZE:
        apart = replace(training.known_recipe, residuals_apart=True)
        training = rebuilt(training, training.source, apart)
    options = ExportOptions(
        target=target,
        optimize=asked,
        layout=layout_called(layout, has_objects=False).name,
        entries=chosen_entries(patterns("entries", entries)),
        regions=parse_regions(",".join(f"{name}={size}" for name, size in regions.items())),
        plan=PlanOptions(
            objective=one_of("objective", Objective, objective),
            limits=Limits.of(time_limit_s, 0.0, work_limit),
        ),
        learning_rate=training.known_recipe.optimizer.lr,
        recipe=training.known_recipe,
        evaluated=evaluated_model(training),
        name=name,
    )
    if train_budget is not None:
        check_free(Path(directory), force=force)
        choice = choose_trained(training, train_budget, options)
        report = write_package(choice.prepared, Path(directory), force=force)
        return replace(report, choice=choice)
    model = training.source.training
    return export_step(model, training.step, options, Path(directory), force=force)
