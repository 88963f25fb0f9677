"""The portfolio in one thread, so that the same work always has the same answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tvm_xengine.solvers.portfolio.board import Task
from tvm_xengine.solvers.portfolio.events import WorkEnded
from tvm_xengine.solvers.portfolio.workers.relaxations import rounds_of_bounds
from tvm_xengine.solvers.portfolio.workers.shortest_path import find_shortest_path
from tvm_xengine.solvers.result import Objective

_WALK_SHARE = 0.4
"""Of the work that is left for A*; the rest is for relaxations, where it does not end."""
PROOFS = "proofs"
"""The name of all workers that prove."""


class ProofsInTurns:
    """What proves, in steps between those of the search, each side as much work as the other.

    Parameters
    ----------
    task
        That of the search; its request counts work.
    is_over
        Whether to go on, after each step.
    """

    def __init__(self, task: Task, is_over: Callable[[], bool]) -> None:
        self._task, self._is_over = task, is_over
        self._clock = task.request.limits.clock
        self._steps = _steps(task)
        self._is_working, self._has_ended = False, False
        self._worked_s = 0.0

    def work(self, *, at_least_once: bool) -> None:
        """Work until the share of the proofs is as large as that of the search."""
        if self._is_working:  # the search is not what asks
            return
        if at_least_once and self._has_ended:
            self._task.board.stop.set()  # nothing changes any more
        while not self._has_ended and not self._is_over():
            searched_s = self._task.request.elapsed_s - self._worked_s
            if self._worked_s >= searched_s and not at_least_once:
                return
            at_least_once = False
            self._step()

    def _step(self) -> None:
        began_s = self._clock.now_s()
        self._is_working = True
        try:
            next(self._steps)
        except StopIteration:
            self._end(None)
        except Exception as error:
            self._end(error)
        finally:
            self._is_working = False
            self._worked_s += self._clock.now_s() - began_s

    def _end(self, error: Exception | None) -> None:
        self._has_ended = True
        self._task.post(WorkEnded(PROOFS, error))


def _steps(task: Task) -> Iterator[None]:
    """A* where the graph is small, and then round after round of relaxations."""
    options, request = task.options, task.request
    is_small = len(task.problem.graph.ops) <= options.open_ops
    if is_small and request.objective is not Objective.MAKESPAN:
        until_s = request.elapsed_s + min(options.walk_first_s, _WALK_SHARE * request.remaining_s)
        limits = replace(request.limits, time_limit_s=until_s)
        find_shortest_path(replace(task, request=replace(request, limits=limits)))
        yield
    yield from rounds_of_bounds(task)
