"""From a model to a directory with its training step as C."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from tvm_xengine.aot.c_names import c_identifier
from tvm_xengine.aot.check.reference import Expected
from tvm_xengine.aot.check.selftest import selftest_source
from tvm_xengine.aot.emit_c.build_systems.choose import build_files
from tvm_xengine.aot.emit_c.driver import driver_source
from tvm_xengine.aot.emit_c.expressions import Names
from tvm_xengine.aot.emit_c.header import header_source
from tvm_xengine.aot.emit_c.kernel import c_kernel
from tvm_xengine.aot.emit_c.llvm_object import object_prototype, write_object
from tvm_xengine.aot.emit_c.readme import readme
from tvm_xengine.aot.emit_c.sources import data_source, kernels_header, kernels_source
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.layers.choose import LayerChoice
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.package.checkpoint_file import hash_of
from tvm_xengine.aot.package.code_size import CodeSize, measure_code
from tvm_xengine.aot.package.contents import (
    KernelCode,
    Package,
    StateTensor,
    arguments_of,
    library_sources,
)
from tvm_xengine.aot.package.layout import layout_called
from tvm_xengine.aot.package.plan_document import as_json, plan_document
from tvm_xengine.aot.plan.kernels import Backend
from tvm_xengine.aot.plan.planned import PlannedFunction
from tvm_xengine.aot.plan.region_problem import Machine
from tvm_xengine.aot.plan.tiles import TiledKernel
from tvm_xengine.aot.prepare import OnProgress, prepare_export
from tvm_xengine.aot.prepared import PreparedExport, check_flash
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.files.write_directory import check_free, write_directory, write_file
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.program.step_program import KernelRun, TensorCopy
from tvm_xengine.program.transfers import Channel
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.training.saved_names import saved_names
from tvm_xengine.training.step import TrainingStep


@dataclass(frozen=True)
class ExportReport:
    """Report of an export.

    Attributes
    ----------
    functions
        Its entry points, planned.
    keep_all_bytes
        Size of the first region's arena if the training step kept all tensors there; None without
        one.
    code
        None when the target's compiler is not installed.
    choice
        Which layers are trained, and why; None where none were chosen.
    """

    directory: Path
    package: Package
    functions: Mapping[Entry, PlannedFunction]
    keep_all_bytes: int | None
    code: CodeSize | None
    expected: Expected
    choice: LayerChoice | None = None

    @property
    def leading(self) -> PlannedFunction:
        """The training step, or the first entry point of a package without one."""
        return next(iter(self.functions.values()))

    @property
    def schedule(self) -> Schedule:
        """The schedule of the leading function."""
        return self.leading.plan.schedule


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
    plan = prepare_export(model, training, options, on_progress)
    return write_package(plan, directory, force=force, on_progress=on_progress)


def write_package(
    plan: PreparedExport,
    directory: Path,
    *,
    force: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> ExportReport:
    """Write a planned export as C into a new directory, complete or not at all."""
    check_flash(plan)
    options = plan.options
    sources = _package(plan)
    keep = plan.keep_all_bytes
    report: list[tuple[Package, CodeSize | None]] = []

    def write(folder: Path) -> None:
        on_progress("writing")
        _write_sources(folder, sources, plan.machine)
        with ThreadPoolExecutor(1) as beside:  # compilers are processes of their own
            compiling = beside.submit(
                partial(measure_code, folder, library_sources(sources)[:2], sources.target),
                options.optimize,
            )
            on_progress("computing the expected losses")
            package = replace(sources, storage_error=plan.expected.storage_error)
        measured = compiling.result()
        check_flash(plan, 0 if measured is None else measured.text_bytes)
        report.append((package, measured))
        header = package.layout.source(f"{package.name}.h")
        write_file(folder / header, header_source(package, measured))
        document = plan_document(package, plan.functions, keep, measured)
        write_file(folder / f"{package.name}_plan.json", as_json(document))
        write_file(folder / "README.md", readme(package, keep, measured))
        selftest = selftest_source(package, plan.trial.inputs, plan.expected)
        write_file(folder / package.layout.test(f"{package.name}_selftest.c"), selftest)

    write_directory(directory, write, force=force)
    ((package, code),) = report
    return ExportReport(directory, package, plan.functions, keep, code, plan.expected)


def _write_sources(folder: Path, package: Package, machine: Machine) -> None:
    name = package.name
    sources = {
        f"{name}.h": header_source(package, None),
        f"{name}.c": driver_source(package),
        f"{name}_kernels.h": kernels_header(package),
        f"{name}_data.c": data_source(package),
    }
    if package.backend is Backend.C:
        sources[f"{name}_kernels.c"] = kernels_source(package)
    else:
        named = {package.codes[symbol].name: k for symbol, k in package.kernels.items()}
        write_object(named, machine.code, folder / f"{name}_kernels.o")
    layout = package.layout
    files = {
        layout.source(path): layout.prologue * path.endswith(".c") + text
        for path, text in sources.items()
    }
    for path, text in {**files, **build_files(package)}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_file(folder / path, text)
    if layout.test_folder:
        (folder / layout.test_folder).mkdir()


def _package(plan: PreparedExport) -> Package:
    name, machine, options = plan.name, plan.machine, plan.options
    functions, layout = tuple(plan.functions.values()), plan.layout
    kernels = _used_kernels(functions)
    used = {region: size for region, size in plan.arena_bytes.items() if size}
    _check_names(used, functions)
    saved_as = saved_names(layout.state, plan.model.roles, plan.training.slots)
    state = [
        StateTensor(tensor, place, np.asarray(plan.stored.initial_state[tensor]), saved_as[tensor])
        for tensor, place in layout.state.items()
    ]
    constants = plan.constants
    updates = plan.functions.keys() & {Entry.TRAIN_STEP, Entry.APPLY}
    return Package(
        name=name,
        target=machine.target,
        backend=options.backend,
        optimize=options.optimize,
        alignment_bytes=machine.platform.alignment_bytes,
        regions=used,
        kept_bytes={region: layout.state_end_bytes[region] for region in used},
        functions={entry: f.program for entry, f in plan.functions.items()},
        state=tuple(state),
        hyper=plan.trial.settings if updates else {},
        constants=constants,
        kernels=kernels,
        codes=_codes(name, kernels, options.backend),
        budget_bytes={region: machine.platform.device(region).budget_bytes for region in used},
        summed_bytes={region: layout.end_bytes[region] for region in used},
        sums=layout.sums,
        frozen=_frozen(plan.model, constants),
        layout=layout_called(options.layout, has_objects=options.backend is Backend.LLVM),
        origin=hash_of({role.name: plan.model.state[role.variable] for role in plan.model.roles}),
        channels=_channels(functions, kernels),
    )


def _channels(
    functions: Sequence[PlannedFunction], kernels: Mapping[str, DeviceKernel]
) -> tuple[Channel, ...]:
    """Between which regions copies run beside computations."""
    found: dict[Channel, None] = {}
    for function in functions:
        platform = function.plan.problem.platform
        for call in function.program.calls if function.plan.is_overlapped else ():
            if isinstance(call, TensorCopy):
                pair = (call.src.device, call.dst.device)
                if platform.copy_stream(*pair) == pair:
                    found[pair] = None
    for kernel in kernels.values():
        found |= dict.fromkeys(kernel.channels if isinstance(kernel, TiledKernel) else ())
    return tuple(sorted(found))


def _frozen(model: ForwardModel, constants: Mapping[str, Array]) -> dict[str, str]:
    """The constants in flash that are tensors of the model, by their names in checkpoints."""
    saved_as = saved_names(model.state, model.roles, {})
    flash = {variable: c_identifier(variable) for variable in model.state}
    return {saved_as[v][0]: name for v, name in flash.items() if name in constants}


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
        for kernel in function.lowered.distinct:
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
            text = c_kernel(kernel.tile if isinstance(kernel, TiledKernel) else kernel, name)
            codes[symbol] = KernelCode(
                name, text.prototype, text.arguments, text.source, text.helpers
            )
        else:
            count = len(kernel.inputs) + len(kernel.outputs) + (kernel.workspace_bytes > 0)
            prototype = object_prototype(kernel, name)
            codes[symbol] = KernelCode(name, prototype, tuple(range(count)))
    return codes
