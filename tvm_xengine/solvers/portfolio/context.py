"""What the relaxations of one worker share: the best schedule, the decoder, proposals."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.backends.answer import RunProgram
from tvm_xengine.solvers.indexed import Floats
from tvm_xengine.solvers.local_search.carry_out import Proposal, RelaxationDecoder
from tvm_xengine.solvers.portfolio.backend import run_for
from tvm_xengine.solvers.portfolio.board import Task
from tvm_xengine.solvers.portfolio.events import RelaxationSolved, ScheduleFound
from tvm_xengine.solvers.relaxation.time_points import TimePointModel
from tvm_xengine.solvers.result import Scope


class Context:
    """Reads the best schedule, carries solutions out and posts what they lead to.

    Attributes
    ----------
    sufficed
        Time points of a relaxation in the order of a schedule whose solution fits the budgets.

    Parameters
    ----------
    decoder
        Carries solutions out; None leaves that out.
    """

    def __init__(self, task: Task, decoder: RelaxationDecoder | None = None) -> None:
        self.task = task
        self.sufficed: frozenset[int] = frozenset()
        self._decoder = decoder
        self._proposal: Proposal | None = None

    @classmethod
    def of(cls, task: Task) -> Context:
        """A context that carries solutions out."""
        return cls(task, RelaxationDecoder(task.problem, task.request.objective))

    def solver(self, scope: Scope | None) -> RunProgram:
        """What solves programs whose bounds hold for `scope`; None: for nothing."""
        return partial(run_for, self.task, scope)

    def carry_out(
        self, model: TimePointModel, x: NDArray[np.float64] | None, near: Schedule | None = None
    ) -> Floats | None:
        """Share of a budget that the solution needs around the first run of each op, shape (n,).

        None without a solution, or where it cannot be carried out.

        Parameters
        ----------
        near
            A schedule in the model's order of first runs to stay close to.
        """
        if x is None or self._decoder is None:
            return None
        best = self.task.best
        found = self._decoder.carry_out(model, x, near=near, best=best[1] if best else None)
        for schedule in found.schedules:
            self.task.post(ScheduleFound(schedule, "relaxation"))
        if found.decisions is not None:
            self.task.post(RelaxationSolved(found.decisions))
        self._proposal = found.proposal or self._proposal
        return found.pressure

    def take_proposal(self) -> Proposal | None:
        """A cheap schedule in a new order that breaks a budget, and its time points; once."""
        found, self._proposal = self._proposal, None
        return found
