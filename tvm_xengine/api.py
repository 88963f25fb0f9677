"""The public functions: from a model to a training step in one call, or stage by stage."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import tvm

from tvm_xengine.checks.arguments import checked
from tvm_xengine.compiler.constraint_patterns import ConstraintPatterns
from tvm_xengine.compiler.costing.costed import cost_step
from tvm_xengine.compiler.costing.links import devices_of_run
from tvm_xengine.compiler.lower import lower_step
from tvm_xengine.compiler.options import CompileOptions, CostChoice
from tvm_xengine.compiler.plan import plan_costed
from tvm_xengine.compiler.replicas import ReplicasLike, plan_replicas, replicas_of
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.compiler.stores import Stores
from tvm_xengine.cost_models.models.model import Predictor
from tvm_xengine.model.arguments import limit, one_of, patterns, pins, whole_number
from tvm_xengine.model.chosen_optimizer import (
    OptimizerLike,
    chosen_optimizer,
    groups_by_pattern,
    limits_of,
)
from tvm_xengine.model.int8 import Int8, with_frozen_int8
from tvm_xengine.model.kind_of_model import check_options, is_module
from tvm_xengine.model.losses import LossLike
from tvm_xengine.model.lr_schedules import ScheduleLike, as_schedule
from tvm_xengine.model.model_and_loss import model_and_loss
from tvm_xengine.model.source import (
    ModelLike,
    Source,
    load_source,
    with_batch,
)
from tvm_xengine.model.training import Training
from tvm_xengine.planning.messages import time_limit_warning
from tvm_xengine.scheduling.default_platform import default_platform
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.sizes import UNLIMITED_BYTES
from tvm_xengine.session.estimate import Estimate, estimate_lowered
from tvm_xengine.session.own_step import is_own_step, own_training
from tvm_xengine.session.plans.plan_of_ranks import plan_of_ranks
from tvm_xengine.session.progress import Progress, reporter_of
from tvm_xengine.session.stages.budgets import BudgetLike, budgets_of, check_budget
from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.session.stages.plan import StepPlan, check_plan_is_of
from tvm_xengine.session.stages.plan_options import plan_options
from tvm_xengine.session.stages.problem import StepProblem
from tvm_xengine.session.step import Step
from tvm_xengine.solvers.result import Limits, Objective
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.forward.precision import MixedPrecision
from tvm_xengine.training.optimizer import Optimizer
from tvm_xengine.training.recipe import Recipe

_logger = logging.getLogger(__name__)


@checked
def compile(
    model: ModelLike | Source,
    example_inputs: object = None,
    *,
    loss: LossLike = None,
    optimizer: OptimizerLike = None,
    budget: BudgetLike = None,
    platform: Platform | str | Path | None = None,
    costs: str | Predictor = "active",
    objective: str = "cost",
    solver: str = "auto",
    backend: str | None = None,
    time_limit_s: float = 60.0,
    work_limit: float | None = None,
    lr_schedule: ScheduleLike | None = None,
    progress: Progress | Reporter | None = None,
    cache: str | Path | None = None,
    pin: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
    keep: Sequence[str] = (),
    recompute: Sequence[str] = (),
    replicas: ReplicasLike = None,
    **options: Any,
) -> Step:
    """Compile a training step that fits a memory budget.

    Parameters
    ----------
    model
        A PyTorch module, an exported program, a path (``.onnx``, ``.pt2``), a zoo name, a forward
        model, or a Relax module: one with a function ``main`` that predicts, or with a training
        step that `with_step_signature` has marked.
    example_inputs
        What a PyTorch module is called with: a tensor, a sequence, or a mapping of keywords. Shapes
        and types are those of every batch.
    loss
        A name, an object such as ``CrossEntropy``, or a PyTorch function of outputs and targets;
        None takes the loss that the model returns, or the only one that fits its output.
    optimizer
        A name, an object such as ``SGD(0.01)``, or an optimizer of PyTorch; None is
        ``SGD(0.01, momentum=0.9)``.
    budget
        Bytes of the device (``"512MiB"``), or a mapping by device; a float is a ratio of what
        keep-all takes beyond the state. None does not limit.
    platform
        Devices and links, or a platform file; None is this machine's processor.
    costs
        As in `make_problem`.
    objective, solver, backend
        As in `plan`.
    time_limit_s
        Of planning: search, address layouts, leaner kernels and slices of the batch; compiling and
        measuring kernels do not count. A warning says how far a plan may be from the optimum that was
        stopped by it.
    work_limit
        As in `plan`.
    lr_schedule
        Learning rate by the number of steps taken, or a scheduler of PyTorch, as in `Step`.
    progress
        Called while compiling.
    cache
        File of measurements, with compiled kernels in the same folder; None is the user's cache.
    pin, keep, recompute
        Constraints on the schedule, as in `lower`.
    replicas
        As in `plan`.
    options
        Options of `training_step`.

    Raises
    ------
    XEngineError
        When any stage refuses its input.
    """
    schedule = as_schedule(lr_schedule)
    # What planning would refuse is refused before minutes of lowering.
    plan_options(objective, solver, backend, Limits.of(time_limit_s, 0.0, work_limit), 0)
    check_budget(budget)
    replicas_of(replicas)
    if isinstance(costs, str):
        one_of("costs", CostChoice, costs)
    training = training_step(model, example_inputs, loss=loss, optimizer=optimizer, **options)
    lowered = lower(
        training,
        platform,
        progress=progress,
        cache=cache,
        pin=pin,
        keep=keep,
        recompute=recompute,
    )
    budgets_of(budget, lowered.platform)
    problem = make_problem(lowered, costs=costs).with_budget(budget)
    planned = plan(
        problem,
        time_limit_s=time_limit_s,
        work_limit=work_limit,
        objective=objective,
        solver=solver,
        backend=backend,
        replicas=replicas,
    )
    if said := time_limit_warning(planned.plan.result):
        _logger.warning(said)
    return build(lowered, planned, lr_schedule=schedule)


@checked
def load_model(
    model: ModelLike,
    *,
    seed: int = 0,
    **options: Any,
) -> Source:
    """A model from a path, a zoo name or an exported program, without its final softmax.

    Parameters
    ----------
    model
        As in `compile`.
    seed
        Seed of random weights.
    options
        ``batch_size``, ``size``, ``num_classes`` and ``draw_weights`` of a path or zoo name,
        ``params`` of a Relax module (values of parameters by name, or of the last ones in order;
        the others are inputs), and ``output``, which one of a model with several is trained.
    """
    return load_source(model, seed=seed, **options)


@checked
def training_step(
    model: ModelLike | Source,
    example_inputs: object = None,
    *,
    loss: LossLike = None,
    optimizer: OptimizerLike = None,
    example_targets: object = None,
    train: Sequence[str] | None = None,
    freeze: Sequence[str] = (),
    groups: Mapping[str, Optimizer] | None = None,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    micro_batches: int = 1,
    precision: MixedPrecision | str | None = None,
    frozen: Int8 | None = None,
    seed: int = 0,
    **options: Any,
) -> Training:
    """The training step of a model: loss, gradients and updates in one function.

    Parameters
    ----------
    model, example_inputs, loss, optimizer
        As in `compile`; also what `load_model` returns. A training step of one's own has its own
        loss and optimizer, and of all that follows it takes ``params`` only.
    example_targets
        What the loss compares the outputs with, where it is written in PyTorch: a tensor, or a
        sequence of them. None takes class numbers for losses over classes, and else a tensor
        like the module's output.
    train, freeze
        Patterns of parameters to train, and not to train, by the model's own names.
    groups
        Optimizers of parameters that match a pattern, the first match counts.
    clip_norm, clip_value
        Limits for the norm of all gradients together, and for each element (taken first).
    micro_batches
        Batches of the example's size that one step takes; their gradients are averaged.
    precision
        ``float16`` or ``bfloat16`` for heavy ops.
    frozen
        How frozen layers compute; None is as they are.
    seed
        Seed of dropout and of random weights.
    options
        Options of `load_model`.

    Raises
    ------
    TypeError
        If the kind of model does not take `example_inputs` or one of `options`.
    """
    known = (inspect.signature(function).parameters for function in (compile, training_step))
    check_options(model, example_inputs, options, dict.fromkeys(chain.from_iterable(known)))
    seed = whole_number("seed", seed, 0)
    if isinstance(model, tvm.IRModule) and is_own_step(model):
        own = (loss, optimizer, example_targets, train, *freeze, groups, clip_norm, clip_value)
        if any(one is not None for one in (*own, precision, frozen)) or micro_batches != 1:
            raise TypeError(
                "the module is a training step with its own loss and optimizer, so it takes no option"
                " but params"
            )
        return own_training(model, **options)
    source, wanted = model_and_loss(
        model, example_inputs, loss, example_targets, seed=seed, **options
    )
    wanted_names = None if train is None else patterns("train", train)
    left, lost = limits_of(optimizer, model, loss, source.training)
    forward = source.training.with_trained(wanted_names, (*patterns("freeze", freeze), *left))
    forward = replace(forward, notes=(*forward.notes, *lost))
    source = replace(source, training=forward)
    if frozen is not None:
        source = with_frozen_int8(source, frozen)
        forward = source.training
    chosen, torch_groups = chosen_optimizer(optimizer, model, loss, forward)
    recipe = Recipe(
        loss=wanted,
        optimizer=chosen,
        groups=(*groups_by_pattern(groups or {}, forward), *torch_groups),
        max_gradient_value=limit("clip_value", clip_value),
        max_gradient_norm=limit("clip_norm", clip_norm),
        micro_batches=whole_number("micro_batches", micro_batches, 1),
        precision=MixedPrecision(precision) if isinstance(precision, str) else precision,
    )
    return Training(source, recipe, build_step_by_recipe(forward, recipe, seed=seed))


@checked
def with_recipe(training: Training, *, seed: int = 0, **changes: Any) -> Training:
    """The training step of the same model after a recipe in which fields are changed.

    Parameters
    ----------
    seed
        As in `training_step`.
    changes
        Fields of the `Recipe`, such as ``residuals_apart``.
    """
    recipe = replace(training.known_recipe, **changes)
    step = build_step_by_recipe(training.source.training, recipe, seed=seed)
    return Training(training.source, recipe, step)


@checked
def lower(
    training: Training,
    platform: Platform | str | Path | None = None,
    *,
    progress: Progress | Reporter | None = None,
    cache: str | Path | None = None,
    tuned: str | Path | None = None,
    pin: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
    keep: Sequence[str] = (),
    recompute: Sequence[str] = (),
) -> Lowered:
    """The training step as kernel calls, each prepared for each device of a platform.

    Parameters
    ----------
    training
        Loss, gradients and updates in one function.
    platform, progress
        As in `compile`.
    cache
        File of measurements, with compiled kernels in the same folder; None is the user's cache.
    tuned
        Folder of tuned schedules for generated kernels.
    pin
        Patterns of ops, and the only device on which these may run. A pattern matches an op by
        its name, or by the name of a parameter that it reads, so ``fc1.*`` is a layer.
    keep
        Patterns of ops that are not recomputed.
    recompute
        Patterns of ops whose results are dropped before the loss, and computed again after it.

    Raises
    ------
    InvalidProblemError
        If a pattern matches nothing that it can be used for.
    """
    stores = Stores.open(
        CompileOptions(
            measurements=None if cache is None else Path(cache),
            tuned=None if tuned is None else Path(tuned),
        )
    )
    reporter = reporter_of(progress)
    devices, ranks = devices_of_run(_platform(platform), stores.measurements)
    on_progress = reporter.stage("lowering kernels")
    constraints = ConstraintPatterns(
        pin=pins(pin),
        keep=patterns("keep", keep),
        recompute=patterns("recompute", recompute),
        model_names={role.variable: role.names for role in training.roles},
    )
    step = lower_step(
        training.step.mod, devices, on_progress, tuned=stores.tuned, constraints=constraints
    )
    return Lowered(training, replace(step, ranks=ranks), stores, reporter)


@checked
def make_problem(lowered: Lowered, costs: str | Predictor = "active") -> StepProblem:
    """The scheduling problem of a lowered step, with the costs of its kernels.

    Parameters
    ----------
    lowered
        Step to schedule.
    costs
        ``measured`` times every kernel, ``predicted`` asks the cost model, ``active`` times those
        that matter for the plan, ``roofline`` divides work by the rates of the device. Or a cost
        model of your own that has learned: an object with ``predict(table)``.

    Raises
    ------
    ValueError
        If `costs` is another name.
    TypeError
        If it is neither a name nor a cost model.
    InvalidDatasetError
        If the cost model does not predict a time for each kernel.
    """
    if isinstance(costs, str):
        choice: CostChoice | Predictor = one_of("costs", CostChoice, costs)
    elif callable(getattr(costs, "predict", None)):
        choice = costs
    else:
        raise TypeError(
            f"expected a name or an object with predict(table) for costs, got {costs!r}"
        )
    ranks = lowered.step.ranks
    if ranks is not None and not ranks.leads:
        choice = CostChoice.ROOFLINE  # the first process plans, so its costs count
    with nullcontext() if ranks is None else ranks.failing_together():
        costed = cost_step(lowered.step, choice, lowered.stores, lowered.reporter)
    return StepProblem(lowered, costed)


@checked
def plan(
    problem: StepProblem,
    *,
    time_limit_s: float = 60.0,
    gap_ratio: float = 0.01,
    objective: str = "cost",
    solver: str = "auto",
    backend: str | None = None,
    seed: int = 0,
    replicas: ReplicasLike = None,
    work_limit: float | None = None,
) -> StepPlan:
    """The best schedule that is found for a problem, with addresses within its budgets.

    Parameters
    ----------
    problem
        Has the budgets.
    time_limit_s, gap_ratio
        The solver stops after that time, or when the proven gap is at most that.
    objective
        ``cost``, the sum of all times; ``makespan``, the end of the last step when devices and links
        run side by side, as the step then does; or ``energy``.
    solver, backend
        As in `tvm_xengine.solvers.solve.solve`.
    seed
        Seed of the search.
    replicas
        Number of devices that compute shares of the batch side by side and add their gradients;
        ``"auto"`` takes all devices if that is faster, a mapping gives the samples of each. The
        objective is the makespan then. None leaves the batch whole.
    work_limit
        In place of the time limit: units of work, each about a second of one core, that are counted by what
        the solver does. The plan is then the same in every run, however busy the machine is, if the costs are
        the same; finding it takes longer, because one thread does all.

    Raises
    ------
    NoScheduleError
        If none fits the budgets; the message says which ones work.
    """
    limits = Limits.of(time_limit_s, gap_ratio, work_limit)
    wanted = replicas_of(replicas)
    if wanted is not None and objective == Objective.COST.value:
        objective = Objective.MAKESPAN.value
    options = plan_options(objective, solver, backend, limits, seed)
    lowered = problem.lowered

    def make() -> StepPlan:
        if wanted is None:
            planned = plan_costed(problem.costed, options, lowered.stores, lowered.reporter)
        else:
            planned = plan_replicas(
                problem.costed, wanted, options, lowered.stores, lowered.reporter
            )
        return StepPlan(lowered, planned)

    return plan_of_ranks(lowered, make)


@checked
def build(lowered: Lowered, plan: StepPlan, *, lr_schedule: ScheduleLike | None = None) -> Step:
    """The step that executes a plan: kernels compiled, arenas allocated.

    Parameters
    ----------
    lowered
        What was planned.
    plan
        Its schedule and addresses, made here or loaded from a file.
    lr_schedule
        As in `Step`.

    Raises
    ------
    InvalidScheduleError
        If the plan is of another step.
    """
    check_plan_is_of(plan, lowered)
    return Step(replace(plan, lowered=lowered), lr_schedule=lr_schedule)


@checked
def estimate(
    model: ModelLike,
    example_inputs: object = None,
    *,
    platform: Platform | str | Path | None = None,
    cache: str | Path | None = None,
    **options: Any,
) -> Estimate:
    """Memory of a training step by category, and the smallest budget known, running nothing.

    Budgets of the platform's computing devices do not count.

    Parameters
    ----------
    model, example_inputs, platform, cache
        As in `compile`.
    options
        Options of `training_step`.
    """
    lowered = _lowered_without_budgets(model, example_inputs, platform, cache, options)
    size = lowered.training.source.training.batch_size

    def of_batch(count: int) -> Estimate:
        if is_module(model):
            inputs = with_batch(example_inputs, size, count)
            targets = with_batch(options.get("example_targets"), size, count)
            other = {**options, "example_targets": targets}
        else:
            inputs, other = None, {**options, "batch_size": count}
        made = _lowered_without_budgets(model, inputs, platform, cache, other)
        return estimate_lowered(made, in_slices=False)

    return estimate_lowered(lowered, of_batch if _can_change_batch(model) else None)


def _lowered_without_budgets(
    model: ModelLike,
    example_inputs: object,
    platform: Platform | str | Path | None,
    cache: str | Path | None,
    options: Mapping[str, Any],
) -> Lowered:
    """The training step of a model, lowered for one device that computes, without a budget."""
    training = training_step(model, example_inputs, **options)
    every = _platform(platform)
    home = next((one for one in every.computing if one.name == every.home), every.computing[0])
    others = {device.name for device in every.computing if device is not home}
    alone = every.only(device.name for device in every.devices if device.name not in others)
    alone = replace(alone, home=home.name).with_budgets({home.name: UNLIMITED_BYTES})
    return lower(training, alone, cache=cache)


def _can_change_batch(model: object) -> bool:
    """Whether a model can be made for another batch size."""
    is_path = isinstance(model, str | Path)
    return is_module(model) or (is_path and Path(str(model)).suffix.lower() != ".pt2")


def processor() -> Platform:
    """This machine's processor with all its cores, as the only device."""
    return Platform(devices=default_platform().devices[:1])


def _platform(platform: Platform | str | Path | None) -> Platform:
    if platform is None:
        return processor()
    return platform if isinstance(platform, Platform) else Platform.load(platform)
