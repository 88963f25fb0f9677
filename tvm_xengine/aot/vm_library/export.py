"""A training step as a library for TVM's virtual machine, for machines that run Linux."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.support import cc

from tvm_xengine.aot.check.reference import Expected
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.prepare import OnProgress, prepare_export
from tvm_xengine.aot.prepared import PreparedExport
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.aot.vm_library.c_interface import loader_header, loader_source
from tvm_xengine.aot.vm_library.layout import Library
from tvm_xengine.aot.vm_library.python_interface import python_loader, readme
from tvm_xengine.aot.vm_library.selftest import selftest_source
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.files.named_errors import naming_full_disk
from tvm_xengine.files.write_directory import check_free, write_directory, write_file
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.kernels.device_kernel import distinct_kernels
from tvm_xengine.kernels.store.compile import compile_kernels, module_groups
from tvm_xengine.program.step_program import ArenaView, Operand
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.runtime.vm_function import VmFunction, emit_vm_function
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.training.step import TrainingStep


@dataclass(frozen=True)
class LibraryReport:
    """Report of a library export."""

    directory: Path
    library: Library
    keep_all_bytes: int
    expected: Expected
    schedule: Schedule


def export_library(
    model: ForwardModel,
    training: TrainingStep,
    options: ExportOptions,
    directory: Path,
    *,
    force: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> LibraryReport:
    """Write the training step of `model` as a shared library with loaders in C and Python.

    Parameters
    ----------
    options
        Their one region is all that the step may take: state, batch and everything else.

    Raises
    ------
    ExportError
        If the directory exists.
    InvalidPlatformError
        If the target is unknown, runs no Linux, or its compiler, which links, is not installed.
    NoScheduleError
        If the memory is too small.
    UnsupportedModuleError
        If something cannot be emitted; it is named.
    """
    check_free(directory, force=force)
    linker_of(options.target)
    plan = prepare_export(model, training, options, on_progress)
    return write_library(plan, directory, force=force, on_progress=on_progress)


def linker_of(target_name: str) -> str:
    """The compiler of the target, which links.

    Raises
    ------
    InvalidPlatformError
        If the target is unknown, runs no Linux, or its compiler is not installed.
    """
    target = embedded_target(target_name)
    if target.name.startswith("cortex"):
        raise InvalidPlatformError(
            f"TVM's virtual machine needs an operating system, which {target.name} does not have;"
            " use --format c"
        )
    return target.find_compiler()


def write_library(
    plan: PreparedExport,
    directory: Path,
    *,
    force: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> LibraryReport:
    """Write a planned export as a library into a new directory, complete or not at all."""
    linker = linker_of(plan.options.target)
    train, evaluate = plan.train, plan.evaluate
    emitted = _Emitted(
        emit_vm_function(train.program, TRAIN_STEP),
        emit_vm_function(evaluate.program, "eval", evaluate.constants),
    )
    library = _library(plan, emitted)
    on_progress("computing the expected losses")
    trial, expected, keep = plan.trial, plan.expected, plan.keep_all_bytes
    assert keep is not None

    def write(folder: Path) -> None:
        on_progress("writing")
        name = library.name
        _link((train.lowered, evaluate.lowered), emitted, folder / f"{name}.so", linker)
        write_file(folder / f"{name}.json", library.as_json())
        write_file(folder / f"{name}_state.bin", state_image(library, plan.stored))
        write_file(folder / f"{name}.h", loader_header(library))
        write_file(folder / f"{name}.c", loader_source(library))
        write_file(folder / f"{name}_step.py", python_loader(library))
        write_file(folder / f"{name}_selftest.c", selftest_source(library, trial, expected))
        write_file(folder / "README.md", readme(library, keep))

    write_directory(directory, write, force=force)
    return LibraryReport(directory, library, keep, expected, train.plan.schedule)


def state_image(library: Library, training: TrainingStep) -> bytes:
    """The leading bytes of the arena, with the initial state."""
    image = np.zeros(library.state_bytes, np.uint8)
    for name, view in library.state.items():
        value = np.ascontiguousarray(training.initial_state[name], view.dtype)
        image[view.offset_bytes : view.offset_bytes + value.nbytes] = np.frombuffer(
            value.tobytes(), np.uint8
        )
    return image.tobytes()


@dataclass(frozen=True)
class _Emitted:
    train: VmFunction
    evaluate: VmFunction


def _library(plan: PreparedExport, emitted: _Emitted) -> Library:
    train, evaluate = (f.program.interface for f in (plan.train, plan.evaluate))
    state, memory = plan.layout.state, plan.machine.first
    return Library(
        name=plan.name,
        target=plan.machine.target.name,
        arena_bytes=plan.arena_bytes[memory],
        state_bytes=plan.layout.state_end_bytes[memory],
        train_views=emitted.train.views,
        eval_views=emitted.evaluate.views,
        inputs={k: v for k, v in train.inputs.items() if k not in state},
        results=_in_arena(train.results),
        eval_inputs={k: v for k, v in evaluate.inputs.items() if k not in state},
        output=_in_arena(evaluate.results)["output"],
        state=state,
    )


def _in_arena(views: Mapping[str, Operand]) -> dict[str, ArenaView]:
    return {name: view for name, view in views.items() if isinstance(view, ArenaView)}


def _link(
    steps: tuple[LoweredStep, LoweredStep], emitted: _Emitted, path: Path, linker: str
) -> None:
    """Write both functions and their kernels as one shared library."""
    kernels = distinct_kernels(kernel for step in steps for kernel in step.distinct)
    target = kernels[0].target
    functions = {
        tvm.ir.GlobalVar(TRAIN_STEP): emitted.train.function,
        tvm.ir.GlobalVar("eval"): emitted.evaluate.function,
    }
    compiled = [compile_kernels(group, target) for group in module_groups(kernels)]
    both = tvm.IRModule(functions).with_attr("external_mods", compiled)
    executable = relax.build(both, target, relax_pipeline=relax.transform.AttachGlobalSymbol())
    with naming_full_disk(path):
        executable.export_library(str(path), fcompile=cc.cross_compiler(linker))
