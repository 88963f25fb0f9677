"""The processor, the compilers and emulators, and the folders of this machine."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tvm_xengine.aot.check.emulation import EMULATORS
from tvm_xengine.aot.targets import TARGETS
from tvm_xengine.doctor.check import Check, State, in_child
from tvm_xengine.scheduling.sizes import format_bytes

_PROCESSOR = (
    "import dataclasses, json;"
    " from tvm_xengine.cost_models.measure.this_machine import this_machine;"
    " print(json.dumps(dataclasses.asdict(this_machine())))"
)
_GPU = (
    "import json, tvm; from tvm_xengine.kernels.cuda import compiler, runtime;"
    " reason = runtime.why_no_cuda(); gpu = tvm.device('cuda', 0);"
    " print(json.dumps([reason, '' if reason else gpu.device_name, compiler.cuda_compiler()]))"
)
_FOLDER = (
    "from tvm_xengine.cost_models.measure.measurements import default_cache_path;"
    " print(default_cache_path())"
)
_LINKERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")
"""Any of them links the kernels that are kept between runs."""
_LITTLE_ROOM_BYTES = 2**30
"""Compiled kernels of a few networks."""


def processor_checks() -> Iterator[Check]:
    """The processor as measurements describe it."""
    works, said = in_child(_PROCESSOR)
    if not works:
        yield Check("processor", "processor", State.BROKEN, f"cannot be described: {said}")
        return
    machine = json.loads(said)
    cores, architecture = machine.get("cores"), machine.get("architecture")
    detail = (
        f"{machine.get('processor')} ({architecture}, {cores} cores, {machine.get('llvm_cpu')})"
    )
    yield Check("processor", "processor", State.WORKS, detail)
    extensions = ", ".join(machine.get("vector_extensions") or ())
    yield Check("processor", "extensions", State.WORKS, extensions or "none")
    sizes = [format_bytes(size) for size in machine.get("caches_bytes") or () if size]
    yield Check("processor", "data caches", State.WORKS, ", ".join(sizes) or "unknown")


def gpu_checks() -> Iterator[Check]:
    """NVIDIA's GPU, its driver, and a compiler for it."""
    works, said = in_child(_GPU)
    if not works:
        yield Check("gpu", "cuda", State.BROKEN, said)
        return
    reason, name, (compiler, version) = json.loads(said)
    if reason is not None:
        yield Check("gpu", "cuda", State.MISSING, reason)
    elif not compiler:
        detail = f"{name}; no compiler for its kernels"
        yield Check(
            *("gpu", "cuda", State.LIMITED, detail), remedy="pip install 'tvm-xengine[cuda]'"
        )
    else:
        yield Check("gpu", "cuda", State.WORKS, f"{name}; {compiler} {version}")


def compiler_checks() -> Iterator[Check]:
    """A linker for kernels, and per embedded target its compiler and emulator."""
    linker = next(filter(None, map(shutil.which, _LINKERS)), None)
    if linker is None:
        detail = "compiled kernels are not kept between runs"
        yield Check("compilers", "linker", State.MISSING, detail, remedy="apt-get install g++")
    else:
        yield Check("compilers", "linker", State.WORKS, linker)
    for target in TARGETS.values():
        emulator = EMULATORS[target.name]
        missing = [] if target.has_compiler else [(target.compiler, target.package)]
        if not emulator.is_installed:
            missing.append((emulator.command[0], emulator.package))
        tools = ", ".join([target.compiler, *emulator.command[:1]])
        if not missing:
            yield Check("embedded targets", target.name, State.WORKS, tools)
            continue
        state = State.LIMITED if target.has_compiler else State.MISSING
        detail = f"not installed: {', '.join(tool for tool, _ in missing)}"
        remedy = f"apt-get install {' '.join(package for _, package in missing)}"
        yield Check("embedded targets", target.name, state, detail, remedy=remedy)


def cache_checks() -> Iterator[Check]:
    """The folder that is kept between runs: measurements, and compiled kernels."""
    works, said = in_child(_FOLDER)
    if not works:
        yield Check("caches", "folder", State.BROKEN, said)
        return
    yield from folder_checks(Path(said))


def folder_checks(measurements: Path) -> Iterator[Check]:
    """Sizes of what is kept beside a file of measurements, and whether more can be."""
    folder = measurements.parent
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    disk = shutil.disk_usage(existing)
    is_permitted = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    if not is_permitted or not disk.total:  # /proc and its like hold no files
        detail = f"{folder} cannot be written: nothing is kept between runs"
        remedy = f"chmod u+rwx {existing}, or set XDG_CACHE_HOME"
        yield Check("caches", "folder", State.BROKEN, detail, remedy=remedy)
    else:
        state = State.LIMITED if disk.free < _LITTLE_ROOM_BYTES else State.WORKS
        yield Check("caches", "folder", state, f"{folder}, {format_bytes(disk.free)} free")
    for name, path in (("measurements", measurements), ("kernels", folder / "kernels")):
        files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
        size = sum(file.stat().st_size for file in files)
        yield Check("caches", name, State.WORKS, f"{format_bytes(size)} in {len(files)} files")
