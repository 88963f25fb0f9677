"""Where the candidates of a search are timed: in this process, or on boards, several at a time."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
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
        _compiled(kernel)[kernel.symbol](*arguments)
        return made_by(kernel, arguments)


class BenchOnBoards:
    """Boards of one kind behind TVM's RPC; where one is lost, the others go on.

    A board is taken for some kernels and given back: a tracker lends it for a limited time, and what else
    measures in this command needs it, too.

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
        self._boards = [address for address in addresses for _ in range(boards_at(address))]
        self._named = ", ".join(addresses)
        self._compiling = threading.Lock()

    def machine(self, kernel: DeviceKernel) -> str:
        """The boards behind the addresses."""
        return f"boards behind {self._named}"

    def times_us(self, kernels: Sequence[DeviceKernel], effort: Effort) -> list[float | None]:
        """Each kernel on the next board that is free.

        Raises
        ------
        BoardLostError
            If no board is left.
        """

        def timed(board: RpcTimer, kernel: DeviceKernel) -> float | None:
            return _timed(lambda k, e: typical_us(board.time_us(k, e), "wall"), kernel, effort)

        return self._on_boards(timed, kernels)

    def outputs(self, kernel: DeviceKernel) -> list[np.ndarray]:
        """As of a `Bench`."""

        def made(board: RpcTimer, kernel: DeviceKernel) -> list[np.ndarray]:
            return made_by(kernel, board.run(kernel))

        return self._on_boards(made, [kernel])[0]

    def _on_boards(
        self, do: Callable[[RpcTimer, DeviceKernel], T], kernels: Sequence[DeviceKernel]
    ) -> list[T]:
        """What is done with each kernel, on as many boards at once as there are."""
        left, found = deque(range(len(kernels))), dict[int, T]()

        def work(address: str) -> BoardLostError | MeasurementError | None:
            """Do it until nothing is left, or the board is lost: with what."""
            try:
                with closing(RpcTimer(address, self._compiling)) as board:
                    while True:
                        try:
                            k = left.popleft()
                        except IndexError:
                            return None
                        try:
                            board.prepare([kernels[k]], None)
                            found[k] = do(board, kernels[k])
                        except (BoardLostError, MeasurementError):
                            left.append(k)
                            raise
            except (BoardLostError, MeasurementError) as error:
                return error

        while left:
            boards = self._boards[: len(left)]
            with ThreadPoolExecutor(max(1, len(boards))) as threads:
                lost = list(threads.map(work, boards))
            for address, error in zip(boards, lost, strict=True):
                if error is not None:
                    _logger.warning("%s", error)
                    self._boards.remove(address)
            if left and not self._boards:
                raise BoardLostError(
                    f"no board at {self._named} answers any more; start the servers again and run the"
                    " command again: what was found is kept"
                )
        return [found[k] for k in range(len(kernels))]


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


def _compiled(kernel: DeviceKernel) -> tvm.runtime.Module:
    return compile_kernels([kernel], kernel.target)


def made_by(kernel: DeviceKernel, arguments: Sequence[tvm.runtime.Tensor]) -> list[np.ndarray]:
    """The results of a kernel among its arguments, once it has run."""
    first = len(kernel.inputs)
    return [np.asarray(a.numpy()) for a in arguments[first : first + len(kernel.outputs)]]
