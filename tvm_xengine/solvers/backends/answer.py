"""Options and answers of backends; shared by every backend and the worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.program import Program


class Outcome(Enum):
    """Why a backend stopped."""

    OPTIMAL = "optimal"  # within the gap asked for
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"  # a limit, an interruption or a crash before any solution


@dataclass(frozen=True)
class BackendOptions:
    """When a backend stops and where it begins.

    Attributes
    ----------
    time_limit_s
        Wall clock inside the backend.
    gap_ratio
        Relative gap at which it may stop.
    start
        A solution to begin from; None without one.
    threads
        Threads that it may use.
    seed
        Of its random decisions.
    counts_work
        Whether the limit is one of counted work, so that the same program has the same answer always.
    """

    time_limit_s: float = 60.0
    gap_ratio: float = 0.0
    start: NDArray[np.float64] | None = None
    threads: int = 1
    seed: int = 0
    counts_work: bool = False


@dataclass(frozen=True)
class Answer:
    """What a backend found.

    Attributes
    ----------
    x, value
        The best solution and its objective; None without one.
    bound
        Lower bound on the objective as the backend claims it; minus infinity when it has none.
    message
        What a person should know.
    duals
        Of a linear program at its optimum, by how much that changes with the side of each row; None
        where the backend does not say.
    work_s
        The work that was counted.
    """

    outcome: Outcome
    x: NDArray[np.float64] | None
    value: float | None
    bound: float
    message: str = ""
    duals: NDArray[np.float64] | None = None
    work_s: float = 0.0


@dataclass(frozen=True)
class Incumbent:
    """A better solution, or a better bound, while a backend is still running.

    Attributes
    ----------
    work_s
        The work up to here, if it is counted and the backend waits for `GO_ON`.
    """

    x: NDArray[np.float64] | None
    value: float | None
    bound: float
    work_s: float | None = None


@dataclass(frozen=True)
class Unavailable:
    """A backend cannot run here, and why."""

    reason: str


GO_ON = b"\n"
"""What a worker that waits is sent."""
Report = Callable[[Incumbent], None]
SolveProgram = Callable[[Program, BackendOptions, Report], Answer | Unavailable]
RunProgram = Callable[[Program, BackendOptions, float], Answer]
"""Solves a program; what it is given last is a bound that is known already."""
