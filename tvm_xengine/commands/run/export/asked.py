"""What the options of an export ask for: the training step, its memory, its constraints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tvm_xengine import api
from tvm_xengine.aot.entries import USUAL, Entry
from tvm_xengine.aot.package.layout import CMAKE
from tvm_xengine.aot.plan.kernels import Optimize
from tvm_xengine.aot.plan.plan_step import Wishes
from tvm_xengine.aot.plan.regions import FLASH, Region, parse_regions, platform_regions
from tvm_xengine.aot.vm_library.export import linker_of
from tvm_xengine.commands import app
from tvm_xengine.commands.arguments.export_options import RegionOptions, TargetOptions
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.commands.run.solve import planner_options
from tvm_xengine.commands.run.steps import (
    loaded,
    plain_training,
    training_from,
)
from tvm_xengine.compiler.constraint_patterns import ConstraintPatterns
from tvm_xengine.compiler.lean.short_storage import ShortStorage
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.frontends.evaluation_mode import in_evaluation_mode
from tvm_xengine.model.training import Training
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.platform_file import platform_path, read_platform
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.result import Objective
from tvm_xengine.training.typed_labels import TypedLabels

DEFAULT_REGION = "sram"


def check_library(options: app.ExportOptions, entries: tuple[Entry, ...]) -> None:
    """Refuse what a library for TVM's virtual machine does not have."""
    wanted = options.target
    if entries != USUAL:
        raise UsageError("--format tvm has train_step and eval; it takes no --entry")
    if wanted.layout != CMAKE.name:
        raise UsageError("--format tvm is a library of its own; it takes no --layout")
    if planner_options(options.solver, 0).objective is Objective.MAKESPAN:
        raise UsageError(
            "--format tvm runs one call or copy after another, so that a step ends after the sum of all"
            " times: take --objective cost"
        )
    linker_of(wanted.target)


def training_asked_for(model: str, options: app.ExportOptions) -> Training:
    """The training step; patterns of --train-only name what is trained, as --train does."""
    patterns = (*options.step.parameters.train, *options.regions.train_only)
    step = replace(options.step, parameters=replace(options.step.parameters, train=patterns))
    source = loaded(model, step.model)
    if options.target.eval_mode:
        source = replace(source, training=in_evaluation_mode(source.training))
    chooses = options.layers.train_scores is not None  # what is frozen is not known yet
    made = plain_training if chooses else training_from
    training = made(source, step, optimizer="sgd")
    changes: dict[str, object] = {}
    if options.target.label_type != "int64":
        loss = training.known_recipe.loss
        changes["loss"] = TypedLabels(loss, options.target.label_type)
    if Optimize(options.target.optimize) is Optimize.SIZE:
        changes["residuals_apart"] = True
    if options.target.rounding != "nearest":
        changes["draws_in_updates"] = True
    return api.with_recipe(training, seed=step.model.seed, **changes) if changes else training


def wishes_of(options: app.ExportOptions, training: Training, schedule: Schedule | None) -> Wishes:
    """The constraints that options give, or the schedule itself."""
    wanted = options.constraints
    constraints = ConstraintPatterns(
        pin=tuple(wanted.pin),
        keep=wanted.keep,
        recompute=wanted.recompute,
        model_names={role.variable: role.names for role in training.roles},
    )
    return Wishes(constraints, schedule, str(options.schedule.schedule))


def storage_of(wanted: TargetOptions) -> ShortStorage | None:
    """What `--float16` or `--bfloat16` says."""
    by_type = {"float16": wanted.float16, "bfloat16": wanted.bfloat16}
    chosen = [(dtype, what) for dtype, what in by_type.items() if what != "none"]
    if len(chosen) > 1:
        raise UsageError("give --float16 or --bfloat16, not both")
    if wanted.rounding != "nearest" and "all" not in by_type.values():
        raise UsageError(
            f"--rounding {wanted.rounding} is for parameters that are stored short: give --float16 all"
        )
    if not chosen:
        return None
    ((dtype, what),) = chosen
    return ShortStorage(parameters=what == "all", dtype=dtype, rounding=wanted.rounding)


def library_memory(wanted: TargetOptions, regions: RegionOptions) -> tuple[Region, ...]:
    """Memory of a library for TVM's virtual machine."""
    if regions.regions or regions.platform or wanted.check or storage_of(wanted):
        raise InvalidPlatformError(
            "--format tvm has one memory: it takes --arena-bytes, and no --regions, --platform,"
            " --float16, --bfloat16 or --check"
        )
    if regions.arena_bytes is None:
        raise InvalidPlatformError("say how much memory there is, e.g. --arena-bytes 64MiB")
    return (Region("memory", regions.arena_bytes),)


def platform_of(options: RegionOptions) -> Platform | None:
    path = options.platform
    return None if path is None else read_platform(platform_path(Path(path)))


def regions_of(wanted: RegionOptions, platform: Platform | None) -> tuple[Region, ...]:
    """What `--regions`, `--platform` and `--arena-bytes` say together."""
    if platform is not None:
        if wanted.regions is not None:
            raise InvalidPlatformError("give --regions or --platform, not both")
        regions = platform_regions(platform)
    elif wanted.regions is not None:
        regions = parse_regions(wanted.regions)
    elif wanted.arena_bytes is not None:
        return (Region(DEFAULT_REGION, wanted.arena_bytes),)
    else:
        raise InvalidPlatformError(
            "say how much memory there is: --arena-bytes 192KiB, or --regions sram=192KiB,psram=4MiB"
        )
    if wanted.arena_bytes is None:
        return regions
    first = next(position for position, r in enumerate(regions) if r.name != FLASH)
    size = min(regions[first].size_bytes, wanted.arena_bytes)
    return (*regions[:first], replace(regions[first], size_bytes=size), *regions[first + 1 :])
