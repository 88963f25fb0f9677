"""From a model to a directory with its training step as C."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import tvm

from tvm_xengine.aot.c_names import c_identifier
from tvm_xengine.aot.check.batches import batch_inputs
from tvm_xengine.aot.check.reference import Expected, Trial, expected_results
from tvm_xengine.aot.check.selftest import selftest_source
from tvm_xengine.aot.emit_c.driver import driver_source
from tvm_xengine.aot.emit_c.expressions import Names
from tvm_xengine.aot.emit_c.header import header_source
from tvm_xengine.aot.emit_c.kernel import c_kernel
from tvm_xengine.aot.emit_c.llvm_object import object_prototype, write_object
from tvm_xengine.aot.emit_c.project_files import (
    cmake_lists,
    library_sources,
    make_fragment,
    readme,
)
from tvm_xengine.aot.emit_c.sources import data_source, kernels_header, kernels_source
from tvm_xengine.aot.package.code_size import CodeSize, measure_code
from tvm_xengine.aot.package.contents import (
    KernelCode,
    Package,
    StateTensor,
    arguments_of,
    inputs_of,
)
from tvm_xengine.aot.package.names import package_name
from tvm_xengine.aot.package.plan_document import as_json, plan_document
from tvm_xengine.aot.plan.kernels import Backend, Optimize, code_target
from tvm_xengine.aot.plan.plan_step import (
    PlannedFunction,
    PlannedTraining,
    plan_evaluation,
    plan_training,
)
from tvm_xengine.aot.plan.region_problem import Machine
from tvm_xengine.aot.plan.regions import FLASH, Region, regions_platform, writable_platform
from tvm_xengine.aot.targets import EmbeddedTarget, embedded_target
from tvm_xengine.compiler.energy import check_energy
from tvm_xengine.compiler.short_storage import ShortStorage, with_short_storage
from tvm_xengine.errors import InvalidPlatformError, NoScheduleError
from tvm_xengine.files.write_directory import check_free, write_directory, write_file
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.program.step_program import KernelRun
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.training.step import TrainingStep

OnProgress = Callable[[str], None]

_ALIGNMENT_BYTES = {Backend.C: 8, Backend.LLVM: 64}
"""LLVM may use aligned vector loads."""


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes
    ----------
    regions
        Memory of the processor, fastest first; ``flash`` bounds constants and initial state.
    learning_rate
        Initial learning rate.
    selftest_steps
        Steps of the self-test.
    platform
        The regions once more as devices, with links and energy; None takes usual links.
    storage
        What is stored in a short type; None stores everything as it is computed.
    """

    target: str
    regions: tuple[Region, ...]
    backend: Backend = Backend.C
    optimize: Optimize = Optimize.SPEED
    plan: PlanOptions = field(default_factory=PlanOptions)
    learning_rate: float = 0.01
    selftest_steps: int = 20
    platform: Platform | None = None
    storage: ShortStorage | None = None


@dataclass(frozen=True)
class ExportReport:
    """Report of an export.

    Attributes
    ----------
    keep_all_bytes
        Size of the first region's arena if all tensors were kept there.
    code
        None when the target's compiler is not installed.
    """

    directory: Path
    package: Package
    training: PlannedTraining
    evaluation: PlannedFunction
    keep_all_bytes: int
    code: CodeSize | None
    expected: Expected


