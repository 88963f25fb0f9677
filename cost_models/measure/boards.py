"""Kernels measured on several boards at once, each by a thread of this process."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass

from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.measurements import (
    Measurement,
    MeasurementCache,
    MeasurementFailure,
)
from tvm_xengine.cost_models.measure.rpc_timer import RpcTimer, boards_at
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.errors import BoardLostError, MeasurementError
from tvm_xengine.kernels.device_kernel import DeviceKernel, distinct_kernels
from tvm_xengine.kernels.store.kernel_store import OnProgress

_logger = logging.getLogger(__name__)

_AT_ONCE = 16
"""Kernels that a board takes at a time: as many as are linked into one library, and few enough that no
board waits long for the last one."""
_MOST_LOST = 2
"""A kernel with which so many boards were lost is to blame."""


def measure_on_boards(
    kernels: Mapping[str, Sequence[DeviceKernel]],
    cache: MeasurementCache,
    *,
    effort: Effort | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, dict[str, Measurement]]:
    """For each address the run time of its kernels, by symbol, from the cache or measured.

    All boards work at once. Those behind one address of a tracker are of one kind and share its kernels;
    a measurement names the board. Where a board is lost, the others do its part. The cache knows every
    timing at once, so the same command goes on where one was interrupted or ran out of boards.

    Parameters
    ----------
    kernels
        By address, as `RpcTimer` takes it.
    on_progress
        Called after every kernel with the number of kernels done, of all, and the name of the kernel.

    Raises
    ------
    BoardLostError
        When an address has no board any more and kernels are left; the one that ran when the last board
        was lost counts as failed, or it might end every run.
    MeasurementError
        When an address has no board to begin with; nothing is measured then.
    """
    effort = effort or Effort()
    boards = {address: boards_at(address) for address in kernels}
    progress = _Progress(sum(map(len, kernels.values())), on_progress)
    work = {address: _Work(mine, progress) for address, mine in kernels.items()}
    compiling = threading.Lock()
    with ThreadPoolExecutor(max(1, sum(boards.values()))) as threads:
        running = [
            threads.submit(_measure_on_one, address, work[address], cache, effort, compiling)
            for address, count in boards.items()
            for _ in range(count)
        ]
        try:
            for one in running:
                one.result()
        except BaseException:
            for mine in work.values():
                mine.end()
            raise
    for mine in work.values():
        mine.check(cache)
    return {address: mine.found for address, mine in work.items()}


@dataclass
class _Progress:
    all: int
    tell: OnProgress | None
    done: int = 0

    def add(self, count: int, name: str) -> None:
        self.done += count
        if self.tell is not None:
            self.tell(self.done, self.all, name)


class _Work:
    """The kernels of an address, of which each board takes some at a time."""

    def __init__(self, kernels: Iterable[DeviceKernel], progress: _Progress) -> None:
        self.found: dict[str, Measurement] = {}
        self._left = deque(distinct_kernels(list(kernels)))
        self._progress = progress
        self._taken = 0
        self._is_ended = False
        self._lost: list[tuple[BoardLostError | MeasurementError, MeasurementFailure | None]] = []
        self._changed = threading.Condition()

    def take(self) -> list[DeviceKernel]:
        """Some kernels; none once all are done. Waits while another board might give some back."""
        with self._changed:
            while not self._left and self._taken:
                self._changed.wait()
            taken = [self._left.popleft() for _ in range(min(_AT_ONCE, len(self._left)))]
            self._taken += bool(taken)
            return taken

    def done(self, kernels: Sequence[DeviceKernel], found: Mapping[str, Measurement]) -> None:
        """The result of what was taken."""
        with self._changed:
            self.found |= found
            self._taken -= 1
            self._progress.add(len(kernels), kernels[-1].name)
            self._changed.notify_all()

    def lose(
        self,
        kernels: Sequence[DeviceKernel],
        error: BoardLostError | MeasurementError,
        failure: MeasurementFailure | None,
    ) -> bool:
        """Give back what was taken by a board that is lost; whether its kernel is to blame."""
        with self._changed:
            self._left.extend(kernels)
            self._taken -= 1
            self._lost.append((error, failure))
            self._changed.notify_all()
            blamed = Counter(one.kernel for _, one in self._lost if one is not None)
            return failure is not None and blamed[failure.kernel] >= _MOST_LOST

    def end(self) -> None:
        """Leave the rest, and what the boards are at."""
        with self._changed:
            self._is_ended = True
            self._left.clear()
            self._changed.notify_all()

    def go_on(self, *_: object) -> None:
        """Between two timings: raise `CancelledError` once the work has ended."""
        if self._is_ended:
            raise CancelledError

    def check(self, cache: MeasurementCache) -> None:
        """Raise what the last board was lost with, if kernels are left."""
        if self._left:
            error, failure = self._lost[-1]
            if failure is not None:
                cache.add(failure)
            raise error
        for error, _ in self._lost:
            _logger.warning("%s; the other boards did its part", error)


def _measure_on_one(
    address: str,
    work: _Work,
    cache: MeasurementCache,
    effort: Effort,
    compiling: threading.Lock,
) -> None:
    """What a thread does: measure on a board until nothing is left, or the board is lost."""
    while taken := work.take():
        lost_with: list[MeasurementFailure] = []
        try:
            timer = RpcTimer(address, compiling)
            found = measure_kernels(
                *(taken, cache),
                effort=effort,
                timer=timer,
                on_progress=work.go_on,
                on_compiled=work.go_on,
                on_board_lost=lost_with.append,
            )
        except (BoardLostError, MeasurementError) as error:
            failure = lost_with[0] if lost_with else None
            if work.lose(taken, error, failure) and failure is not None:
                cache.add(failure)
            return
        except CancelledError:
            return
        except BaseException:
            work.end()
            raise
        work.done(taken, found)
