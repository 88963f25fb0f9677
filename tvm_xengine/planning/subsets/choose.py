"""The subset of greatest score that has a plan, and a bound on the score of every subset that has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tvm_xengine.planning.subsets.conflict import smallest_conflict
from tvm_xengine.planning.subsets.relaxation import Row, Subset, best_relaxed

PlanT = TypeVar("PlanT")

_TIE = 1e-9
"""Scores that differ by less than this share of their sum are equal: HiGHS answers within 1e-9."""
_MOST_INSISTENCE = 3
"""So many subsets are planned with more effort, each of which may take the time of all trials."""


@dataclass(frozen=True)
class Refusal:
    """Why a subset has no plan.

    Attributes
    ----------
    is_proven
        Whether neither the subset nor any that contains it has a plan; else none was found.
    is_measured
        Whether it has a plan of which was measured that it takes too much: a longer search for another
        one is no remedy.
    """

    reason: str
    is_proven: bool = False
    is_measured: bool = False


@dataclass(frozen=True)
class Choice(Generic[PlanT]):
    """The best subset that was planned, and how far it may be from the best one.

    Attributes
    ----------
    chosen, plan
        The subset and its plan; None where no subset has one.
    score
        Of the subset; 0 without one.
    bound
        No subset that has a plan has a greater score. It rests on the limits and on what is proven to
        have no plan; that none was found for a subset does not lower it.
    plans
        So many subsets were planned.
    refused
        What has no plan: subsets of which every smaller part has one.
    """

    chosen: Subset | None
    plan: PlanT | None
    score: float
    bound: float
    plans: int
    refused: dict[Subset, Refusal]

    @property
    def gap(self) -> float:
        """(bound - score) / bound; 0 where the subset is optimal."""
        return (self.bound - self.score) / self.bound if self.bound > 0 else 0.0


def choose_subset(
    scores: Sequence[float],
    rows: Sequence[Row],
    plan_of: Callable[[Subset], PlanT | Refusal],
    most_plans: int,
    insist: Callable[[Subset], PlanT | Refusal] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Choice[PlanT]:
    """The subset of 0..n-1 of greatest score among those that have a plan.

    Maximises ``sum of scores[i] x[i]``, x binary, under the rows and one cut
    ``sum of x[i] over C <= |C| - 1`` for each conflict C that is known; each optimum is planned. The first
    one that has a plan is the best subset (a combinatorial Benders method: Codato and Fischetti,
    Operations Research 54(4), 2006). The bound is the optimum with the cuts of proven refusals only.

    Parameters
    ----------
    scores
        At least 0; what scores 0 is never chosen.
    rows
        Every subset that has a plan obeys them.
    plan_of
        The plan of a subset that is not empty. What contains a refused subset is not planned.
    most_plans
        After so many plans the best one so far is taken; planning in progress goes on to its end.
    insist
        As `plan_of`, with more effort. At the end it plans what the bound is of, where that may have a plan
        after all.
    is_stopped
        Whether to end the search with the best subset so far.
    """
    search = _Search(scores, plan_of, most_plans, is_stopped)
    total = sum(scores)
    while (best := best_relaxed(scores, rows, search.conflicts)) is not None:
        if search.score_of(best) <= search.best_score + _TIE * total or search.is_over:
            break
        if not search.has_plan(best) and not search.cut(best):
            break
    if insist is not None and not is_stopped():
        search.insist(rows, insist)
    return search.choice(rows)


@dataclass
class _Search(Generic[PlanT]):
    """What is known of subsets: plans, and conflicts."""

    scores: Sequence[float]
    plan_of: Callable[[Subset], PlanT | Refusal]
    most_plans: int
    is_stopped: Callable[[], bool]
    plans: dict[Subset, PlanT] = field(default_factory=dict)
    conflicts: list[Subset] = field(default_factory=list)
    refused: dict[Subset, Refusal] = field(default_factory=dict)

    @property
    def best(self) -> Subset | None:
        return max(self.plans, key=self.score_of, default=None)

    @property
    def best_score(self) -> float:
        return 0.0 if self.best is None else self.score_of(self.best)

    @property
    def is_over(self) -> bool:
        return self.is_stopped() or len(self.plans) + len(self.refused) >= self.most_plans

    def score_of(self, subset: Subset) -> float:
        return float(sum(self.scores[i] for i in sorted(subset)))

    def has_plan(self, subset: Subset) -> bool:
        """Whether a subset has a plan, by what is known of others, or else by planning it."""
        if not subset or any(subset <= known for known in self.plans):
            return True
        if any(subset >= known for known in self.refused):
            return False
        plan = self.plan_of(subset)
        if isinstance(plan, Refusal):
            self.refused[subset] = plan
            return False
        self.plans[subset] = plan
        return True

    def cut(self, subset: Subset) -> bool:
        """Add a conflict within a subset that has no plan; False where the limit came first."""
        by_score = sorted(subset, key=lambda i: (-self.scores[i], i))
        found = smallest_conflict(by_score, self.has_plan, lambda: self.is_over)
        if found is None:
            return False
        self.conflicts.append(found)
        return True

    def proven_optimum(self, rows: Sequence[Row]) -> Subset | None:
        """A subset of greatest score that is not proven to have no plan."""
        proven = [subset for subset, refusal in self.refused.items() if refusal.is_proven]
        return best_relaxed(self.scores, rows, _smallest(proven))

    def insist(self, rows: Sequence[Row], plan_of: Callable[[Subset], PlanT | Refusal]) -> None:
        """Plan that subset with more effort, until one has a plan, or none is found without proof."""
        for _ in range(_MOST_INSISTENCE):
            best = self.proven_optimum(rows)
            if best is None or self.score_of(best) <= self.best_score + _TIE * sum(self.scores):
                return
            plan = plan_of(best)
            if not isinstance(plan, Refusal):
                self.plans[best] = plan
                return
            self.refused[best] = plan
            if not plan.is_proven:
                return

    def choice(self, rows: Sequence[Row]) -> Choice[PlanT]:
        best, score = self.best, self.best_score
        relaxed = self.proven_optimum(rows)
        return Choice(
            best,
            None if best is None else self.plans[best],
            score,
            score if relaxed is None else max(score, self.score_of(relaxed)),
            len(self.plans) + len(self.refused),
            {subset: self.refused[subset] for subset in _smallest(self.refused)},
        )


def _smallest(subsets: Sequence[Subset] | dict[Subset, Refusal]) -> list[Subset]:
    """Those that contain no other one."""
    return [one for one in subsets if not any(other < one for other in subsets)]
