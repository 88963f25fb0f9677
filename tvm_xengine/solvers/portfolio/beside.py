"""Search and proof side by side, each telling the other what it has found."""

from __future__ import annotations

import time

from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.greedy.solve import greedy_schedule
from tvm_xengine.solvers.local_search.driver import search
from tvm_xengine.solvers.local_search.guide import Guide
from tvm_xengine.solvers.portfolio.incumbent import Incumbent
from tvm_xengine.solvers.portfolio.options import DEFAULTS
from tvm_xengine.solvers.portfolio.prover import Prover
from tvm_xengine.solvers.request import Proof
from tvm_xengine.solvers.result import Limits, Objective


def search_and_prove(best: Incumbent) -> tuple[Proof, str]:
    """Improve `best` until it is good enough for certain, or time is up; the proof and a note."""
    problem, request = best.problem, best.request
    guide = Guide(
        problem,
        request.objective,
        lambda schedule: best.offer(schedule, "relaxation"),
        lambda: best.schedule,
    )
    prover = Prover(problem, request, best.snapshot, best.offer, guide.take, guide.proposed)
    try:
        greedy_schedule(
            problem,
            objective=request.objective,
            on_schedule=lambda schedule, value: best.offer(schedule, "greedy", value),
        )
        _Beside(prover, guide, best).run()
    except KeyboardInterrupt:
        request.stop.set()
        request.say("interrupted; this is the best so far")
    finally:
        prover.stop()
    return prover.proof(best.value), prover.message


class _Beside:
    """A search that goes on until the gap is closed, nothing fits for certain, or time is up."""

    def __init__(self, prover: Prover, guide: Guide, best: Incumbent) -> None:
        self.prover, self.guide, self.best = prover, guide, best
        self.request = best.request
        self.is_small = len(best.problem.graph.ops) <= DEFAULTS.small_ops
        self.improved_s = 0.0

    def run(self) -> None:
        """Search with one seed after the other, and rest where the proof needs the core more."""
        request = self.request
        if request.objective is Objective.MAKESPAN:
            self._search(
                Objective.COST, Limits(DEFAULTS.cost_share * request.remaining_s), request.seed
            )
        turn = 0
        while not self._is_over():
            self.improved_s = request.elapsed_s
            self._search(request.objective, Limits(request.remaining_s), request.seed + turn)
            while self._rests() and not self._is_over():
                time.sleep(DEFAULTS.nap_s)
            turn += 1

    def _search(self, objective: Objective, limits: Limits, seed: int) -> None:
        is_asked = objective is self.request.objective
        found = search(
            self.best.problem,
            objective=objective,
            limits=limits,
            seed=seed,
            start=self.best.schedule,
            on_improvement=self._improve if is_asked else None,
            should_stop=lambda: self._rests() or self._is_over(),
            guide=self.guide if is_asked else None,
        )
        if not is_asked or self.best.value is None:
            self.best.offer(found, "local-search")

    def _improve(self, value: float, schedule: Schedule) -> None:
        self.improved_s = self.request.elapsed_s
        self.best.offer(schedule, "local-search", value)

    def _rests(self) -> bool:
        return (
            self.is_small
            and self.best.value is not None
            and self.prover.is_at_work
            and not self.guide.has_hint
            and self.request.elapsed_s - self.improved_s > DEFAULTS.patience_s
        )

    def _is_over(self) -> bool:
        if self.request.is_over:
            return True
        if self.best.value is None:
            return self.prover.proof(None).is_infeasible
        return self.prover.closes(self.best.value)
