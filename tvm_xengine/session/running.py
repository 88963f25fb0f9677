"""The compiled step while it trains: guarded, compared, its results kept."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_xengine.compiler.build import build_step
from tvm_xengine.compiler.plan import plan_keep_all
from tvm_xengine.explain.names import Names
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.runtime.comparison import Comparison, ReferenceRun, timed_run
from tvm_xengine.runtime.executable import StepExecutable
from tvm_xengine.runtime.shared_arenas import ArenaPart
from tvm_xengine.runtime.transactions import Transactions
from tvm_xengine.session.stages.plan import StepPlan


class Running:
    """A compiled plan that takes steps.

    Parameters
    ----------
    plan
        What to run.
    arenas
        What it sees of arenas that it shares with others; None allocates its own.

    Attributes
    ----------
    executable
        The program and its arenas, with the initial state.
    last_step_us
        Wall clock of the last step, without copying the batch in.
    """

    def __init__(self, plan: StepPlan, arenas: Mapping[str, ArenaPart] | None = None) -> None:
        lowered = plan.lowered
        self._plan = plan
        self.executable: StepExecutable = build_step(
            plan.planned.lowered,
            plan.plan,
            store=lowered.stores.kernels,
            on_compiled=lowered.reporter.stage("compiling kernels"),
            arenas=arenas,
        )
        self.executable.write(lowered.training.step.initial_state)
        self.last_step_us = 0.0
        self._transactions: Transactions | None = None
        self.reference: ReferenceRun | None = None
        self._results: Mapping[str, Array] | None = {}

    def take(self, batch: Mapping[str, Array]) -> None:
        """Take one step; what it makes is finite if it is guarded."""
        if self.reference is not None:
            self.reference.begin()
        self._results = {}
        if self._transactions is None:
            self.executable.write(self.executable.check(batch))
            self.last_step_us, self._results = timed_run(self.executable), None
            if self.executable.shares_arenas:  # another step may take their bytes next
                self._results = self.executable.read_results()
        else:
            self._results, self.last_step_us = self._transactions.take(batch)

    def loss_of(self, batch: Mapping[str, Array]) -> Array:
        """The loss of the step that was taken on a batch, which is compared now where that is wanted."""
        loss = self.executable.read_results(("loss",))["loss"]
        if self.reference is not None:
            self.reference.end(batch)
        return loss

    @property
    def has_run(self) -> bool:
        """Whether there are results of a step."""
        return self._results is None or bool(self._results)

    @property
    def results(self) -> Mapping[str, Array]:
        """A copy of what the last step returned; made when it is asked for."""
        if self._results is None:
            self._results = self.executable.read_results()
        return self._results

    @property
    def is_guarded(self) -> bool:
        """Whether failed steps are undone."""
        return self._transactions is not None

    def guard(self, on: bool) -> None:
        """Undo every later step that fails, or makes a NaN or an infinity."""
        if not on:
            self._transactions = None
            return
        label = Names(self._plan.plan.problem.graph, self._plan.names).label
        self._transactions = Transactions(self.executable, label)

    def was_written(self) -> None:
        """Take the state as it is now for the one to go back to."""
        if self.is_guarded:
            self.guard(True)

    def compare_with_keep_all(self) -> bool:
        """Compare every later step with a keep-all step; False where home cannot run it."""
        problem, lowered = self._plan.plan.problem, self._plan.lowered
        home = problem.platform.home
        if any(home not in problem.costs[op.name] for op in problem.graph.ops):
            return False
        kept = build_step(
            self._plan.planned.lowered,
            plan_keep_all(problem, home),
            store=lowered.stores.kernels,
        )
        self.reference = ReferenceRun(self.executable, kept)
        return True

    def follow(self, reference: ReferenceRun | None) -> None:
        """Go on with the comparison of another plan of the same step."""
        self.reference = reference
        if reference is not None:
            reference.follow(self.executable)

    @property
    def comparison(self) -> Comparison | None:
        """The differences so far; None without a comparison."""
        return None if self.reference is None else self.reference.result
