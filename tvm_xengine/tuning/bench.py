"""Where the candidates of a search are timed: in this process, or on boards, several at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Protocol, TypeVar

import numpy as np
import tvm

from tvm_xengine.cost_models.measure.measurements import typical_us
from tvm_xengine.cost_models.measure.rpc_timer import RpcTimer, boards_at
from tvm_xengine.cost_models.measure.this_machine import machine_of
from tvm_xengine.cost_models.measure.timing import (
    Effort,
    call_of,
    example_arguments,
    time_kernel_us,
)
from tvm_xengine.errors import BoardLostError, MeasurementError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.store.compile import compile_kernels

_logger = logging.getLogger(__name__)

_NOT_TIMED = (RuntimeError, TypeError, ValueError, MeasurementError)
"""Errors of kernels that do not compile or do not run."""

T = TypeVar("T")


class Bench(Protocol):
    """Compiles kernels and runs them."""

    def machine(self, kernel: DeviceKernel) -> str:
        """What a kernel is timed on, in words."""

    def times_us(self, kernels: Sequence[DeviceKernel], effort: Effort) -> list[float | None]:
        """Run time of each kernel, None where it does not run; as many at once as there are machines."""

    def outputs(self, kernel: DeviceKernel) -> list[np.ndarray]:
        """What a kernel makes of the example arguments."""


class BenchHere:
    """Runs kernels in this process."""

    def machine(self, kernel: DeviceKernel) -> str:
        """This machine."""
        return machine_of(kernel.target).processor or ""

    def times_us(self, kernels: Sequence[DeviceKernel], effort: Effort) -> list[float | None]:
        """One after the other."""
        return [_timed(_time_here_us, kernel, effort) for kernel in kernels]

    def outputs(self, kernel: DeviceKernel) -> list[np.ndarray]:
        """As of a `Bench`."""
        arguments = example_arguments(call_of(kernel))
        _compiled(kernel)(*arguments)
        return made_by(kernel, arguments)


class BenchOnBoards:
    """Boards of one kind behind TVM's RPC; where one is lost, the others go on.

    Parameters
    ----------
    addresses
        As `RpcTimer` takes them; of a tracker all boards of the key.

    Raises
    ------
    MeasurementError
        If nothing answers at one of them.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        compiling = threading.Lock()
        self._lock = threading.Lock()
        self._boards: SimpleQueue[RpcTimer | None] = SimpleQueue()
        self._left = 0
        for address in addresses:
            for _ in range(boards_at(address)):
                self._boards.put(RpcTimer(address, compiling))
                self._left += 1
        self._addresses = ", ".join(addresses)

    def machine(self, kernel: DeviceKernel) -> str:
        """The boards behind the addresses."""
        return f"boards behind {self._addresses}"

    def times_us(self, kernels: Sequence[DeviceKernel], effort: Effort) -> list[float | None]:
        """Each kernel on the next board that is free.

        Raises
        ------
        BoardLostError
            If no board is left.
        """
        with ThreadPoolExecutor(max(1, self._left)) as threads:
            return list(threads.map(lambda kernel: self._time_us(kernel, effort), kernels))

    def outputs(self, kernel: DeviceKernel) -> list[np.ndarray]:
        """As of a `Bench`."""

        def run(board: RpcTimer) -> list[np.ndarray]:
            board.prepare([kernel], None)
            return made_by(kernel, board.run(kernel))

        return self._on_a_board(run)

    def _time_us(self, kernel: DeviceKernel, effort: Effort) -> float | None:
        def timed(board: RpcTimer) -> float | None:
            board.prepare([kernel], None)
            return _timed(lambda k, e: typical_us(board.time_us(k, e), "wall"), kernel, effort)

        return self._on_a_board(timed)

    def _on_a_board(self, do: Callable[[RpcTimer], T]) -> T:
        """What is done on the next board that is free; on another one where it is lost."""
        while True:
            with self._lock:
                if not self._left:
                    raise BoardLostError(
                        f"no board at {self._addresses} answers any more; start the servers again and"
                        " run the command again: what was found is kept"
                    )
            board = self._boards.get()
            if board is None:  # the last one was lost meanwhile
                self._boards.put(None)
                continue
            try:
                found = do(board)
            except BoardLostError as error:
                self._lose(error)
                continue
            except BaseException:
                self._boards.put(board)
                raise
            self._boards.put(board)
            return found

    def _lose(self, error: BoardLostError) -> None:
        _logger.warning("%s", error)
        with self._lock:
            self._left -= 1
            if not self._left:
                self._boards.put(None)


def _timed(
    time_us: Callable[[DeviceKernel, Effort], float], kernel: DeviceKernel, effort: Effort
) -> float | None:
    try:
        return time_us(kernel, effort)
    except _NOT_TIMED as error:
        _logger.info("%s: a schedule does not work: %s", kernel.name, error)
        return None


def _time_here_us(kernel: DeviceKernel, effort: Effort) -> float:
    call = call_of(kernel)
    times_us = time_kernel_us(call, _compiled(kernel), effort)
    return typical_us(times_us, "wall" if call.is_threaded else "thread")


def _compiled(kernel: DeviceKernel) -> tvm.runtime.PackedFunc:
    return compile_kernels([kernel], kernel.target)[kernel.symbol]


def made_by(kernel: DeviceKernel, arguments: Sequence[tvm.runtime.Tensor]) -> list[np.ndarray]:
    """The results of a kernel among its arguments, once it has run."""
    first = len(kernel.inputs)
    return [np.asarray(a.numpy()) for a in arguments[first : first + len(kernel.outputs)]]
