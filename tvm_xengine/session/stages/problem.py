"""The scheduling problem of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tvm_xengine.checks.arguments import checked
from tvm_xengine.compiler.costing.costed import CostedStep
from tvm_xengine.files.atomic_write import write_atomically
from tvm_xengine.scheduling.problem import Problem, problem_to_json
from tvm_xengine.session.stages.budgets import BudgetLike, budgets_of
from tvm_xengine.session.stages.lowered import Lowered


@dataclass(frozen=True)
class StepProblem:
    """The scheduling problem of a lowered step, with the costs of its kernels.

    Attributes
    ----------
    lowered
        The step that is scheduled.
    costed
        Its kernels with their costs.
    """

    lowered: Lowered
    costed: CostedStep

    @property
    def problem(self) -> Problem:
        """Plain numbers: ops, tensors, costs, budgets."""
        return self.costed.problem

    @checked
    def with_budget(self, budget: BudgetLike) -> StepProblem:
        """The same problem under a budget."""
        budgets = budgets_of(budget, self.lowered.platform)
        return replace(self, costed=self.costed.with_budgets(budgets))

    @checked
    def with_budget_ratio(self, ratio: float) -> StepProblem:
        """The same problem with every device at the state plus `ratio` of the rest of keep-all."""
        return self.with_budget(float(ratio))

    @checked
    def save(self, path: str | Path) -> None:
        """Write the numbers as JSON, which can be solved without a compiler."""
        write_atomically(Path(path), problem_to_json(self.problem))
