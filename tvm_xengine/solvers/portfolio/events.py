"""The events that workers post to the portfolio's loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.local_search.compiled.decisions import Decisions
from tvm_xengine.solvers.request import Proof


@dataclass(frozen=True)
class ScheduleFound:
    """A schedule that may be better than the best.

    Attributes
    ----------
    source
        The part that found it, as the result names it.
    value
        What the validator says of it; None if it was not asked yet.
    """

    schedule: Schedule
    source: str
    value: float | None = None


@dataclass(frozen=True)
class BoundProven:
    """A bound that holds for the schedules of its scope, or the proof that there are none."""

    proof: Proof


@dataclass(frozen=True)
class RelaxationSolved:
    """A relaxation has a new solution; `decisions` are a start for the search."""

    decisions: Decisions


@dataclass(frozen=True)
class WorkEnded:
    """A worker has nothing left to try, or gave up.

    Attributes
    ----------
    error
        Why it gave up; None if it did not.
    """

    worker: str
    error: Exception | None = None


Event = ScheduleFound | BoundProven | RelaxationSolved | WorkEnded
Post = Callable[[Event], None]
