"""Timers of kernels: in this process, in a separate one, or on a board behind RPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Protocol

import tvm
from loky import ProcessPoolExecutor
from tvm.target import Target

from tvm_xengine.cost_models.measure.machine import Machine
from tvm_xengine.cost_models.measure.sentinel import Sentinel
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint, machine_of
from tvm_xengine.cost_models.measure.timing import (
    Effort,
    KernelCall,
    call_of,
    time_kernel_us,
    uses_threads,
)
from tvm_xengine.errors import MeasurementError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.sources import library_source
from tvm_xengine.kernels.store.compile import module_groups
from tvm_xengine.kernels.store.compile_limit import COMPILE_LIMIT_S
from tvm_xengine.kernels.store.kernel_store import (
    KernelStore,
    OnProgress,
    load_kernels,
    write_in_time,
)
from tvm_xengine.kernels.threads.settings import thread_settings
from tvm_xengine.kernels.threads.team import load_library
from tvm_xengine.processes.pools import kept_worker, worker_processes

_KERNELS_PER_LIBRARY = 16
"""Linking costs as much as compiling some kernels; a library that fails is compiled again one by
one."""

_START_S = 300.0
"""Seconds that a new process may take to load the compiler, on a machine that is busy."""


class Timer(Protocol):
    """Compiles kernels, then times them one by one, as often as asked."""

    def device(self, target: Target) -> str:
        """Fingerprint of the device that kernels of a target are timed on."""

    def machine(self, target: Target) -> Machine:
        """The machine that kernels of a target are timed on."""

    def clock(self, kernel: DeviceKernel) -> str:
        """``thread``, the time a thread was computing, or ``wall``."""

    def prepare(self, kernels: Sequence[DeviceKernel], on_compiled: OnProgress | None) -> None:
        """Compile what will be timed."""

    def time_us(self, kernel: DeviceKernel, effort: Effort) -> tuple[float, ...]:
        """Batches of one round; MeasurementError when the kernel cannot be timed."""

    def sentinel(self) -> Sentinel | None:
        """What shows how fast the machine is that kernels are timed on, None where nothing does."""

    def close(self) -> None:
        """Give back what was taken."""


class _OnThisMachine:
    """What all timers here have in common."""

    def device(self, target: Target) -> str:
        """This machine."""
        return device_fingerprint(target)

    def machine(self, target: Target) -> Machine:
        """This machine."""
        return machine_of(target)

    def clock(self, kernel: DeviceKernel) -> str:
        """Several threads have only the wall clock in common."""
        return "wall" if uses_threads(kernel) else "thread"

    def sentinel(self) -> Sentinel:
        """This machine is watched."""
        return Sentinel()


class TimerHere(_OnThisMachine):
    """Times kernels in this process, which a kernel that crashes takes with it."""

    def __init__(self) -> None:
        self._modules: Mapping[str, tvm.runtime.Module] = {}

    def prepare(self, kernels: Sequence[DeviceKernel], on_compiled: OnProgress | None) -> None:
        """Compile in this process."""
        self._modules = load_kernels(kernels, None, on_compiled)

    def time_us(self, kernel: DeviceKernel, effort: Effort) -> tuple[float, ...]:
        """Call the kernel here."""
        return time_kernel_us(call_of(kernel), self._modules[kernel.symbol], effort)

    def close(self) -> None:
        """Nothing to give back."""


Libraries = Callable[[Sequence[DeviceKernel], OnProgress | None], Mapping[str, Path]]
"""Compiles kernels; says for each symbol which shared library holds it, if it compiles at all."""


def kept_libraries(store: KernelStore) -> Libraries:
    """One library for each kernel, kept in a store."""

    def compile_all(
        kernels: Sequence[DeviceKernel], on_compiled: OnProgress | None
    ) -> dict[str, Path]:
        store.load(kernels, on_compiled)
        return {kernel.symbol: store.path(kernel.symbol) for kernel in kernels}

    return compile_all


def passing_libraries(folder: Path, limit_s: float = COMPILE_LIMIT_S) -> Libraries:
    """One library for some kernels at a time, which is faster where they are used only once.

    Parameters
    ----------
    folder
        Belongs to the caller, who deletes it.
    limit_s
        Processor time in seconds after which a kernel is left out.
    """

    def compile_all(
        kernels: Sequence[DeviceKernel], on_compiled: OnProgress | None
    ) -> dict[str, Path]:
        paths: dict[str, Path] = {}
        tried = 0
        for group in module_groups(kernels):
            for start in range(0, len(group), _KERNELS_PER_LIBRARY):
                chunk = group[start : start + _KERNELS_PER_LIBRARY]
                paths |= _written_apart(chunk, folder, limit_s)
                tried += len(chunk)
                if on_compiled is not None:
                    on_compiled(tried, len(kernels), chunk[-1].name)
        return paths

    return compile_all


def _written_apart(
    kernels: Sequence[DeviceKernel], folder: Path, limit_s: float
) -> dict[str, Path]:
    """Compile kernels into one library; alone those that do not compile together.

    The process that does it, which may be stuck or die, is kept for the next call.
    """
    path = folder / f"{kernels[0].symbol}.so"
    executor = kept_worker()
    try:
        executor.submit(write_in_time, kernels, path, limit_s).result()
    except BrokenExecutor:
        if len(kernels) == 1:
            return {}
        alone = [_written_apart([kernel], folder, limit_s) for kernel in kernels]
        return {symbol: found for paths in alone for symbol, found in paths.items()}
    return {kernel.symbol: path for kernel in kernels}


class IsolatedTimer(_OnThisMachine):
    """Times kernels in a process of their own, which may crash or hang.

    After that a new process goes on with the next kernel. A kernel whose library was removed since it
    was compiled is timed in this process.
    """

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self._paths: dict[str, Path] = {}
        self._executor: ProcessPoolExecutor | None = None

    def prepare(self, kernels: Sequence[DeviceKernel], on_compiled: OnProgress | None) -> None:
        """Compile into libraries, once each."""
        missing = [kernel for kernel in kernels if kernel.symbol not in self._paths]
        self._paths |= self._libraries(missing, on_compiled) if missing else {}

    def time_us(self, kernel: DeviceKernel, effort: Effort) -> tuple[float, ...]:
        """Call the kernel in the other process."""
        if kernel.symbol not in self._paths:
            raise MeasurementError(
                f"kernel {kernel.name} does not compile: it takes too long, or too much memory"
            )
        if self._executor is None:
            self._executor = worker_processes(1, thread_settings())
            # Loading the compiler may take longer than a kernel may hang.
            self._executor.submit(_load_compiler).result(timeout=_START_S)
        path = self._paths[kernel.symbol]
        future = self._executor.submit(_time_library_us, path, call_of(kernel), effort)
        try:
            return tuple(future.result(timeout=effort.hang_s))
        except BrokenExecutor as error:
            self.close()
            raise MeasurementError(
                f"kernel {kernel.name} crashed the process that ran it"
            ) from error
        except FutureTimeoutError as error:
            self.close()
            raise MeasurementError(
                f"kernel {kernel.name} did not end within {effort.hang_s:g} s"
            ) from error
        except OSError:
            here = TimerHere()
            here.prepare([kernel], None)
            return here.time_us(kernel, effort)

    def close(self) -> None:
        """End the process."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
        self._executor = None


def timer_for(store: KernelStore | None) -> Timer:
    """A process of its own where there is a store to load libraries from."""
    return (
        TimerHere() if store is None or not store.is_kept else IsolatedTimer(kept_libraries(store))
    )


def _load_compiler() -> str:
    return str(tvm.__version__)


def _time_library_us(path: Path, call: KernelCall, effort: Effort) -> tuple[float, ...]:
    if call.library is not None:
        library_source(call.library.source).load()  # before the code that calls it
    return time_kernel_us(call, load_library(path), effort)
