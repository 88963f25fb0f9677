"""One time limit for all that a plan asks of solvers."""

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
    """What is left of a time limit."""

    limit_s: float
    begun_s: float = field(default_factory=time.perf_counter)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self.begun_s

    @property
    def left_s(self) -> float:
        """What is left of the limit; negative when it is over."""
        return self.limit_s - self.elapsed_s

    @property
    def is_over(self) -> bool:
        """Whether nothing more may begin."""
        return self.elapsed_s > _GRACE_RATIO * self.limit_s + _GRACE_S

    def share_s(self, share: float) -> float:
        """A share of what is left, for a solve."""
        return max(LEAST_SOLVE_S, share * self.left_s)
