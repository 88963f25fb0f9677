"""One time limit for all solves of a plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tvm_xengine.solvers.result import Limits
from tvm_xengine.solvers.time_source import MACHINE_TIME, TimeSource

LEAST_SOLVE_S = 0.25
"""A solve gets at least this long: in less, greedy does not end on a hundred ops."""
_GRACE_RATIO, _GRACE_S = 1.05, 1.0
"""Nothing new begins after so many times the limit and so many seconds. What runs then ends in as much
again, so that a plan is there within 1.1 times its limit and 2 s."""
_RETRY_SHARE = 0.5
"""Share of that grace for further attempts at a good plan; the rest is for a plan of any cost."""


def grace_s(limit_s: float) -> float:
    """How long after a time limit something may still begin."""
    return (_GRACE_RATIO - 1) * limit_s + _GRACE_S


@dataclass(frozen=True)
class Clock:
    """Remaining time of a time limit.

    Attributes
    ----------
    over_at_s
        When nothing new may begin, by `source`, if others share the grace.
    source
        By which time passes.
    begun_s
        What the source said when the clock was made.
    """

    limit_s: float
    over_at_s: float | None = None
    source: TimeSource = MACHINE_TIME
    begun_s: float = math.nan

    def __post_init__(self) -> None:
        if math.isnan(self.begun_s):
            object.__setattr__(self, "begun_s", self.source.now_s())

    @classmethod
    def of(cls, limits: Limits, over_at_s: float | None = None) -> Clock:
        """A clock by the limits of a plan."""
        return cls(limits.time_limit_s, over_at_s, limits.clock)

    @classmethod
    def shared(cls, limit_s: float, source: TimeSource = MACHINE_TIME) -> Clock:
        """A clock whose grace is that of all plans which are made from now on for one answer."""
        return cls(limit_s, source.now_s() + limit_s + grace_s(limit_s), source)

    def paused(self, pause_s: float) -> Clock:
        """The same clock, if it had stood still for so long; measuring is no work that is counted."""
        if self.source.counts_work:
            return self
        over_at_s = None if self.over_at_s is None else self.over_at_s + pause_s
        return replace(self, over_at_s=over_at_s, begun_s=self.begun_s + pause_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the clock was made."""
        return self.source.now_s() - self.begun_s

    @property
    def left_s(self) -> float:
        """Remaining seconds; negative when the time is up."""
        return self.limit_s - self.elapsed_s

    @property
    def is_late(self) -> bool:
        """Whether the limit is over by so much that work of less than a second should not begin."""
        return self.is_over or self.elapsed_s > _GRACE_RATIO * self.limit_s

    @property
    def is_over(self) -> bool:
        """Whether it is too late to begin anything."""
        return self.until_over_s <= 0

    @property
    def until_over_s(self) -> float:
        """Seconds in which something may still begin."""
        left_s = self.left_s + grace_s(self.limit_s)
        if self.over_at_s is None:
            return left_s
        return min(left_s, self.over_at_s - self.source.now_s())

    @property
    def until_late_s(self) -> float:
        """Seconds in which what runs has to end."""
        return self.until_over_s + grace_s(self.limit_s)

    @property
    def may_retry(self) -> bool:
        """Whether there is time for another attempt, and for a plan of any cost after it."""
        return self.until_over_s > (1 - _RETRY_SHARE) * grace_s(self.limit_s)

    def share_s(self, share: float) -> float:
        """A share of the remaining time, for one solve."""
        return max(LEAST_SOLVE_S, share * self.left_s)
