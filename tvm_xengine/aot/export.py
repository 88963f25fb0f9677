"""From a model to a directory with its training step as C."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tvm_xengine.aot.check.reference import Expected
from tvm_xengine.aot.check.selftest import selftest_source
from tvm_xengine.aot.emit_c.header import header_source
from tvm_xengine.aot.emit_c.readme import readme
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.layers.choose import LayerChoice
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.package.code_size import CodeSize
from tvm_xengine.aot.package.contents import (
    Package,
)
from tvm_xengine.aot.package.plan_document import as_json, plan_document
from tvm_xengine.aot.plan.planned import PlannedFunction
from tvm_xengine.aot.prepare import OnProgress, prepare_export
from tvm_xengine.aot.prepared import PreparedExport, check_flash
from tvm_xengine.aot.sources import compiled_size, package_of, write_sources
from tvm_xengine.files.write_directory import check_free, write_directory, write_file
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.scheduling.schedule import Schedule
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
    sources = package_of(plan)
    keep = plan.keep_all_bytes
    report: list[tuple[Package, CodeSize | None]] = []

    def write(folder: Path) -> None:
        on_progress("writing")
        write_sources(folder, sources, plan.machine)
        with ThreadPoolExecutor(1) as beside:  # compilers are processes of their own
            compiling = beside.submit(lambda: plan.code or compiled_size(folder, sources))
            on_progress("computing the expected losses")
            package = replace(sources, storage_error=plan.expected.storage_error)
        measured = compiling.result()
        check_flash(replace(plan, code=measured))
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