def export_step(
    model: ForwardModel,
    training: TrainingStep,
    options: ExportOptions,
    directory: Path,
    *,
    force: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> ExportReport:
    """Write the training step of `model` as C into a new directory.

    Parameters
    ----------
    training
        Made from `model`.
    directory
        Written whole or not at all; replaced only if `force`.

    Raises
    ------
    ExportError
        If the directory exists.
    InvalidPlatformError
        If the target is unknown.
    NoScheduleError
        If the regions are too small; it says what each one needs at least.
    UnsupportedModuleError
        If something cannot be emitted; it is named.
    """
    check_free(directory, force=force)
    target = embedded_target(options.target)
    code = code_target(target, options.backend)
    alignment = _ALIGNMENT_BYTES[options.backend]
    machine = _machine(target, options, code, alignment)
    on_progress("planning the training step")
    storage = options.storage
    stored = training if storage is None else with_short_storage(training, storage)
    train = plan_training(stored, machine, options.optimize, options.plan, on_progress)
    on_progress("planning the evaluation")
    evaluate = plan_evaluation(model, train, machine, options.optimize, options.plan, storage)
    package = _package(model, stored, train, evaluate, machine, options)
    _check_flash(package, options.regions)
    on_progress("computing the expected losses")
    (output,) = package.evaluate.interface.results.values()
    inputs = batch_inputs(inputs_of(package.train), output, inputs_of(package.evaluate))
    trial = Trial(inputs, package.hyper, options.selftest_steps)
    expected = expected_results(model, training, trial, options.optimize, storage)
    package = replace(package, storage_error=expected.storage_error)
    report: list[CodeSize | None] = []

    def write(folder: Path) -> None:
        on_progress("writing")
        _write_sources(folder, package, machine)
        measured = measure_code(folder, library_sources(package)[:2], target, options.optimize)
        report.append(measured)
        write_file(folder / f"{package.name}.h", header_source(package, measured))
        keep = train.keep_all_bytes
        document = plan_document(package, train.function, evaluate, keep, measured)
        write_file(folder / f"{package.name}_plan.json", as_json(document))
        write_file(folder / "README.md", readme(package, keep, measured))
        selftest = selftest_source(package, inputs, expected)
        write_file(folder / f"{package.name}_selftest.c", selftest)

    write_directory(directory, write, force=force)
    return ExportReport(
        directory, package, train, evaluate, train.keep_all_bytes, report[0], expected
    )


def _machine(
    target: EmbeddedTarget, options: ExportOptions, code: tvm.target.Target, alignment_bytes: int
) -> Machine:
    if options.platform is None:
        platform = regions_platform(options.regions, alignment_bytes)
    else:
        platform = writable_platform(options.platform, alignment_bytes)
    check_energy(platform, options.plan.objective)
    bandwidth = {
        region.name: region.bandwidth_gb_s
        for region in options.regions
        if region.bandwidth_gb_s is not None and region.name != platform.home
    }
    return Machine(target, platform, bandwidth, code)


def _write_sources(folder: Path, package: Package, machine: Machine) -> None:
    name = package.name
    files = {
        f"{name}.h": header_source(package, None),
        f"{name}.c": driver_source(package),
        f"{name}_kernels.h": kernels_header(package),
        f"{name}_data.c": data_source(package),
        "CMakeLists.txt": cmake_lists(package),
        f"{name}.mk": make_fragment(package),
    }
    if package.backend is Backend.C:
        files[f"{name}_kernels.c"] = kernels_source(package)
    else:
        named = {package.codes[symbol].name: k for symbol, k in package.kernels.items()}
        write_object(named, machine.code, folder / f"{name}_kernels.o")
    for path, text in files.items():
        write_file(folder / path, text)


def _package(
    model: ForwardModel,
    training: TrainingStep,
    train: PlannedTraining,
    evaluate: PlannedFunction,
    machine: Machine,
    options: ExportOptions,
) -> Package:
    name = package_name(model.name)
    functions = (train.function, evaluate)
    kernels = _used_kernels(functions)
    used = {
        region: max(f.program.interface.arena_bytes[region] for f in functions)
        for region in machine.platform.index
    }
    used = {region: size for region, size in used.items() if size}
    state = [
        StateTensor(tensor, place, np.asarray(training.initial_state[tensor]))
        for tensor, place in train.state.items()
    ]
    _check_names(used, functions)
    return Package(
        name=name,
        target=machine.target,
        backend=options.backend,
        optimize=options.optimize,
        alignment_bytes=machine.platform.alignment_bytes,
        regions=used,
        kept_bytes={region: train.state_end_bytes[region] for region in used},
        train=train.function.program,
        evaluate=evaluate.program,
        state=tuple(state),
        hyper=dict.fromkeys(training.hyper_names, options.learning_rate),
        constants={**evaluate.constants, **train.function.constants},
        kernels=kernels,
        codes=_codes(name, kernels, options.backend),
    )


def _check_names(regions: Collection[str], functions: tuple[PlannedFunction, ...]) -> None:
    """Check that no argument is named like a region: both are variables of one C function."""
    for function in functions:
        results = (c_identifier(name) for name in function.program.interface.results)
        names = {*results, *(view.name for view in arguments_of(function.program))}
        if taken := sorted(names & set(regions)):
            raise InvalidPlatformError(
                f"the model has inputs or results named {taken}, as regions are; rename the regions"
            )


def _used_kernels(functions: tuple[PlannedFunction, ...]) -> dict[str, DeviceKernel]:
    used: dict[str, DeviceKernel] = {}
    for function in functions:
        called = {c.symbol for c in function.program.calls if isinstance(c, KernelRun)}
        for kernel in function.lowered.kernels.values():
            if kernel.symbol in called:
                used.setdefault(kernel.symbol, kernel)
    return used


def _codes(
    prefix: str, kernels: Mapping[str, DeviceKernel], backend: Backend
) -> dict[str, KernelCode]:
    names = Names()
    codes = {}
    for symbol, kernel in kernels.items():
        name = names.fresh(f"{prefix}_{kernel.name}")
        if backend is Backend.C:
            text = c_kernel(kernel, name)
            codes[symbol] = KernelCode(
                name, text.prototype, text.arguments, text.source, text.helpers
            )
        else:
            count = len(kernel.inputs) + len(kernel.outputs) + (kernel.workspace_bytes > 0)
            prototype = object_prototype(kernel, name)
            codes[symbol] = KernelCode(name, prototype, tuple(range(count)))
    return codes


def _check_flash(package: Package, regions: tuple[Region, ...]) -> None:
    needed = package.flash_bytes + sum(
        tensor.place.size_bytes for tensor in package.state if tensor.initial.any()
    )
    for region in regions:
        if region.name == FLASH and needed > region.size_bytes:
            raise NoScheduleError(
                f"constants and initial state take {needed} bytes of flash, more than the"
                f" {region.size_bytes} of the region {FLASH}"
            )
