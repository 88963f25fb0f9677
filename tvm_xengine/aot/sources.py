"""The C sources of a planned package, and how much code they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tvm_xengine.aot.c_names import c_identifier, kernel_identifier
from tvm_xengine.aot.emit_c.build_systems.choose import build_files
from tvm_xengine.aot.emit_c.driver import driver_source
from tvm_xengine.aot.emit_c.expressions import Names
from tvm_xengine.aot.emit_c.header import header_source
from tvm_xengine.aot.emit_c.kernel import c_kernel
from tvm_xengine.aot.emit_c.llvm_object import object_prototype, write_object
from tvm_xengine.aot.emit_c.sources import data_source, kernels_header, kernels_source
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.package.checkpoint_file import hash_of
from tvm_xengine.aot.package.code_size import CodeSize, measure_code
from tvm_xengine.aot.package.contents import (
    KernelCode,
    Package,
    StateTensor,
    library_sources,
)
from tvm_xengine.aot.package.layout import layout_called
from tvm_xengine.aot.plan.kernels import Backend
from tvm_xengine.aot.plan.planned import PlannedFunction
from tvm_xengine.aot.plan.region_problem import Machine
from tvm_xengine.aot.plan.regions import FLASH
from tvm_xengine.aot.plan.tiles import TiledKernel
from tvm_xengine.aot.prepared import PreparedExport
from tvm_xengine.files.write_directory import write_file
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.first_elements import from_first_elements
from tvm_xengine.program.step_program import KernelRun, TensorCopy
from tvm_xengine.program.transfers import Channel
from tvm_xengine.relax_ir.kernel_attributes import kernel_hash
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.training.saved_names import saved_names


def with_code(plan: PreparedExport) -> PreparedExport:
    """The plan with the size of its code, which is compiled where flash is limited."""
    if not any(region.name == FLASH for region in plan.options.regions):
        return plan
    with TemporaryDirectory() as folder:
        package = package_of(plan)
        write_sources(Path(folder), package, plan.machine)
        return replace(plan, code=compiled_size(Path(folder), package))


def compiled_size(folder: Path, package: Package) -> CodeSize | None:
    """Code of the sources in a folder; None where the compiler of the target is not installed."""
    sources = library_sources(package)[:2]
    return measure_code(folder, sources, package.target, package.optimize)


def write_sources(folder: Path, package: Package, machine: Machine) -> None:
    """Write what is compiled, with the files of its build system."""
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


def package_of(plan: PreparedExport) -> Package:
    """What is written of a plan, without the measured error of short storage."""
    name, machine, options = plan.name, plan.machine, plan.options
    functions, layout = tuple(plan.functions.values()), plan.layout
    kernels = _used_kernels(functions)
    used = {region: size for region, size in plan.arena_bytes.items() if size}
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
    if backend is Backend.C:
        return _codes_in_c(prefix, kernels, names)
    codes = {}
    for symbol, kernel in kernels.items():
        name = names.fresh(kernel_identifier(prefix, kernel.name))
        count = len(kernel.inputs) + len(kernel.outputs) + (kernel.workspace_bytes > 0)
        codes[symbol] = KernelCode(name, object_prototype(kernel, name), tuple(range(count)))
    return codes


def _codes_in_c(
    prefix: str, kernels: Mapping[str, DeviceKernel], names: Names
) -> dict[str, KernelCode]:
    """One function for kernels that are equal but for where in their operands they begin."""
    moved = {
        symbol: from_first_elements(kernel.func)
        for symbol, kernel in kernels.items()
        if not isinstance(kernel, TiledKernel)
    }
    keys = {
        symbol: kernel_hash(moved[symbol].func) if symbol in moved else symbol for symbol in kernels
    }
    alike: dict[str, list[str]] = {}
    for symbol, key in keys.items():
        alike.setdefault(key, []).append(symbol)
    codes: dict[str, KernelCode] = {}
    for symbols in alike.values():
        # As it is where all begin alike: names of indices are then those of the kernel.
        begins_alike = len({moved[symbol].first for symbol in symbols if symbol in moved}) < 2
        kernel = kernels[symbols[0]]
        if isinstance(kernel, TiledKernel):
            kernel = kernel.tile
        elif not begins_alike:
            kernel = replace(kernel, func=moved[symbols[0]].func)
        text = c_kernel(kernel, names.fresh(kernel_identifier(prefix, kernel.name)))
        for symbol in symbols:
            first = (0,) * len(text.arguments)
            if not begins_alike:
                first = tuple(moved[symbol].first[argument] for argument in text.arguments)
            codes[symbol] = KernelCode(
                text.name, text.prototype, text.arguments, text.source, text.helpers, first
            )
    return {symbol: codes[symbol] for symbol in kernels}
