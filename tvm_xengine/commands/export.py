"""``tvm-xengine export``: the training step as plain C for a small machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from tvm_xengine.aot.check.emulation import build_program, run_program, selftest_build
from tvm_xengine.aot.export import ExportOptions, ExportReport, export_step
from tvm_xengine.aot.plan.kernels import Backend, Optimize
from tvm_xengine.aot.plan.regions import FLASH, Region, parse_regions, platform_regions
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.aot.vm_library.export import LibraryOptions, export_library
from tvm_xengine.commands.export_options import ExportRequest
from tvm_xengine.commands.options import Request
from tvm_xengine.commands.prepare import requested_model
from tvm_xengine.commands.progress import show_progress
from tvm_xengine.compile.short_storage import ShortStorage
from tvm_xengine.errors import ExportError, InvalidPlatformError, UnsupportedModelError
from tvm_xengine.files.write_directory import check_free
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.platform_file import platform_path, read_platform
from tvm_xengine.solvers.result import Objective
from tvm_xengine.training.build import build_step_by_recipe
from tvm_xengine.training.optimizers import SGD, Adam, Optimizer
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.step import TrainingStep

_OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": SGD(),
    "momentum": SGD(momentum=0.9),
    "adam": Adam(),
}

_STORAGE: dict[str, ShortStorage | None] = {
    "none": None,
    "activations": ShortStorage(),
    "all": ShortStorage(parameters=True),
}

_MEANING = {
    Objective.COST: "time",
    Objective.MAKESPAN: "end of the last step",
    Objective.ENERGY: "energy",
}

DEFAULT_REGION = "sram"


def run_export(request: Request, console: Console) -> None:
    """Plan for the regions, write the package, and on demand run its self-test."""
    wanted = request.export
    assert wanted is not None
    if wanted.form == "tvm":
        _run_export_library(request, wanted, console)
        return
    target = embedded_target(wanted.target)
    check_free(wanted.directory, force=wanted.force)
    if wanted.check:
        target.find_compiler()
    platform = None if wanted.platform is None else read_platform(platform_path(wanted.platform))
    options = ExportOptions(
        target=wanted.target,
        regions=_regions(wanted, platform),
        backend=Backend(wanted.backend),
        optimize=Optimize(wanted.optimize),
        plan=request.plan,
        learning_rate=wanted.learning_rate,
        platform=platform,
        storage=_STORAGE[wanted.float16],
    )
    model, training = _training(request, wanted)
    with show_progress(console) as reporter:
        report = export_step(
            model,
            training,
            options,
            wanted.directory,
            force=wanted.force,
            on_progress=reporter.status,
        )
    _print(report, console)
    if wanted.check:
        _check(report, console)


def _run_export_library(request: Request, wanted: ExportRequest, console: Console) -> None:
    """Write a library for TVM's virtual machine."""
    if wanted.regions or wanted.platform or wanted.check or wanted.float16 != "none":
        raise InvalidPlatformError(
            "--format tvm has one memory: it takes --arena-bytes, and no --regions, --platform,"
            " --float16 or --check"
        )
    if wanted.arena_bytes is None:
        raise InvalidPlatformError("say how much memory there is, e.g. --arena-bytes 64MiB")
    check_free(wanted.directory, force=wanted.force)
    embedded_target(wanted.target).find_compiler()
    options = LibraryOptions(
        target=wanted.target,
        arena_bytes=wanted.arena_bytes,
        optimize=Optimize(wanted.optimize),
        plan=request.plan,
        learning_rate=wanted.learning_rate,
    )
    model, training = _training(request, wanted)
    with show_progress(console) as reporter:
        report = export_library(
            model,
            training,
            options,
            wanted.directory,
            force=wanted.force,
            on_progress=reporter.status,
        )
    library = report.library
    console.print(
        f"{library.name} for TVM's virtual machine on {library.target}: arena {library.arena_bytes}"
        f" bytes, of these state {library.state_bytes}; keeping everything takes"
        f" {report.keep_all_bytes}; written to {report.directory}"
    )


def _training(request: Request, wanted: ExportRequest) -> tuple[ForwardModel, TrainingStep]:
    model = requested_model(request.model)
    recipe = Recipe(
        optimizer=_OPTIMIZERS[wanted.optimizer],
        residuals_apart=Optimize(wanted.optimize) is Optimize.SIZE,
    )
    trainable = _trainable(model, wanted.train_only)
    training = build_step_by_recipe(model, recipe, trainable=trainable, seed=request.model.seed)
    return model, training


def _regions(wanted: ExportRequest, platform: Platform | None) -> tuple[Region, ...]:
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


def _trainable(model: ForwardModel, patterns: Sequence[str]) -> list[str] | None:
    if not patterns:
        return None
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in model.parameters):
            raise UnsupportedModelError(
                f"--train-only {pattern} matches none of the parameters"
                f" {', '.join(model.parameters)}"
            )
    return [name for name in model.parameters if any(fnmatchcase(name, p) for p in patterns)]


def _print(report: ExportReport, console: Console) -> None:
    package, plan = report.package, report.training.function.plan
    table = Table(title=f"{package.name} for {package.target.name}", title_justify="left")
    for column in ("region", "bytes", "of these state", "budget"):
        table.add_column(column, justify="left" if column == "region" else "right")
    for name, size in package.regions.items():
        budget = plan.problem.platform.device(name).budget_bytes
        table.add_row(name, f"{size}", f"{package.kept_bytes[name]}", f"{budget}")
    console.print(table)
    schedule = plan.schedule
    if plan.simulation.energy_uj:
        console.print(f"estimated energy of a step: {plan.simulation.energy_uj:.6g} uJ")
    console.print(
        f"{plan.result.status.value}, gap {plan.result.gap:.1%} of estimated"
        f" {_MEANING[plan.result.objective]};"
        f" {schedule.recomputed_ops} ops recomputed, {schedule.transfers} copies between regions;"
        f" keeping everything takes {report.keep_all_bytes} bytes"
    )
    if package.storage_error is not None:
        console.print(
            f"float16 storage changes a loss of the self-test by at most {package.storage_error:.1e}"
            " (of one plus its size)"
        )
    if report.code is not None:
        stack = "" if report.code.stack_bytes is None else f", stack {report.code.stack_bytes}"
        console.print(f"code {report.code.text_bytes} bytes{stack}")
    console.print(f"written to {report.directory}")


def _check(report: ExportReport, console: Console) -> None:
    directory, package = report.directory, report.package
    with TemporaryDirectory() as folder:
        program = Path(folder) / f"{package.name}_selftest"
        build_program(directory, package, selftest_build(directory, package), program)
        done = run_program(program, package.target)
    if done.returncode:
        raise ExportError(
            f"the self-test of {directory} failed with code {done.returncode}; its first lines say"
            f" what that means. {done.stderr.strip()}"
        )
    console.print(f"self-test passed: {len(report.expected.losses)} steps on {package.target.name}")
