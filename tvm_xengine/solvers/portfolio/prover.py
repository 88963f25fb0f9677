"""Proves, beside a search, how good its answer is."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import SolverUnavailableError
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Schedule
from tvm_xengine.solvers.astar.search import shortest_path
from tvm_xengine.solvers.backends.answer import Answer, BackendOptions, Outcome
from tvm_xengine.solvers.backends.process import BackendRun
from tvm_xengine.solvers.exact.encode_tight import encode_tight
from tvm_xengine.solvers.exact.tight import formulate_tight
from tvm_xengine.solvers.indexed import index_problem
from tvm_xengine.solvers.portfolio.bound import (
    Listener,
    OnSolution,
    Proposal,
    bound_of_open_order,
    bounds,
)
from tvm_xengine.solvers.portfolio.options import DEFAULTS
from tvm_xengine.solvers.portfolio.refine import refine
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.request import PROOF_RATIO, Proof, Request
from tvm_xengine.solvers.result import Objective, Scope


class Prover:
    """Raises bounds in threads of its own, most general first, until stopped or done.

    For every schedule and for the given order of first runs, in turns on small graphs; then,
    or beside that, an exact model where its size allows, which also finds schedules: with the
    order of first runs left open, or the stage model.

    Parameters
    ----------
    incumbent
        Gives the best value and schedule so far; what is proven is compared with it.
    on_schedule
        Called, from the thread, with every schedule that the stage model finds.
    on_solution
        Called, from the thread, with every solution of a relaxation.
    proposed
        Gives what such a solution leads to where it fits no budget, and its time points.
    """

    def __init__(
        self,
        problem: Problem,
        request: Request,
        incumbent: Callable[[], tuple[float, Schedule] | None],
        on_schedule: Callable[[Schedule, str], None],
        on_solution: OnSolution = lambda _model, _x, _near: None,
        proposed: Callable[[], Proposal | None] = lambda: None,
    ) -> None:
        self._problem = problem
        self._request = request
        self._incumbent = incumbent
        self._on_schedule = on_schedule
        self._sufficed: set[int] = set()
        self._listener = Listener(incumbent, on_solution, lambda: self._sufficed, proposed)
        self._proofs: dict[Scope, Proof] = {}
        self._proving = threading.Lock()
        self._running: dict[BackendRun, Scope | None] = {}
        self._stopping = threading.Event()
        self.message = ""
        self._is_walking = False
        works = [self._relax]
        count = len(problem.graph.ops)
        if request.objective is not Objective.MAKESPAN and count <= DEFAULTS.exact_ops:
            works = (
                [self._relax, self._be_exact] if count <= DEFAULTS.beside_ops else [self._do_both]
            )
        if request.objective is not Objective.MAKESPAN and count <= DEFAULTS.open_ops:
            works = [self._relax, self._walk_states]
            self._is_walking = True
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_at_work(self) -> bool:
        """Whether better proofs may still come."""
        return any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Stop at once and wait for the threads."""
        self._stopping.set()
        for running in list(self._running):
            running.cancel()
        for thread in self._threads:
            thread.join()

    def proof(self, value: float | None) -> Proof:
        """What to say about an answer of that value: the most general proof that closes the gap.

        Without one, the bound that holds for every schedule; and for some time, too, where that
        may still rise: a schedule outside what is proven may be better.
        """
        general = self._general()
        if value is None or is_closed(value, general, self._request):
            return general
        limit_s = self._request.limits.time_limit_s
        first_s = DEFAULTS.walk_first_s if self._is_walking else DEFAULTS.general_share * limit_s
        if self.is_at_work and self._request.elapsed_s < first_s:
            return general
        for scope in (Scope.GIVEN_ORDER, Scope.STAGE_MODEL):
            proof = self._proofs.get(scope)
            if (
                proof is not None
                and _is_of_its_scope(value, proof)
                and is_closed(value, proof, self._request)
            ):
                return proof
        return general

    def _general(self) -> Proof:
        """The proof for every schedule, with what its running relaxation has reached."""
        proven = self._proofs.get(Scope.EVERY_SCHEDULE, Proof(0.0))
        running = [
            run.bound for run, scope in list(self._running.items()) if scope is Scope.EVERY_SCHEDULE
        ]
        return replace(proven, bound=max([proven.bound, *running]))

    def _prove(self, proof: Proof) -> None:
        """Remember a proof, with the best bound of its scope."""
        with self._proving:
            known = self._proofs.get(proof.scope)
            if known is not None and not proof.is_infeasible:
                proof = replace(known, bound=max(known.bound, proof.bound))
            self._proofs[proof.scope] = proof

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except SolverUnavailableError as error:
            self.message = str(error)
        except Exception as error:
            # The answer stands without this proof, but its user must know why it is missing.
            self.message = f"a proof was given up after {type(error).__name__}: {error}"

    def _do_both(self) -> None:
        self._relax()
        if not self._is_done():
            self._solve_stage_model()

    def _walk_states(self) -> None:
        """The optimum by shortest paths; where they do not apply or end, by a relaxation."""
        self._stopping.wait(DEFAULTS.head_start_s)
        if self._is_done():
            return
        found = shortest_path(
            self._problem,
            self._request.objective,
            known=self._known,
            should_stop=self._is_done,
            on_bound=lambda bound: self._prove(Proof(bound)),
        )
        self._is_walking = False
        if found is None or not found.is_over:
            self._leave_order_open()
            return
        if found.schedule is not None:
            self._on_schedule(found.schedule, "astar")
        is_infeasible = math.isinf(found.bound)
        self._prove(Proof(0.0 if is_infeasible else found.bound, is_infeasible=is_infeasible))

    def _known(self) -> float | None:
        best = self._incumbent()
        return None if best is None else best[0]

    def _leave_order_open(self) -> None:
        if not self._is_done():
            proof = bound_of_open_order(
                self._problem,
                self._request,
                listener=self._listener,
                run=partial(self._run, Scope.EVERY_SCHEDULE),
            )
            self._prove(proof)

    def _be_exact(self) -> None:
        self._stopping.wait(DEFAULTS.head_start_s)
        if not self._is_done():
            self._solve_stage_model()

    def _relax(self) -> None:
        every, given = self._rising(Scope.EVERY_SCHEDULE), self._rising(Scope.GIVEN_ORDER)
        in_turns = len(self._problem.graph.ops) <= DEFAULTS.turns_ops
        works = _in_turns(every, given) if in_turns else chain(every, given)
        for _ in _in_turns(works, self._refining()):
            if self._is_done():
                return

    def _refining(self) -> Iterator[None]:
        """Rounds that look for better schedules in the order of the best."""
        if self._request.objective is Objective.MAKESPAN:
            return iter(())
        return refine(
            self._problem,
            self._request,
            listener=self._listener,
            run=partial(self._run, None),
            on_time_points=self._suggest,
        )

    def _suggest(self, time_points: set[int]) -> None:
        self._sufficed = time_points

    def _rising(self, scope: Scope) -> Iterator[None]:
        """Raise the bound of that scope, round by round, while it may be that of the incumbent."""
        proofs = bounds(
            self._problem,
            self._request,
            scope=scope,
            listener=self._listener,
            run=partial(self._run, scope),
            run_aside=partial(self._run, None),
        )
        for proof in proofs:
            self._prove(proof)
            best = self._incumbent()
            if best is not None and not _is_of_its_scope(best[0], proof):
                return
            yield

    def _solve_stage_model(self) -> None:
        indexed = index_problem(self._problem, self._request.objective)
        model = formulate_tight(indexed)
        best = self._incumbent()
        options = BackendOptions(
            self._request.remaining_s,
            self._request.limits.gap_ratio,
            start=encode_tight(model, best[1]) if best else None,
            seed=self._request.seed,
        )
        answer = self._run(
            Scope.STAGE_MODEL,
            model.program,
            options,
            indexed.cheapest,
            lambda x, _: self._on_schedule(model.schedule(x), "tight"),
        )
        if answer.x is not None:
            self._on_schedule(model.schedule(answer.x), "tight")
        is_infeasible = answer.outcome is Outcome.INFEASIBLE
        bound = indexed.cheapest if is_infeasible else answer.bound
        self._prove(Proof(bound, Scope.STAGE_MODEL, is_infeasible))

    def _is_done(self) -> bool:
        best = self._incumbent()
        general = self._proofs.get(Scope.EVERY_SCHEDULE)
        return (
            self._stopping.is_set()
            or (general is not None and general.is_infeasible)
            or (best is not None and self.closes(best[0]))
        )

    def closes(self, value: float) -> bool:
        """Whether what is proven suffices for an answer of that value."""
        return is_closed(value, self.proof(value), self._request)

    def _run(
        self,
        scope: Scope | None,
        program: Program,
        options: BackendOptions,
        floor: float,
        on_incumbent: Callable[[NDArray[np.float64], float], None] | None = None,
    ) -> Answer:
        if self._stopping.is_set():
            return Answer(Outcome.UNKNOWN, None, None, floor, "interrupted")
        run = BackendRun("highs", program, options, floor=floor, on_incumbent=on_incumbent)
        self._running[run] = scope
        if self._stopping.is_set():  # meanwhile
            run.cancel()
        answer = run.answer()
        del self._running[run]
        return answer


def is_closed(value: float, proof: Proof, request: Request) -> bool:
    """Whether no schedule of the proof's scope is better than `value` by more than the gap."""
    allowed = max(request.limits.gap_ratio, PROOF_RATIO) * abs(value)
    return value - proof.bound <= allowed


def _is_of_its_scope(value: float, proof: Proof) -> bool:
    """Whether `value` may be that of a schedule of the proof's scope.

    One below the bound comes from a schedule outside, of which the proof says nothing.
    """
    return value >= proof.bound - PROOF_RATIO * abs(value)


def _in_turns(one: Iterator[None], other: Iterator[None]) -> Iterator[None]:
    """A step of each in turn, until both end."""
    for _ in zip_longest(one, other):
        yield
