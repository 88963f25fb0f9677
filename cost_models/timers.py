"""Where kernels are timed: in this process, in one of its own, or on a board behind RPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Protocol

import tvm
from loky import ProcessPoolExecutor

from tvm_xengine.codegen.device_kernel import DeviceKernel
from tvm_xengine.codegen.kernel_store import KernelStore, OnProgress, load_kernels
from tvm_xengine.cost_models.timing import Effort, KernelCall, call_of, time_kernel_us
from tvm_xengine.errors import MeasurementError


class Timer(Protocol):
    """Compiles kernels, then times them one by one, as often as asked."""

    def prepare(self, kernels: Sequence[DeviceKernel], on_compiled: OnProgress | None) -> None:
        """Compile what will be timed."""

    def time_us(self, kernel: DeviceKernel, effort: Effort) -> tuple[float, ...]:
        """Batches of one round; MeasurementError when the kernel cannot be timed."""

    def close(self) -> None:
        """Give back what was taken."""


class TimerHere:
    """Times kernels in this process, which a kernel that crashes takes with it."""

    def __init__(self) -> None:
        self._modules: Mapping[str, tvm.runtime.Module] = {}

    def prepare(self, kernels: Sequence[DeviceKernel], on_compiled: OnProgress | None) -> None:
        """Compile in this process."""
        self._modules = load_kernels(kernels, None, on_compiled)

    def time_us(self, kernel: DeviceKernel, effort: Effort) -> tuple[float, ...]:
        """Call the kernel here."""
        function = self._modules[kernel.symbol][kernel.symbol]
        return time_kernel_us(call_of(kernel), function, effort)

    def close(self) -> None:
        """Nothing to give back."""


class IsolatedTimer:
    """Times kernels of a store in a process of their own, which may crash or hang.

    After that a new process goes on with the next kernel.
    """

    def __init__(self, store: KernelStore) -> None:
        self._store = store
        self._executor: ProcessPoolExecutor | None = None

    def prepare(self, kernels: Sequence[DeviceKernel], on_compiled: OnProgress | None) -> None:
        """Compile into the store."""
        self._store.load(kernels, on_compiled)

    def time_us(self, kernel: DeviceKernel, effort: Effort) -> tuple[float, ...]:
        """Call the kernel in the other process."""
        if self._executor is None:
            self._executor = ProcessPoolExecutor(1)
        path = self._store.path(kernel.symbol)
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

    def close(self) -> None:
        """End the process."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
        self._executor = None


def timer_for(store: KernelStore | None) -> Timer:
    """A process of its own where there is a store to load libraries from."""
    return TimerHere() if store is None or not store.is_kept else IsolatedTimer(store)


def _time_library_us(path: Path, call: KernelCall, effort: Effort) -> tuple[float, ...]:
    return time_kernel_us(call, tvm.runtime.load_module(str(path))[call.symbol], effort)


TimerFactory = Callable[[], Timer]
