"""A training step as a library for TVM's virtual machine, for machines that run Linux."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.support import cc

from tvm_xengine.aot.check.batches import batch_inputs
from tvm_xengine.aot.check.reference import Expected, Trial, expected_results
from tvm_xengine.aot.package.names import package_name
from tvm_xengine.aot.plan.kernels import Backend, Optimize, code_target, lower_for_target
from tvm_xengine.aot.plan.region_problem import without_bytes
from tvm_xengine.aot.plan.static_cost import static_costs
from tvm_xengine.aot.targets import EmbeddedTarget, embedded_target
from tvm_xengine.aot.vm_library.c_interface import loader_header, loader_source
from tvm_xengine.aot.vm_library.layout import Library
from tvm_xengine.aot.vm_library.python_interface import python_loader, readme
from tvm_xengine.aot.vm_library.selftest import selftest_source
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.compiler.problem import make_problem
from tvm_xengine.compiler.short_storage import short_evaluation
from tvm_xengine.errors import InvalidPlatformError, NoScheduleError
from tvm_xengine.files.named_errors import naming_full_disk
from tvm_xengine.files.write_directory import check_free, write_directory, write_file
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.kernels.device_kernel import distinct_kernels
from tvm_xengine.kernels.store.compile import compile_kernels, module_groups
from tvm_xengine.planning.planner import Plan, PlanOptions, plan_schedule
from tvm_xengine.program.make import make_step_program
from tvm_xengine.program.step_program import (
    ArenaView,
    Operand,
    Outside,
    OutsideView,
    StepProgram,
)
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.runtime.vm_function import VmFunction, emit_vm_function
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.sizes import round_up
from tvm_xengine.training.step import TrainingStep

OnProgress = Callable[[str], None]

_MEMORY = "memory"
_EVAL = "main"
_ALIGNMENT_BYTES = 64
"""As TVM's runtime aligns what it allocates (`kAllocAlignment` of its device API)."""


@dataclass(frozen=True)
class LibraryOptions:
    """Options of a library export.

    Attributes
    ----------
    arena_bytes
        Memory that the step may take: state, batch and everything else.
    learning_rate
        Learning rate of the self-test.
    selftest_steps
        Steps that the self-test takes.
    """

    target: str
    arena_bytes: int
    optimize: Optimize = Optimize.SPEED
    plan: PlanOptions = field(default_factory=PlanOptions)
    learning_rate: float = 0.01
    selftest_steps: int = 20


@dataclass(frozen=True)
class LibraryReport:
    """Report of a library export."""

    directory: Path
    library: Library
    plan: Plan
    keep_all_bytes: int
    expected: Expected


