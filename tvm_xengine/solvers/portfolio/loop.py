"""The portfolio's loop: workers post events, and it alone owns the best schedule and the bounds."""

from __future__ import annotations

import math
import queue
import threading
import time

from tvm_xengine.errors import SolverUnavailableError
from tvm_xengine.scheduling.durations import format_amount
from tvm_xengine.solvers.portfolio.board import Board, Task
from tvm_xengine.solvers.portfolio.events import (
    BoundProven,
    Event,
    RelaxationSolved,
    ScheduleFound,
    WorkEnded,
)
from tvm_xengine.solvers.portfolio.in_turns import PROOFS, ProofsInTurns
from tvm_xengine.solvers.portfolio.incumbent import Incumbent
from tvm_xengine.solvers.portfolio.options import PortfolioOptions
from tvm_xengine.solvers.portfolio.proofs import Proofs
from tvm_xengine.solvers.portfolio.workers.choice import (
    SEARCH,
    SHORTEST_PATH,
    Worker,
    workers_for,
)
from tvm_xengine.solvers.portfolio.workers.search import search_in_turns
from tvm_xengine.solvers.request import Proof


def run_portfolio(
    best: Incumbent, floor: float, options: PortfolioOptions
) -> tuple[Proof, float, str]:
    """Improve `best` until its gap is proven or time is up.

    Returns the proof, the bound for schedules in the graph's order, and a note.

    Parameters
    ----------
    floor
        A bound for every schedule that is known already.
    """
    loop = _Loop(best, floor, options)
    if best.request.limits.clock.counts_work:
        loop.run_in_turns()
    else:
        loop.run()
    return loop.proof, loop.proofs.order_bound, "; ".join(loop.notes)


class _Loop:
    """Handles events one by one, and updates the board."""

    def __init__(self, best: Incumbent, floor: float, options: PortfolioOptions) -> None:
        self.best, self.request, self.options = best, best.request, options
        self.floor = floor
        self.proofs = Proofs(floor, self.request.limits.gap_ratio)
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.board = Board(best.best)
        self.working: set[str] = set()
        self.notes: list[str] = []
        self.threads: list[threading.Thread] = []

    def run_in_turns(self) -> None:
        """The same in turns, for a solve whose work is counted."""
        self.working = {SEARCH, PROOFS}
        proofs: list[ProofsInTurns] = []

        def handled(event: Event) -> None:
            self._handle(event)
            if self._is_over():
                self.board.stop.set()

        task = Task(
            *(self.best.problem, self.request, self.board, handled, self.options),
            others=lambda at_least_once: proofs[0].work(at_least_once=at_least_once),
        )
        proofs.append(ProofsInTurns(task, self._is_over))
        try:
            search_in_turns(task)
        except KeyboardInterrupt:
            self.request.stop.set()
        finally:
            proofs[0].end()
        if self.request.stop.is_set():
            self._interrupted()

    def _interrupted(self) -> None:
        self.request.stop.set()
        self.request.say("interrupted; this is the best so far")

    def run(self) -> None:
        """Run until the gap is closed, infeasibility is proven, all workers have ended, or time is up."""
        task = Task(self.best.problem, self.request, self.board, self.events.put, self.options)
        workers = workers_for(task)
        self.working = set(workers)
        self.threads = [
            threading.Thread(target=_work, args=(name, worker, task))
            for name, worker in workers.items()
        ]
        try:
            for thread in self.threads:
                thread.start()
            while not self._is_over():
                try:
                    self._handle(self.events.get(timeout=self.options.tick_s))
                except queue.Empty:
                    continue
        except KeyboardInterrupt:
            self._interrupted()
        finally:
            self._end()
        while not self.events.empty():
            self._handle(self.events.get())

    def _end(self) -> None:
        """End the workers, and wait for them unless one compiles the search or formulates a program.

        Those look at the board only afterwards; a time limit and an interruption are kept without them.
        """
        self.board.stop.set()
        until_s = time.perf_counter() + self.options.leave_s
        for thread in self.threads:
            if thread.is_alive():  # an interrupt may come before it is started
                thread.join(max(0.0, until_s - time.perf_counter()))

    @property
    def proof(self) -> Proof:
        """The proof for the best schedule."""
        return self.proofs.about(self.best.value, is_final=self._is_final)

    @property
    def _is_final(self) -> bool:
        """Whether a proof for some schedules only may end the solve."""
        options, limit_s = self.options, self.request.limits.time_limit_s
        if not self.board.is_proving:
            first_s = 0.0
        elif SHORTEST_PATH in self.working:
            first_s = options.walk_first_s
        else:
            first_s = options.general_share * limit_s
        if self.board.is_narrow:
            first_s = max(first_s, options.far_share * limit_s)
        return self.request.elapsed_s >= first_s

    def _is_over(self) -> bool:
        if self.request.is_over or not self.working:
            return True
        value, limits = self.best.value, self.request.limits
        elapsed_ratio = self.request.elapsed_s / limits.time_limit_s
        if value is None:
            return elapsed_ratio >= limits.give_up_share or self.proofs.general.is_infeasible
        is_poor = value > limits.good_ratio * self.floor
        if is_poor and elapsed_ratio >= limits.poor_share:
            return True
        return self.proofs.is_closed(value, self.proof)

    def _handle(self, event: Event) -> None:
        match event:
            case ScheduleFound(schedule, source, value):
                self.best.offer(schedule, source, value)
                self.board.best = self.best.best
            case BoundProven(proof):
                if self.proofs.add(proof) and math.isfinite(proof.bound):
                    shown = format_amount(proof.bound, self.request.objective.unit)
                    self.request.say(f"bound {shown} for {proof.scope.words}")
            case RelaxationSolved(decisions):
                self.board.hints.put(decisions)
            case WorkEnded(worker, error):
                self.working.discard(worker)
                self.board.is_proving = bool(self.working - {SEARCH})
                if error is not None:
                    self._note(worker, error)
        self.board.is_narrow = self._is_narrow()

    def _is_narrow(self) -> bool:
        value = self.best.value
        if value is None or self.proofs.about(value, is_final=True) is self.proofs.general:
            return False
        return value - self.proofs.general.bound > self.options.far_ratio * value

    def _note(self, worker: str, error: Exception) -> None:
        """Note why a proof is missing; the answer stands without it."""
        if worker == SEARCH:
            raise error
        if isinstance(error, SolverUnavailableError):
            self.notes.append(str(error))
        else:
            self.notes.append(f"a proof was given up after {type(error).__name__}: {error}")


def _work(name: str, worker: Worker, task: Task) -> None:
    """Run a worker; post that it ended, also after an error."""
    error: Exception | None = None
    try:
        worker(task)
    except Exception as caught:
        error = caught
    task.post(WorkEnded(name, error))
