"""How far the proof of a plan goes, in words."""

from __future__ import annotations

from tvm_xengine.planning.given_schedule import GIVEN
from tvm_xengine.scheduling.durations import format_amount
from tvm_xengine.solvers.result import Objective, Scope, SolveResult, Status

_MEANING = {
    Objective.COST: "the sum of the times of all computations and copies",
    Objective.MAKESPAN: "the end of the last step when devices and links work side by side",
    Objective.ENERGY: "the energy of all computations and copies",
}


def proof_in_words(result: SolveResult) -> tuple[str, ...]:
    """Sentences on what is proven of a plan's result and what is not."""
    objective = f"The objective is {result.objective.value}: {_MEANING[result.objective]}."
    if result.solver == GIVEN or result.bound <= 0:
        return (
            objective,
            "Nothing is proven: no bound is known, so it may be far from the best.",
        )
    return (
        objective,
        *_how_far(result),
        "The proof counts live bytes and the given costs; it says nothing on how exact these are,"
        " and an address layout may need more bytes than are live.",
    )


def _in_order(result: SolveResult) -> tuple[str, ...]:
    """What is proven of the schedules in the graph's order, where that is more."""
    if result.order_gap is None:
        return ()
    saved = f"At most {100 * result.order_gap:.2f} % can be saved among"
    return (f"{saved} {Scope.GIVEN_ORDER.value}.",)


def _how_far(result: SolveResult) -> tuple[str, ...]:
    """What is proven, and among which schedules; others are named in the same breath."""
    gap = 100 * (result.gap or 0.0)
    bound = f"the proven lower bound is {format_amount(result.bound, result.objective.unit)}"
    if result.scope is Scope.EVERY_SCHEDULE:
        if result.status is Status.OPTIMAL:
            return (
                "It is proven to be optimal, within the tolerance of the solver: no schedule"
                " whatsoever within these budgets is better.",
            )
        return (
            f"At most {gap:.2f} % of it can be saved by any schedule within these budgets: {bound}."
            " Whether that can be reached is open.",
            *_in_order(result),
        )
    if result.status is Status.OPTIMAL:
        return (f"No better one exists among {result.scope.words}.",)
    return (f"At most {gap:.2f} % of it can be saved among {result.scope.words}. There {bound}.",)
