"""What is in use at the same time where devices and links run side by side, for layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_xengine.scheduling.residency import Instance, Residency


@dataclass(frozen=True)
class Timeline:
    """When the steps of a schedule run.

    Attributes
    ----------
    intervals_us
        Start and end of each step.
    slack_us
        How much later than that a step may end.
    """

    intervals_us: Sequence[tuple[float, float]]
    slack_us: float = 0.0


class Lives:
    """Times of use on a timeline as intervals of whole numbers, which overlap if the times do.

    The numbers follow those of the steps, so that an interval of steps overlaps none of them.
    """

    def __init__(self, timeline: Timeline, residency: Residency) -> None:
        self._intervals_us, self._slack_us = timeline.intervals_us, timeline.slack_us
        self._steps = len(timeline.intervals_us)
        starts_us, ends_us = np.array([*timeline.intervals_us, (0.0, 0.0)]).T
        self._end_us = float(ends_us.max()) + self._slack_us
        self._moments_us = np.unique(np.concatenate([starts_us, ends_us + self._slack_us]))
        self._used_until_us = [0.0] * len(residency.instances)
        for (_, end_us), access in zip(timeline.intervals_us, residency.accesses, strict=True):
            for instance in (*access.reads.values(), *access.writes.values()):
                self._used_until_us[instance] = max(self._used_until_us[instance], end_us)

    def of_instance(self, instance: Instance) -> tuple[int, int]:
        """From its first use to its last one; what is there before or after the step is used till then."""
        begin_us = 0.0 if instance.start < 0 else self._intervals_us[instance.start][0]
        stays = instance.end >= self._steps
        until_us = self._used_until_us[instance.id] + self._slack_us
        return self._numbers(begin_us, self._end_us if stays else until_us)

    def of_step(self, position: int) -> tuple[int, int]:
        """While a step runs."""
        begin_us, end_us = self._intervals_us[position]
        return self._numbers(begin_us, end_us + self._slack_us)

    def _numbers(self, begin_us: float, end_us: float) -> tuple[int, int]:
        begin, end = np.searchsorted(self._moments_us, (begin_us, end_us)).tolist()
        first = self._steps + 1 + begin
        return first, max(first, self._steps + end)
