"""How far the proof of a plan goes, in words."""

from __future__ import annotations

from tvm_xengine.planning.given_schedule import GIVEN
from tvm_xengine.planning.plan import Plan
from tvm_xengine.solvers.result import Objective, Scope, Status

UNIT = {Objective.COST: "us", Objective.MAKESPAN: "us", Objective.ENERGY: "uJ"}
_MEANING = {
    Objective.COST: "the sum of the times of all computations and copies",
    Objective.MAKESPAN: "the end of the last step when devices and links work side by side",
    Objective.ENERGY: "the energy of all computations and copies",
}


def proof_in_words(plan: Plan) -> tuple[str, ...]:
    """Sentences on what is proven of a plan and what is not."""
    result = plan.result
    sentences = [f"The objective is {result.objective.value}: {_MEANING[result.objective]}."]
    if result.solver == GIVEN or result.bound <= 0:
        sentences.append("Nothing is proven: no bound is known, so it may be far from the best.")
        return tuple(sentences)
    gap = result.gap or 0.0
    if result.status is Status.OPTIMAL:
        sentences.append("It is proven to be optimal, within the tolerance of the solver.")
    else:
        sentences.append(
            f"At most {100 * gap:.2f} % of it can be saved: the proven lower bound is"
            f" {result.bound:.4g} {UNIT[result.objective]}. Whether that can be reached is open."
        )
    sentences.append(
        "No schedule whatsoever within these budgets is better than the bound."
        if result.scope is Scope.EVERY_SCHEDULE
        else f"The bound holds for {result.scope.words}."
    )
    sentences.append(
        "The proof counts live bytes and the given costs; it says nothing on how exact these are,"
        " and an address layout may need more bytes than are live."
    )
    return tuple(sentences)
