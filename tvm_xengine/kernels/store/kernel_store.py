"""Machine code of kernels, compiled once, in parallel, and kept on disk."""

from __future__ import annotations

import logging
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, as_completed
from pathlib import Path

import tvm
import tvm_ffi
from tvm.support import cc

from tvm_xengine.errors import CompilationError
from tvm_xengine.files.atomic_write import can_write_into
from tvm_xengine.files.say_once import say_once
from tvm_xengine.files.temporary import unfinished
from tvm_xengine.kernels.device_kernel import DeviceKernel, distinct_kernels
from tvm_xengine.kernels.device_kinds import device_of
from tvm_xengine.kernels.identity import toolchain_key
from tvm_xengine.kernels.store.compile import compile_kernels, module_groups
from tvm_xengine.kernels.store.compile_limit import (
    COMPILE_LIMIT_S,
    ends_after,
    noted_in,
    was_too_slow,
)
from tvm_xengine.kernels.targets import is_gpu
from tvm_xengine.kernels.threads.settings import usable_cores
from tvm_xengine.kernels.threads.team import load_library
from tvm_xengine.processes.pools import worker_processes

_logger = logging.getLogger(__name__)

OnProgress = Callable[[int, int, str], None]

WORKER_START_S = 2.0
"""Starting a worker takes so much processor time; what compiles faster is compiled here."""

_UNUSED_DAYS = 30
"""Folders of other versions are deleted after a month without use."""

_ROOM_BYTES = 1 << 25
"""The object files and libraries of all kernels that compile at once take a few megabytes."""


