"""A training step as a library for TVM's virtual machine, for machines that run Linux."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.support import cc

from tvm_xengine.aot.check.batches import BatchInput
from tvm_xengine.aot.check.reference import Expected, Trial, expected_results
from tvm_xengine.aot.package.names import package_name
from tvm_xengine.aot.plan.kernels import Backend, Optimize, code_target, lower_for_target
from tvm_xengine.aot.plan.places import Field
from tvm_xengine.aot.plan.static_cost import static_costs
from tvm_xengine.aot.targets import EmbeddedTarget, embedded_target
from tvm_xengine.aot.vm_library.c_interface import loader_header, loader_source
from tvm_xengine.aot.vm_library.layout import Library
from tvm_xengine.aot.vm_library.python_interface import python_loader, readme
from tvm_xengine.aot.vm_library.selftest import selftest_source
from tvm_xengine.compile.build import apply_plan
from tvm_xengine.compile.lower import LoweredStep
from tvm_xengine.compile.plan import plan_keep_all
from tvm_xengine.compile.problem import make_problem
from tvm_xengine.compile.short_storage import short_evaluation
from tvm_xengine.errors import InvalidPlatformError, NoScheduleError
from tvm_xengine.files.write_directory import check_free, write_directory
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.kernels.device_kernel import distinct_kernels
from tvm_xengine.kernels.store.compile import compile_kernels, module_groups
from tvm_xengine.passes.bind_arenas import (
    ArenaView,
    BindArenas,
    interface_of,
    views_of,
)
from tvm_xengine.planning.planner import Plan, PlanOptions, plan_schedule
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.relax_ir.types import tensor_bytes
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.platform import Device, Platform
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.training.step import TrainingStep

OnProgress = Callable[[str], None]

_MEMORY = "memory"
_EVAL = "main"
_ALIGNMENT_BYTES = 64


@dataclass(frozen=True)
class LibraryOptions:
    """What a library is made for.

    Attributes
    ----------
    arena_bytes
        Memory that the step may take: state, batch and everything else.
    learning_rate
        What the self-test trains with.
    """

    target: str
    arena_bytes: int
    optimize: Optimize = Optimize.SPEED
    plan: PlanOptions = field(default_factory=PlanOptions)
    learning_rate: float = 0.01
    selftest_steps: int = 20


@dataclass(frozen=True)
class LibraryReport:
    """What was written."""

    directory: Path
    library: Library
    plan: Plan
    keep_everything_bytes: int
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
            f"TVM's virtual machine needs an operating system, which {target.name} has not;"
            " --format c needs none"
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
    mod, _ = short_evaluation(model, None, ())
    evaluate = _lowered(mod, _EVAL, platform, target, options.optimize)
    eval_plan = plan_keep_all(_problem(evaluate, target), _MEMORY)
    bound, eval_bound = _bound(train, plan), _bound(evaluate, eval_plan)
    library = _library(package_name(model.name), target, bound, eval_bound)
    if library.arena_bytes > options.arena_bytes:
        raise NoScheduleError(
            f"the evaluation needs {library.arena_bytes} bytes, more than the {options.arena_bytes}"
            " there are"
        )
    on_progress("computing the expected losses")
    inputs = _batch_inputs(training, library)
    settings = dict.fromkeys(training.hyper_names, options.learning_rate)
    trial = Trial(inputs, settings, options.selftest_steps)
    expected = expected_results(model, training, trial, options.optimize)

    def write(folder: Path) -> None:
        on_progress("writing")
        name = library.name
        _link(train, evaluate, bound, eval_bound, folder / f"{name}.so", linker)
        (folder / f"{name}.json").write_text(library.as_json())
        (folder / f"{name}_state.bin").write_bytes(state_image(library, training))
        (folder / f"{name}.h").write_text(loader_header(library))
        (folder / f"{name}.c").write_text(loader_source(library))
        (folder / f"{name}_step.py").write_text(python_loader(library))
        (folder / f"{name}_selftest.c").write_text(selftest_source(library, trial, expected))
        (folder / "README.md").write_text(readme(library, keep))

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
    """The leading bytes of the arena with the state that training starts from."""
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


def _bound(lowered: LoweredStep, plan: Plan) -> tvm.IRModule:
    bind = BindArenas(plan.problem, plan.schedule, plan.arenas, lowered.kernels, lowered.func_name)
    return tvm.transform.Sequential([bind])(apply_plan(lowered, plan))


def _library(
    name: str, target: EmbeddedTarget, bound: tvm.IRModule, eval_bound: tvm.IRModule
) -> Library:
    train, evaluate = interface_of(bound[TRAIN_STEP]), interface_of(eval_bound[_EVAL])
    state = {k: v for k, v in train.inputs.items() if Role(train.roles[k]).is_persistent}
    end = _end(state)
    own = {k: v for k, v in evaluate.inputs.items() if k in state}
    eval_end = _end(own)

    def moved(view: ArenaView) -> ArenaView:
        """A place of the evaluation's own arena: the state is the step's, the rest lies behind it."""
        for key, mine in own.items():
            if view.offset_bytes == mine.offset_bytes:
                return replace(view, offset_bytes=state[key].offset_bytes)
        return replace(view, offset_bytes=view.offset_bytes - eval_end + end)

    rest = evaluate.arena_bytes[_MEMORY] - eval_end
    return Library(
        name=name,
        target=target.name,
        arena_bytes=max(train.arena_bytes[_MEMORY], end + rest),
        state_bytes=end,
        train_views=views_of(bound[TRAIN_STEP]),
        eval_views=tuple(moved(view) for view in views_of(eval_bound[_EVAL])),
        inputs={k: v for k, v in train.inputs.items() if k not in state},
        results=dict(train.results),
        eval_inputs={k: moved(v) for k, v in evaluate.inputs.items() if k not in own},
        output=moved(evaluate.results["output"]),
        state=state,
    )


def _end(views: Mapping[str, ArenaView]) -> int:
    ends = [v.offset_bytes + tensor_bytes(v.shape, v.dtype) for v in views.values()]
    return -(-max(ends, default=0) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _batch_inputs(training: TrainingStep, library: Library) -> list[BatchInput]:
    classes = library.output.shape[1] if len(library.output.shape) > 1 else 2
    found = []
    for name in training.batch_names:
        view = library.inputs[name]
        size_bytes = tensor_bytes(view.shape, view.dtype)
        entry = Field(name, view.dtype, view.shape, size_bytes)
        found.append(BatchInput(entry, 2 if name in library.eval_inputs else classes))
    return found


def _link(
    train: LoweredStep,
    evaluate: LoweredStep,
    bound: tvm.IRModule,
    eval_bound: tvm.IRModule,
    path: Path,
    linker: str,
) -> None:
    """Write both functions and their kernels as one shared library."""
    kernels = distinct_kernels([*train.kernels.values(), *evaluate.kernels.values()])
    target = kernels[0].target
    functions = {
        tvm.ir.GlobalVar(TRAIN_STEP): bound[TRAIN_STEP],
        tvm.ir.GlobalVar("eval"): eval_bound[_EVAL].with_attr("global_symbol", "eval"),
    }
    compiled = [compile_kernels(group, target) for group in module_groups(kernels)]
    both = tvm.IRModule(functions).with_attr("external_mods", compiled)
    executable = relax.build(both, target, relax_pipeline=relax.transform.AttachGlobalSymbol())
    executable.export_library(str(path), fcompile=cc.cross_compiler(linker))
