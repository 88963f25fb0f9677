"""Runs a backend in a worker process, so that a crash or kill affects only that run."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import SolverUnavailableError
from tvm_xengine.processes.held_signals import interrupts_held
from tvm_xengine.solvers.backends.answer import (
    GO_ON,
    Answer,
    BackendOptions,
    Incumbent,
    Outcome,
    Unavailable,
)
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.published.retention import RetentionProgram

_GRACE_S = 1.5
"""How long past its own time limit, which begins once its library is loaded, a worker may take before
it is killed; what it has sent by then counts. A plan may take 2 s beyond its time limit."""
_NAP_S = 0.05
"""Between looks at whether the solve was interrupted."""


@dataclass(frozen=True)
class News:
    """Who is told, from a thread, while a backend works.

    Attributes
    ----------
    on_incumbent
        Of every better solution and its value.
    on_bound
        Of every better bound.
    on_work
        Where work is counted, of each further piece of it, while the worker does the next; says whether to
        go on.
    """

    on_incumbent: Callable[[NDArray[np.float64], float], None] = lambda _x, _value: None
    on_bound: Callable[[float], None] = lambda _bound: None
    on_work: Callable[[float], bool] = lambda _work_s: True


NOBODY = News()


class BackendRun:
    """One run of a backend; `answer` starts it and returns the best solution found, however it ended.

    Parameters
    ----------
    backend
        A key of `tvm_xengine.solvers.backends.table.backends`.
    floor
        A bound that is known without the backend; what it claims below, or nonsense, is raised
        to it.
    before_s
        The first piece of work, which is counted as the worker starts.
    """

    def __init__(
        self,
        backend: str,
        program: Program | RetentionProgram,
        options: BackendOptions,
        *,
        floor: float = -math.inf,
        news: News = NOBODY,
        before_s: float = 0.0,
    ) -> None:
        self._backend = backend
        self._program = program
        self._options = options
        self._floor = floor
        self._news = news
        self._before_s, self._worked_s = before_s, 0.0
        self._best: tuple[NDArray[np.float64], float] | None = None
        self._bound = floor
        self._ending: Answer | Unavailable | None = None
        self._is_cancelled = False
        self._process: subprocess.Popen[bytes] | None = None
        self._conversation = threading.Thread(target=self._converse, daemon=True)

    @property
    def bound(self) -> float:
        """The best bound so far, never below the floor."""
        return self._bound

    def cancel(self) -> None:
        """Stop the worker, from any thread; `answer` then returns what it had found."""
        self._is_cancelled = True
        if self._process is not None:
            self._process.kill()

    def answer(self, stop: threading.Event | None = None) -> Answer:
        """Run the worker and return its answer, or the best so far once `stop` is set.

        A KeyboardInterrupt sets `stop`; without one it is raised. The worker ends in any case.

        Raises
        ------
        SolverUnavailableError
            If the backend cannot run here.
        """
        late = False
        try:
            with interrupts_held():  # an interrupt finds no worker, or one that can be killed
                self._start()
            late = not self._wait(stop)
        except KeyboardInterrupt:
            if stop is None:
                raise
            stop.set()
            self._is_cancelled = True
        finally:
            if self._process is not None:
                self._process.kill()
                self._conversation.join()
                self._process.wait()
        if isinstance(self._ending, Unavailable):
            raise SolverUnavailableError(f"{self._backend}: {self._ending.reason}")
        if self._ending is not None:
            return self._clamped(self._ending)
        if self._is_cancelled:
            reason = "interrupted"
        elif late:
            reason = f"killed {_GRACE_S:g} s after its time limit"
        else:
            status = None if self._process is None else self._process.returncode
            reason = f"the worker died (exit status {status})"
        if self._best is None:
            return Answer(Outcome.UNKNOWN, None, None, self._bound, reason)
        x, value = self._best
        return Answer(Outcome.FEASIBLE, x, value, min(self._bound, value), reason)

    def _start(self) -> None:
        """Start the worker, and the thread that hears it."""
        module = "tvm_xengine.solvers.backends.worker"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, self._backend, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._conversation.start()

    def _wait(self, stop: threading.Event | None) -> bool:
        """Whether the worker has ended in its time, or was told to."""
        options = self._options
        limit_s = math.inf if options.counts_work else options.time_limit_s + _GRACE_S
        deadline = time.perf_counter() + limit_s
        while self._conversation.is_alive() and time.perf_counter() < deadline:
            self._conversation.join(_NAP_S)
            if self._is_cancelled or (stop is not None and stop.is_set()):
                self._is_cancelled = True
                return True
        return not self._conversation.is_alive()

    def _converse(self) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return
        stdin, stdout = process.stdin, process.stdout
        try:
            with stdin, stdout:
                pickle.dump((self._program, self._options), stdin)
                stdin.flush()
                self._is_cancelled |= not self._may_go_on(self._before_s)
                while self._ending is None and not self._is_cancelled:
                    message = pickle.load(stdout)
                    if isinstance(message, Incumbent) and message.work_s is not None:
                        stdin.write(GO_ON)
                        stdin.flush()
                    self._take(message)
        except (EOFError, OSError, pickle.UnpicklingError):
            return  # the worker died or was killed; what it sent before counts

    def _take(self, message: object) -> None:
        match message:
            case Incumbent(x, value, bound, work_s):
                if math.isfinite(bound) and bound > self._bound:
                    self._bound = bound
                    self._news.on_bound(bound)
                if (
                    x is not None
                    and value is not None
                    and (self._best is None or value < self._best[1])
                ):
                    self._best = x, value
                    self._news.on_incumbent(x, value)
                if work_s is not None:
                    self._is_cancelled |= not self._may_go_on(work_s)
            case Answer() | Unavailable():
                self._ending = message
                if isinstance(message, Answer) and self._options.counts_work:
                    self._may_go_on(message.work_s)

    def _may_go_on(self, work_s: float) -> bool:
        """Tell of the work up to a point; whether to go on from there."""
        further_s, self._worked_s = work_s - self._worked_s, work_s
        return self._news.on_work(further_s)

    def _clamped(self, answer: Answer) -> Answer:
        """The answer with a valid bound, and a note if the bound was changed."""
        if answer.outcome is Outcome.INFEASIBLE:
            return answer
        bound, note = answer.bound, answer.message
        if not math.isfinite(bound) or bound < self._floor:
            bound = self._floor
            note += f"; its bound {answer.bound:g} was raised to {bound:g}"
        if answer.value is not None and bound > answer.value:
            bound = answer.value
        return replace(answer, bound=bound, message=note)


def run_backend(
    backend: str,
    program: Program | RetentionProgram,
    options: BackendOptions | None = None,
    *,
    floor: float = -math.inf,
    news: News = NOBODY,
    stop: threading.Event | None = None,
) -> Answer:
    """Solve `program` with the backend of that name and wait for the answer.

    Raises
    ------
    SolverUnavailableError
        If the backend cannot run here.
    """
    run = BackendRun(backend, program, options or BackendOptions(), floor=floor, news=news)
    return run.answer(stop)