class KernelStore:
    """Compiled kernels in a folder: one shared library for each kernel and target.

    A library's name is the kernel's symbol, which names the code in it (`kernel_key`); it lies in
    a folder named after the versions of TVM, LLVM and the passes between. Libraries are written
    to a temporary name and renamed, so several processes may share the folder. Folders of other
    versions that were not used for a month are deleted.

    Parameters
    ----------
    directory
        Made by the first compilation.
    max_workers
        Processes that compile at once; None means one for each usable core.
    limit_s
        Processor time in seconds after which such a process gives up a kernel. The small kernels
        that are compiled in this process have no limit.
    here_s
        For so much processor time this process compiles small kernels before it starts others, and
        for as long as others would not be done sooner: each takes about as long to start.
    """

    def __init__(
        self,
        directory: Path,
        *,
        max_workers: int | None = None,
        limit_s: float = COMPILE_LIMIT_S,
        here_s: float = WORKER_START_S,
    ) -> None:
        self._directory = directory / toolchain_key()
        self._max_workers = max_workers or usable_cores()
        self._limit_s = limit_s
        self._here_s = here_s if self._max_workers > 1 else math.inf
        # n workers are done with w seconds of work after here_s + w / n, this process after w.
        self._worth_s = here_s * self._max_workers / max(self._max_workers - 1, 1)

    def load(
        self, kernels: Iterable[DeviceKernel], on_progress: OnProgress | None = None
    ) -> dict[str, tvm.runtime.Module]:
        """For each kernel's symbol a module that holds it; what is missing is compiled first.

        Without a linker on this machine (``c++`` or ``$CXX``), or where the folder cannot be written
        or its disk is full, also from some moment on, kernels are compiled in this process and nothing
        is kept on disk.

        Parameters
        ----------
        on_progress
            Called after every compilation with the number done, the number of all, and the name
            of the kernel.

        Raises
        ------
        UnsupportedModuleError
            When a kernel would allocate memory.
        CompilationError
            When a compiling process dies, or a kernel takes longer than the limit.
        InvalidPlatformError
            When a kernel is for a GPU that is not on this machine, which cannot load it.
        """
        kernels = list(kernels)
        _require_devices(kernels)
        distinct = {kernel.symbol: kernel for kernel in kernels}
        modules = {symbol: self._find(symbol) for symbol in distinct}
        missing = [kernel for symbol, kernel in distinct.items() if modules[symbol] is None]
        if missing and not self.is_kept:
            return load_kernels(distinct.values(), None)
        try:
            for done, kernel in enumerate(self._compiled(missing), start=1):
                modules[kernel.symbol] = load_library(self.path(kernel.symbol))
                if on_progress is not None:
                    on_progress(done, len(missing), kernel.name)
        except (OSError, RuntimeError, CompilationError) as error:
            # Compilers report a full disk in many ways, and LLVM ends its process.
            if self._is_there() and self.is_kept:
                if not isinstance(error, OSError):
                    raise
                say_once(_logger, f"compiled kernels are not kept: {error}")
            return load_kernels(distinct.values(), None)
        return {symbol: module for symbol, module in modules.items() if module is not None}

    def _compiled(self, kernels: Sequence[DeviceKernel]) -> Iterator[DeviceKernel]:
        """Write the library of each kernel, and yield the kernel when that is done."""
        if not kernels:
            return
        _delete_unused(self._directory.parent, keep=self._directory)
        sizes = {kernel.symbol: _size(kernel) for kernel in kernels}
        smallest_first = sorted(kernels, key=lambda kernel: sizes[kernel.symbol])
        spent_s, done_size, next_s, left_s = 0.0, 0, 0.0, 0.0
        # NVIDIA's compilers work in threads or processes of their own.
        compiles_elsewhere = any(is_gpu(kernel.target) for kernel in kernels)
        clock_s = time.perf_counter if compiles_elsewhere else time.thread_time
        while smallest_first and (spent_s + next_s < self._here_s or left_s < self._worth_s):
            kernel = smallest_first.pop(0)
            begin_s = clock_s()
            _write_library([kernel], self.path(kernel.symbol))
            spent_s += clock_s() - begin_s
            done_size += sizes[kernel.symbol]
            yield kernel
            left = [sizes[each.symbol] * spent_s / done_size for each in smallest_first]
            next_s, left_s = (left[0], sum(left)) if left else (0.0, 0.0)
        if smallest_first:
            # The largest first, so that no worker is left with one of them at the end.
            yield from self._compiled_by_workers(smallest_first[::-1])

    def _compiled_by_workers(self, kernels: Sequence[DeviceKernel]) -> Iterator[DeviceKernel]:
        count = min(self._max_workers, len(kernels))
        executor = worker_processes(count, ends_with_caller=True)
        # Workers that are killed cannot remove what they have begun, so it lies in a folder of ours.
        with unfinished(self._directory / "libraries") as begun:
            notes = begun / "notes"
            begun.mkdir()
            notes.mkdir()
            try:
                futures = {
                    executor.submit(
                        _write_noted, kernel, self.path(kernel.symbol), self._limit_s, notes, begun
                    ): kernel
                    for kernel in kernels
                }
                for future in as_completed(futures):
                    future.result()
                    yield futures[future]
            except BrokenExecutor as error:
                raise self._failure(error, kernels, notes) from error
            finally:
                executor.shutdown(wait=True, kill_workers=True)

    def _failure(
        self, error: BrokenExecutor, kernels: Sequence[DeviceKernel], notes: Path
    ) -> CompilationError:
        now = time.time()
        ages_s = {note.name: now - note.stat().st_mtime for note in notes.iterdir()}
        slow = [
            f"{kernel.name} ({kernel.symbol})"
            for kernel in kernels
            if ages_s.get(kernel.symbol, 0) >= self._limit_s
        ]
        if was_too_slow(error) and slow:
            return CompilationError(
                f"kernel {' or '.join(slow)} did not compile within {self._limit_s:g} s of"
                " processor time; what else was compiled is kept; express the operators in it"
                " differently, or give KernelStore a larger limit_s"
            )
        return CompilationError(
            f"a process that compiled one of {len(kernels)} kernels died, perhaps for lack of"
            " memory; what was compiled is kept, so run again"
        )

    def _find(self, symbol: str) -> tvm.runtime.Module | None:
        path = self.path(symbol)
        if not path.exists():
            return None
        try:
            return load_library(path)
        except (RuntimeError, OSError) as error:
            _logger.warning("%s is compiled again: %s", path, str(error).splitlines()[0])
            return None

    @property
    def is_kept(self) -> bool:
        """Whether compiled kernels can be kept: a linker is installed, and the folder can be written."""
        if cc.get_cc() is None:
            return False
        if not can_write_into(self._directory):
            say_once(_logger, f"compiled kernels are not kept: cannot write {self._directory}")
            return False
        return self._has_room()

    def _is_there(self) -> bool:
        """Whether the folder, which a compilation has made, was not removed since."""
        if self._directory.is_dir():
            return True
        say_once(_logger, f"compiled kernels are not kept: {self._directory} was removed")
        return False

    def _has_room(self) -> bool:
        """Whether the disks of the folder and of temporary files have room for a library."""
        for folder in (self._directory, Path(tempfile.gettempdir())):
            if folder.exists() and shutil.disk_usage(folder).free < _ROOM_BYTES:
                say_once(_logger, f"compiled kernels are not kept: no space left in {folder}")
                return False
        return True

    def path(self, symbol: str) -> Path:
        """Where the library of a kernel lies once :meth:`load` has compiled it."""
        return self._directory / f"{symbol}.so"


