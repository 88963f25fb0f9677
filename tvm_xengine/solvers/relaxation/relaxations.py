"""The time point relaxations of a problem, by their time points."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.indexed import IndexedProblem
from tvm_xengine.solvers.relaxation.choose import negligible_tensors
from tvm_xengine.solvers.relaxation.options import DEFAULTS, RelaxationOptions
from tvm_xengine.solvers.relaxation.periods import (
    Periods,
    ancestor_bits,
    depend_on_each_other,
    periods_in_every_order,
    periods_in_given_order,
)
from tvm_xengine.solvers.relaxation.rows.first_runs import StreamCut
from tvm_xengine.solvers.relaxation.time_points import TimePointModel, formulate_time_points
from tvm_xengine.solvers.result import Scope


@dataclass(frozen=True)
class Relaxations:
    """One for every set of time points, each proven for the same schedules.

    Attributes
    ----------
    scope
        Every schedule, or the given order.
    cuts
        Sets of what is on one stream, for the makespan.
    """

    indexed: IndexedProblem
    scope: Scope
    is_makespan: bool = False
    options: RelaxationOptions = DEFAULTS
    cuts: tuple[StreamCut, ...] = ()

    @cached_property
    def neglected(self) -> NDArray[np.bool_]:
        """Tensors that take no bytes in it, shape (J,)."""
        return negligible_tensors(self.indexed, self.options)

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """For each op, as bits, what must have run before; empty where the order is given."""
        return ancestor_bits(self.indexed) if self.scope is Scope.EVERY_SCHEDULE else ()

    def at(self, time_points: Collection[int]) -> TimePointModel:
        """The relaxation with these time points."""
        return formulate_time_points(
            self.indexed,
            self.periods(time_points),
            is_makespan=self.is_makespan,
            neglected=self.neglected,
            cuts=self.cuts,
        )

    def periods(self, time_points: Collection[int]) -> Periods:
        """The periods between these time points."""
        ordered = sorted(time_points)
        if self.scope is Scope.EVERY_SCHEDULE:
            return periods_in_every_order(self.indexed, ordered, self.ancestors)
        return periods_in_given_order(self.indexed, ordered)

    @property
    def may_float(self) -> bool:
        """Whether time points need not be a chain of dependences."""
        is_small = self.indexed.op_count <= self.options.floating_ops
        return self.scope is Scope.EVERY_SCHEDULE and is_small

    def columns(self, count: int) -> int:
        """About how many columns it has with `count` places of time points."""
        indexed = self.indexed
        tensors = int((~self.neglected).sum())
        per_period = indexed.device_count * (indexed.op_count + tensors)
        return (count + 1) * (per_period + len(indexed.links) * tensors)

    def fits(self, time_points: Collection[int], op: int) -> bool:
        """Whether `op` makes a chain of dependences with the time points, where it must."""
        return not self.ancestors or depend_on_each_other(self.ancestors, time_points, op)
