"""From command-line options to the stages of the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from tvm_xengine import api
from tvm_xengine.commands.arguments.options import (
    BudgetOptions,
    ModelOptions,
    PlatformOptions,
    SolverOptions,
)
from tvm_xengine.commands.arguments.step_options import MachineOptions, StepOptions
from tvm_xengine.commands.arguments.training_options import (
    FrozenOptions,
    LossOptions,
    OptimizerOptions,
)
from tvm_xengine.commands.arguments.usage import UsageError, refusing_values
from tvm_xengine.commands.run.solve import planner_options
from tvm_xengine.compiler.options import Budgets
from tvm_xengine.compiler.reporter import Reporter
from tvm_xengine.model.int8 import Int8
from tvm_xengine.model.losses import parsed_loss
from tvm_xengine.model.source import Source
from tvm_xengine.model.training import Training
from tvm_xengine.scheduling.default_platform import default_platform
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.platform_file import read_platform
from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.session.stages.problem import StepProblem
from tvm_xengine.session.training_data import training_data
from tvm_xengine.training.model_loss import ModelLoss
from tvm_xengine.training.optimizer import Optimizer
from tvm_xengine.training.optimizers import optimizer_called

_SAMPLES = 128
"""Samples that scales are calibrated on: TensorFlow Lite's guide takes 100 to 500."""


def loaded(model: str, options: ModelOptions) -> Source:
    """The model that a command names."""
    return api.load_model(model, **model_arguments(options))


def model_arguments(options: ModelOptions) -> dict[str, Any]:
    """The same as keywords of `api.load_model`."""
    return {
        "batch_size": options.batch,
        "size": options.size,
        "num_classes": options.classes,
        "draw_weights": options.draw_weights,
        "output": options.output_index,
        "seed": options.seed,
    }


def training_of(model: str, options: StepOptions, *, optimizer: str = "momentum") -> Training:
    """The training step that options describe.

    Parameters
    ----------
    optimizer
        Where the options name none.
    """
    return training_from(loaded(model, options.model), options, optimizer=optimizer)


def training_from(source: Source, options: StepOptions, *, optimizer: str) -> Training:
    """The same for a model that is loaded."""
    has_scales = options.frozen.frozen == "int8" and options.frozen.calibration is None
    plain = None if has_scales else plain_training(source, options, optimizer=optimizer)
    int8 = frozen_int8(plain, options.frozen)
    if int8 is None:
        assert plain is not None
        return plain
    arguments = training_arguments(options, optimizer=optimizer)
    return api.training_step(source, seed=options.model.seed, frozen=int8, **arguments)


def plain_training(source: Source, options: StepOptions, *, optimizer: str) -> Training:
    """The same with frozen layers as they are."""
    arguments = training_arguments(options, optimizer=optimizer)
    return api.training_step(source, seed=options.model.seed, **arguments)


def frozen_int8(plain: Training | None, options: FrozenOptions) -> Int8 | None:
    """How frozen layers compute, on samples as the training step reads them; None for as they are.

    Parameters
    ----------
    plain
        None where the model has scales, so that no samples are read.
    """
    if options.frozen != "int8":
        if options.calibration is not None:
            raise UsageError("--calibration is for --frozen int8")
        if options.int8_behind:
            raise UsageError("--int8-behind is for --frozen int8")
        return None
    samples = None
    if options.calibration is not None and plain is not None:
        data = training_data(plain, options.calibration)
        samples = {name: data.train[name][:_SAMPLES] for name in plain.source.inputs}
    with refusing_values():
        return Int8(samples, options.percentile, options.int8_behind)


def training_arguments(options: StepOptions, *, optimizer: str = "momentum") -> dict[str, Any]:
    """The same as keywords of `api.training_step`, without the model's."""
    parameters = options.parameters
    with refusing_values():
        chosen = chosen_optimizer(options.optimizer, optimizer)
    return {
        "loss": parsed_loss_of(options.loss),
        "optimizer": chosen,
        "train": parameters.train or None,
        "freeze": parameters.freeze,
        "clip_norm": parameters.clip_norm,
        "clip_value": parameters.clip_value,
        "micro_batches": parameters.micro_batches,
        "precision": parameters.precision,
    }


def parsed_loss_of(options: LossOptions) -> Any:
    """The loss that options name; None where they name none."""
    with refusing_values():
        return None if options.loss is None else parsed_loss(options.loss)


def chosen_optimizer(options: OptimizerOptions, default: str) -> Optimizer:
    """The optimizer with the options that were given.

    Raises
    ------
    ValueError
        If it has no such option, or refuses its value.
    """
    name = options.optimizer or default
    optimizer = optimizer_called(name)
    known = [one.name for one in fields(optimizer)]  # type: ignore[arg-type]
    given: dict[str, Any] = {
        one.name: value
        for one in fields(options)
        if one.name != "optimizer" and (value := getattr(options, one.name)) not in (None, False)
    }
    for option in given:
        if option not in known:
            offered = ", ".join(
                f"--{one.replace('_', '-')}" for one in known if hasattr(options, one)
            )
            raise ValueError(
                f"--{option.replace('_', '-')} is no option of {name}, which takes {offered}"
            )
    return replace(optimizer, **given)  # type: ignore[type-var]


def platform_of(options: PlatformOptions) -> Platform:
    """The platform of a file, or the two CPU devices of this machine."""
    return default_platform() if options.platform is None else read_platform(options.platform)


def lowered_on(
    platform: Platform, training: Training, options: MachineOptions, reporter: Reporter
) -> Lowered:
    """The training step as kernels for a platform."""
    constraints = options.constraints
    return api.lower(
        training,
        platform,
        progress=reporter,
        cache=options.cache.cache,
        tuned=options.cache.database,
        pin=constraints.pin,
        keep=constraints.keep,
        recompute=constraints.recompute,
    )


def budgets_in(options: BudgetOptions) -> Budgets:
    """The budgets that options give."""
    return Budgets(options.budget_ratio, dict(options.budget))


def with_budgets(problem: StepProblem, budgets: Budgets) -> StepProblem:
    """The problem of a step under budgets."""
    return replace(problem, costed=problem.costed.with_budgets(budgets))


def solver_arguments(options: SolverOptions, seed: int) -> Mapping[str, Any]:
    """The same as keywords of `api.plan`."""
    planner_options(options, seed)  # refuses a solver that does not work with the backend
    return {
        "time_limit_s": options.time_limit,
        "work_limit": options.work_limit,
        "gap_ratio": options.gap,
        "objective": options.objective,
        "solver": options.solver,
        "backend": options.backend,
        "seed": seed,
    }


def loss_named(training: Training, options: StepOptions) -> str:
    """A sentence that names the loss, and says where it comes from."""
    if options.loss.loss is not None:
        return f"loss: {options.loss.loss}"
    if isinstance(training.known_recipe.loss, ModelLoss):
        return f"loss: {training.loss_name}, a scalar"
    return f"loss: {training.loss_name}, the only one that the model's output can mean; --loss names another"
