"""The best schedule so far."""

from __future__ import annotations

from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.request import Request


class Incumbent:
    """The best schedule offered so far."""

    def __init__(self, problem: Problem, request: Request) -> None:
        self.problem = problem
        self.request = request
        self.schedule: Schedule | None = None
        self.value: float | None = None
        self.source = ""

    def offer(self, schedule: Schedule | None, source: str, value: float | None = None) -> None:
        """Take `schedule` if the validator accepts it and it is better.

        `value` is the validated value, if it is known.
        """
        if value is None:
            value = self.request.value_of(self.problem, schedule)
        if value is not None and (self.value is None or value < self.value):
            self.schedule, self.value, self.source = schedule, value, source
            self.request.say_found(value, source)
            if schedule is not None and self.request.on_better is not None:
                self.request.on_better(value, schedule)

    @property
    def best(self) -> tuple[float, Schedule] | None:
        """(value, schedule) of the best so far."""
        if self.value is None or self.schedule is None:
            return None
        return self.value, self.schedule