def export_library(
    model: ForwardModel,
    training: TrainingStep,
    options: LibraryOptions,
    directory: Path,
    *,
    force: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> LibraryReport:
    """Write the training step of `model` as a shared library with loaders in C and Python.

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
    target = embedded_target(options.target)
    if target.name.startswith("cortex"):
        raise InvalidPlatformError(
            f"TVM's virtual machine needs an operating system, which {target.name} does not have;"
            " use --format c"
        )
    linker = target.find_compiler()
    _check_state(training, options.arena_bytes)
    platform = Platform(
        (Device(_MEMORY, "llvm", options.arena_bytes, ("tir",)),), alignment_bytes=_ALIGNMENT_BYTES
    )
    on_progress("planning the training step")
    train = _lowered(training.mod, TRAIN_STEP, platform, target, options.optimize)
    problem = _problem(train, target)
    plan = plan_schedule(problem, options.plan, on_progress)
    keep = plan_keep_all(problem, _MEMORY).arenas.arena_bytes[_MEMORY]
    program = make_step_program(train, plan)
    mod, _ = short_evaluation(model, None, ())
    evaluate = _lowered(mod, _EVAL, platform, target, options.optimize)
    evaluation = _evaluation(evaluate, _problem(evaluate, target), program)
    emitted = _Emitted(
        emit_vm_function(program, TRAIN_STEP),
        emit_vm_function(evaluation, "eval", evaluate.constants),
    )
    library = _library(package_name(model.name), target, (program, evaluation), emitted)
    if library.arena_bytes > options.arena_bytes:
        raise NoScheduleError(
            f"the evaluation needs {library.arena_bytes} bytes, more than the {options.arena_bytes}"
            " there are"
        )
    on_progress("computing the expected losses")
    batch = {name: library.inputs[name] for name in training.batch_names}
    inputs = batch_inputs(batch, library.output, library.eval_inputs)
    settings = dict.fromkeys(training.hyper_names, options.learning_rate)
    trial = Trial(inputs, settings, options.selftest_steps)
    expected = expected_results(model, training, trial, options.optimize)

    def write(folder: Path) -> None:
        on_progress("writing")
        name = library.name
        _link((train, evaluate), emitted, folder / f"{name}.so", linker)
        write_file(folder / f"{name}.json", library.as_json())
        write_file(folder / f"{name}_state.bin", state_image(library, training))
        write_file(folder / f"{name}.h", loader_header(library))
        write_file(folder / f"{name}.c", loader_source(library))
        write_file(folder / f"{name}_step.py", python_loader(library))
        write_file(folder / f"{name}_selftest.c", selftest_source(library, trial, expected))
        write_file(folder / "README.md", readme(library, keep))

    write_directory(directory, write, force=force)
    return LibraryReport(directory, library, plan, keep, expected)


def _check_state(training: TrainingStep, arena_bytes: int) -> None:
    state_bytes = sum(value.nbytes for value in training.initial_state.values())
    if state_bytes > arena_bytes:
        raise NoScheduleError(
            f"the state (parameters, optimizer state and constants) takes {state_bytes} bytes, more"
            f" than the {arena_bytes} there are"
        )


def state_image(library: Library, training: TrainingStep) -> bytes:
    """The leading bytes of the arena, with the initial state."""
    image = np.zeros(library.state_bytes, np.uint8)
    for name, view in library.state.items():
        value = np.ascontiguousarray(training.initial_state[name], view.dtype)
        image[view.offset_bytes : view.offset_bytes + value.nbytes] = np.frombuffer(
            value.tobytes(), np.uint8
        )
    return image.tobytes()


def _lowered(
    mod: tvm.IRModule, name: str, platform: Platform, target: EmbeddedTarget, optimize: Optimize
) -> LoweredStep:
    return lower_for_target(mod, platform, code_target(target, Backend.LLVM), optimize, name)


def _problem(lowered: LoweredStep, target: EmbeddedTarget) -> Problem:
    return make_problem(lowered, static_costs(target))


@dataclass(frozen=True)
class _Emitted:
    train: VmFunction
    evaluate: VmFunction


def _evaluation(lowered: LoweredStep, problem: Problem, train: StepProgram) -> StepProgram:
    """The evaluation, which reads the state of the training step and has the bytes behind it."""
    state = _state(train)
    constants = {
        name: OutsideView(Outside.CONSTANT, name, value.shape, str(value.dtype))
        for name, value in lowered.constants.items()
    }
    fixed: Mapping[str, Operand] = {**state, **constants}
    light = replace(problem, graph=without_bytes(problem.graph, fixed))
    plan = plan_keep_all(light, _MEMORY)
    return make_step_program(lowered, plan, fixed=fixed, arena_start_bytes={_MEMORY: _end(state)})


def _state(program: StepProgram) -> dict[str, ArenaView]:
    roles = program.interface.roles
    return {k: v for k, v in program.interface.inputs.items() if roles[k].is_persistent}


def _library(
    name: str,
    target: EmbeddedTarget,
    programs: tuple[StepProgram, StepProgram],
    emitted: _Emitted,
) -> Library:
    train, evaluate = (program.interface for program in programs)
    state = _state(programs[0])
    return Library(
        name=name,
        target=target.name,
        arena_bytes=max(train.arena_bytes[_MEMORY], evaluate.arena_bytes[_MEMORY]),
        state_bytes=_end(state),
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


def _end(views: Mapping[str, ArenaView]) -> int:
    ends = [view.offset_bytes + view.size_bytes for view in views.values()]
    return round_up(max(ends, default=0), _ALIGNMENT_BYTES)


def _link(
    steps: tuple[LoweredStep, LoweredStep], emitted: _Emitted, path: Path, linker: str
) -> None:
    """Write both functions and their kernels as one shared library."""
    kernels = distinct_kernels(kernel for step in steps for kernel in step.kernels.values())
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
