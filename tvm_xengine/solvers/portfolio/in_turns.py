"""The portfolio in turns, so that the same work always has the same answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from tvm_xengine.solvers.portfolio.board import Task
from tvm_xengine.solvers.portfolio.events import WorkEnded
from tvm_xengine.solvers.portfolio.workers.relaxations import rounds_of_bounds
from tvm_xengine.solvers.portfolio.workers.shortest_path import find_shortest_path
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.time_source import CountedWork

PROOFS = "proofs"
"""The name of all workers that prove."""


class ProofsInTurns:
    """What proves, in a thread that works while the search waits and waits while it works.

    Each side has a clock of its own, and the other goes on where one is ahead. So the search does as much
    as it would alone, however long a step of a proof is. Worker processes run during the turns of both.

    Parameters
    ----------
    task
        That of the search; its request counts work.
    is_over
        Whether to end, asked after each turn.
    """

    def __init__(self, task: Task, is_over: Callable[[], bool]) -> None:
        self._task, self._is_over = task, is_over
        self._clock = CountedWork(self._give_back)
        self._begun_s = task.request.elapsed_s
        limits = replace(
            task.request.limits, time_limit_s=task.request.remaining_s, clock=self._clock
        )
        self._proving = replace(
            task,
            request=replace(task.request, limits=limits, started=0.0),
            others=lambda _at_least_once: self._clock.worked(task.options.tick_s),
        )
        self._turn = threading.Condition()
        self._is_working, self._has_ended = False, False
        self._interrupt: BaseException | None = None
        self._thread = threading.Thread(target=self._prove)

    def work(self, *, at_least_once: bool) -> None:
        """Let the proofs work until they have done as much as the search, or at least one piece."""
        is_resting = at_least_once
        while not self._has_ended and (at_least_once or self._ahead_s < 0) and not self._is_over():
            at_least_once = False
            self._take_turn()
        if self._is_over() or at_least_once:  # or nothing changes any more
            self._task.board.stop.set()
        if is_resting:
            self._task.request.limits.clock.worked(max(0.0, self._ahead_s))

    def end(self) -> None:
        """End the proofs."""
        self._task.board.stop.set()
        with self._turn:
            self._turn.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def _ahead_s(self) -> float:
        """What the proofs have done more than the search."""
        return self._clock.now_s() - (self._task.request.elapsed_s - self._begun_s)

    def _take_turn(self) -> None:
        with self._turn:
            self._is_working = True
            if self._thread.ident is None:
                self._thread.start()
            self._turn.notify_all()
            self._turn.wait_for(lambda: not self._is_working)
        if self._interrupt is not None:
            raise self._interrupt

    def _give_back(self) -> None:
        """Wait for the next turn, unless the proofs are behind; called where they have worked."""
        if self._ahead_s < 0:
            return
        with self._turn:
            self._is_working = False
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._is_working or self._task.board.stop.is_set())

    def _prove(self) -> None:
        error: Exception | None = None
        try:
            for _ in _steps(self._proving):
                pass
        except Exception as caught:
            error = caught
        except BaseException as caught:  # an interrupt, for the thread of the search
            self._interrupt = caught
        self._task.post(WorkEnded(PROOFS, error))
        with self._turn:
            self._has_ended, self._is_working = True, False
            self._turn.notify_all()


def _steps(task: Task) -> Iterator[None]:
    """A* where the graph is small, and then round after round of relaxations."""
    options, request = task.options, task.request
    is_small = len(task.problem.graph.ops) <= options.open_ops
    if is_small and request.objective is not Objective.MAKESPAN:
        until_s = request.elapsed_s + min(
            options.walk_first_s, options.walk_share * request.remaining_s
        )
        limits = replace(request.limits, time_limit_s=until_s)
        find_shortest_path(replace(task, request=replace(request, limits=limits)))
        yield
    yield from rounds_of_bounds(task)
