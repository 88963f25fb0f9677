"""Times at which the calls of a step begin and end, taken by compiled code."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count

import numpy as np
import tvm
from tvm import ir, tirx

from tvm_xengine.program.step_program import Call

MARK = "xengine_mark"
"""Function of `mark_function`; it takes the tensor of the times and the number of one."""


class Marks:
    """The begin and the end of each call of a program.

    Parameters
    ----------
    steps
        Positions of the calls in the schedule.

    Attributes
    ----------
    tensor
        The first argument of the function: seconds and nanoseconds of each time.
    last_us
        How long the last step took here, from the start of its threads to their end; 0 before the first
        one.
    """

    def __init__(self, steps: Sequence[int]) -> None:
        self._steps = steps
        self._number = {step: number for number, step in enumerate(self._steps)}
        self.tensor = tvm.runtime.tensor(np.zeros(max(1, 4 * len(steps)), "int64"))
        self.last_us = 0.0
        self._noted_us: dict[int, float] = {}

    def run(self, step: Callable[[], object]) -> None:
        """Run a step, and note how long it took."""
        begun_s = time.perf_counter()
        step()
        self.last_us = 1e6 * (time.perf_counter() - begun_s)

    def begin(self, call: Call) -> int:
        """Number of the time at which a call begins; that of its end follows."""
        return 2 * self._number[call.step]

    def note(self, number: int) -> None:
        """Take a time of a call that is not compiled code."""
        self._noted_us[number] = time.clock_gettime_ns(time.CLOCK_MONOTONIC) / 1e3

    @property
    def step_us(self) -> float:
        """How long the last step took."""
        return self.last_us

    @property
    def times_us(self) -> Mapping[int, float]:
        """The times that were taken in the last step, by their numbers, in microseconds of the clock."""
        seconds, nanoseconds = self.tensor.numpy().reshape(-1, 2).T
        compiled = zip(seconds.tolist(), nanoseconds.tolist(), count(), strict=False)
        return {
            **{number: 1e6 * whole + rest / 1e3 for whole, rest, number in compiled if whole},
            **self._noted_us,
        }

    @property
    def intervals_us(self) -> Mapping[int, tuple[float, float]]:
        """When each call began and ended, by its position in the schedule; the first began at 0.

        Empty where no step has run. Without calls there is no step.
        """
        times_us = self.times_us
        first_us = min(times_us.values(), default=0.0)
        return {
            step: (times_us[begin] - first_us, times_us[begin + 1] - first_us)
            for step, begin in zip(self._steps, count(step=2))
            if begin in times_us
        }


def mark_function(marks: Marks) -> dict[ir.GlobalVar, tirx.PrimFunc]:
    """The function that writes the time of the monotonic clock."""
    mark = tirx.Var("mark", "int64")
    words = tirx.decl_buffer(marks.tensor.shape, "int64", name="times")
    address = tirx.address_of(tirx.BufferLoad(words, [mark * 2]))
    clock = tirx.const(time.CLOCK_MONOTONIC, "int32")
    read = tirx.Evaluate(tirx.call_extern("int32", "clock_gettime", clock, address))
    function = tirx.PrimFunc([words, mark], read).with_attr("global_symbol", MARK)
    return {ir.GlobalVar(MARK): function}
