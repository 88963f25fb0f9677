"""One time limit for all solves of a plan."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

LEAST_SOLVE_S = 0.25
"""A solve gets at least this long: in less, greedy does not end on a hundred ops."""
_GRACE_RATIO, _GRACE_S = 1.05, 1.0
"""Nothing new begins after so many times the limit and so many seconds. What runs then ends in as much
again, so that a plan is there within 1.1 times its limit and 2 s."""


@dataclass(frozen=True)
class Clock:
    """Remaining time of a time limit."""

    limit_s: float
    begun_s: float = field(default_factory=time.perf_counter)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self.begun_s

    @property
    def left_s(self) -> float:
        """Remaining seconds; negative when the time is up."""
        return self.limit_s - self.elapsed_s

    @property
    def is_over(self) -> bool:
        """Whether it is too late to begin anything."""
        return self.elapsed_s > _GRACE_RATIO * self.limit_s + _GRACE_S

    def share_s(self, share: float) -> float:
        """A share of the remaining time, for one solve."""
        return max(LEAST_SOLVE_S, share * self.left_s)
