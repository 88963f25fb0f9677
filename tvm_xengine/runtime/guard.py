"""A guard against values that are not finite: a step leaves a finite state, or the state before it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tvm_xengine.errors import NotFiniteError
from tvm_xengine.runtime.comparison import timed_run
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.inputs import first_not_finite


class FiniteGuard:
    """Runs steps as transactions: one that fails, or makes a NaN or an infinity, is undone.

    A step updates its state in place, so the guard copies the updated tensors before each step and
    reads them once after it. It costs that copy and that pass over the updated state in time, and
    ``cost_bytes`` of host memory in addition to the arenas.

    Parameters
    ----------
    executable
        What runs; its state must have been written.
    """

    def __init__(self, executable: StepExecutable) -> None:
        self._executable = executable
        self._before = executable.read_state(executable.interface.updated)
        self.steps = 0
        if (name := first_not_finite(self._before)) is not None:
            raise NotFiniteError(f"{name} is not finite before the first step", name)

    @property
    def cost_bytes(self) -> int:
        """Host memory that holds the state before the step."""
        return sum(array.nbytes for array in self._before.values())

    def write(self, batch: Mapping[str, ArrayLike]) -> None:
        """Write the inputs of the next step.

        Raises
        ------
        NotFiniteError
            If a floating-point input is not finite; nothing was written then.
        """
        arrays = self._executable.check(batch)
        if (name := first_not_finite(arrays)) is not None:
            raise NotFiniteError(
                f"step {self.steps + 1}: the input {name} is not finite; the step was not taken",
                name,
            )
        self._executable.write(arrays)

    def run(self) -> float:
        """Run the step; its wall clock in microseconds. One that fails or is interrupted is undone."""
        try:
            return timed_run(self._executable)
        except BaseException:
            self._executable.write(self._before)
            raise

    def settle(self) -> dict[str, NDArray[np.generic]]:
        """The results of the step that was run, when they and the new state are finite.

        Raises
        ------
        NotFiniteError
            If they are not; the state before the step is in place again.
        """
        results = self._executable.read_results()
        after = self._executable.read_state(self._executable.interface.updated)
        if (name := first_not_finite({**results, **after})) is not None:
            self._executable.write(self._before)
            raise NotFiniteError(
                f"step {self.steps + 1}: {name} is not finite; the state of step {self.steps} is"
                " restored. Try a smaller learning rate",
                name,
            )
        self._before = after
        self.steps += 1
        return results