def load_kernels(
    kernels: Iterable[DeviceKernel],
    store: KernelStore | None,
    on_progress: OnProgress | None = None,
) -> dict[str, tvm.runtime.Module]:
    """For each kernel's symbol a module that holds it.

    Without a store the kernels are compiled in this process to the same machine code, those of a
    group together, and kept nowhere; `on_progress` is not called then.
    """
    if store is not None:
        return store.load(kernels, on_progress)
    modules = {}
    kernels = distinct_kernels(kernels)
    _require_devices(kernels)
    for group in module_groups(kernels):
        module = compile_kernels(group, group[0].target)
        modules.update({kernel.symbol: module for kernel in group})
    return modules


def _require_devices(kernels: Iterable[DeviceKernel]) -> None:
    for target in {str(kernel.target): kernel.target for kernel in kernels}.values():
        device_of(target)


def _write_library(kernels: Sequence[DeviceKernel], path: Path, begun: Path | None = None) -> None:
    """Compile kernels of one of `module_groups` into a shared library, in the folder `begun` at first."""
    module = compile_kernels(kernels, kernels[0].target)
    with unfinished(path if begun is None else begun / path.name) as folder:
        folder.mkdir()
        library = folder / path.name
        module.export_library(str(library), workspace_dir=str(folder))
        library.replace(path)


def write_in_time(
    kernels: Sequence[DeviceKernel], path: Path, limit_s: float, begun: Path | None = None
) -> None:
    """Compile kernels in a process of its own, which ends after so much processor time in seconds.

    Parameters
    ----------
    begun
        Folder for what is not complete, on the file system of `path`; None takes that of `path`.
    """
    with ends_after(limit_s):
        _write_library(kernels, path, begun)


def _write_noted(
    kernel: DeviceKernel, path: Path, limit_s: float, notes: Path, begun: Path
) -> None:
    with noted_in(notes, kernel.symbol):
        write_in_time([kernel], path, limit_s, begun)


def _size(kernel: DeviceKernel) -> int:
    nodes = 1

    def count(_: tvm.ir.Call) -> None:
        nonlocal nodes
        nodes += 1

    tvm_ffi.structural_walk(kernel.func.body, (tvm.ir.Call, count))
    return nodes


def _delete_unused(parent: Path, keep: Path) -> None:
    """Delete the folders of versions that were not used for a month."""
    os.utime(keep)
    oldest_s = time.time() - _UNUSED_DAYS * 86_400
    for folder in parent.iterdir():
        if folder != keep and folder.is_dir() and folder.stat().st_mtime < oldest_s:
            shutil.rmtree(folder, ignore_errors=True)
