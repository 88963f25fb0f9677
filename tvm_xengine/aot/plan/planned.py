"""Functions of a package with their plans, and where the state lies that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.aot.plan.kernels import LEAN
from tvm_xengine.compiler.lower import LoweredStep
from tvm_xengine.planning.plan import Plan
from tvm_xengine.program.step_program import ArenaView, Operand, Outside, OutsideView, StepProgram
from tvm_xengine.relax_ir.types import SHORT_FLOATS
from tvm_xengine.scheduling.schedule import Compute

Array = NDArray[np.generic]


@dataclass(frozen=True)
class PlannedFunction:
    """A function with its plan, its kernels and its straight-line program.

    Attributes
    ----------
    constants
        Values of the arrays in flash, by name.
    """

    lowered: LoweredStep
    plan: Plan
    program: StepProgram
    constants: Mapping[str, Array]

    @property
    def lean_kernels(self) -> int:
        """How many kernels are others than the usual ones, because these need more scratch memory."""
        return len({kernel for kernel, variant in self._variants if variant == LEAN})

    @property
    def tiled_kernels(self) -> int:
        """How many kernels run in tiles that are copied from and to slow memory meanwhile."""
        return len({kernel for kernel, variant in self._variants if variant != LEAN})

    @property
    def _variants(self) -> set[tuple[str, str]]:
        kernel_of = self.lowered.extraction.kernels
        runs = (step for step in self.plan.schedule.steps if isinstance(step, Compute))
        return {(kernel_of[run.op], run.variant) for run in runs if run.variant}

    @property
    def slices(self) -> int:
        """In so many slices of the batch it runs."""
        return self.lowered.slices


@dataclass(frozen=True)
class PlannedTraining:
    """A planned training step.

    Attributes
    ----------
    state
        Place of each state tensor, in order.
    state_end_bytes
        For each region, the end of the state in it: what must be kept between steps.
    keep_all_bytes
        Size of the first region's arena if all tensors were kept there, in slices only where a plan
        in slices is given.
    """

    function: PlannedFunction
    state: Mapping[str, ArenaView]
    state_end_bytes: Mapping[str, int]
    keep_all_bytes: int

    @property
    def layout(self) -> StateLayout:
        """The state as other functions find it."""
        graph = self.function.plan.problem.graph
        short = tuple(name for name in self.state if graph.tensor[name].dtype in SHORT_FLOATS)
        return StateLayout(self.state, self.state_end_bytes, short=short)


@dataclass(frozen=True)
class StateLayout:
    """Where the state lies that all functions of a package share.

    Attributes
    ----------
    state
        Place of each state tensor, in order.
    state_end_bytes
        For each region, the end of the state in it: what must be kept between calls.
    sums
        Place of each sum of gradients, behind the state; empty where none are made.
    sums_end_bytes
        For each region, the end of state and sums.
    short
        Names of the state tensors that are kept in a short type.
    """

    state: Mapping[str, ArenaView]
    state_end_bytes: Mapping[str, int]
    sums: Mapping[str, ArenaView] = field(default_factory=dict)
    sums_end_bytes: Mapping[str, int] = field(default_factory=dict)
    short: tuple[str, ...] = ()

    @property
    def places(self) -> dict[str, ArenaView]:
        """Of state and sums."""
        return {**self.state, **self.sums}

    @property
    def end_bytes(self) -> Mapping[str, int]:
        """Where the memory begins that a call may use while state and sums are kept."""
        return self.sums_end_bytes or self.state_end_bytes


def values_in_flash(
    lowered: LoweredStep, fixed: Mapping[str, Operand], values: Mapping[str, Array]
) -> dict[str, Array]:
    """The values behind the constants outside the arenas."""
    known = {**values, **lowered.constants}
    return {
        place.name: np.asarray(known[name])
        for name, place in fixed.items()
        if isinstance(place, OutsideView) and place.kind is Outside.CONSTANT
    }
