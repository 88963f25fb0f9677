"""Bounds by scope, and what they prove for an answer."""

from __future__ import annotations

import math
from dataclasses import replace

from tvm_xengine.solvers.request import PROOF_RATIO, Proof
from tvm_xengine.solvers.result import Scope


class Proofs:
    """The best bound of each scope.

    Parameters
    ----------
    floor
        A bound for every schedule that is known without any work.
    gap_ratio
        The gap at which an answer is good enough.
    """

    def __init__(self, floor: float, gap_ratio: float) -> None:
        self._gap_ratio = gap_ratio
        self._by_scope = {Scope.EVERY_SCHEDULE: Proof(floor)}

    @property
    def general(self) -> Proof:
        """The proof for every schedule."""
        return self._by_scope[Scope.EVERY_SCHEDULE]

    @property
    def order_bound(self) -> float:
        """The bound for schedules that first run the ops in the graph's order; 0 without one."""
        known = self._by_scope.get(Scope.GIVEN_ORDER)
        return known.bound if known is not None and math.isfinite(known.bound) else 0.0

    def add(self, proof: Proof) -> bool:
        """Record a proof; returns whether it improves on what was known for its scope."""
        known = self._by_scope.get(proof.scope)
        if known is None:
            self._by_scope[proof.scope] = proof
            return True
        added = replace(
            known,
            bound=max(known.bound, proof.bound),
            is_infeasible=known.is_infeasible or proof.is_infeasible,
        )
        self._by_scope[proof.scope] = added
        return added != known

    def about(self, value: float | None, *, is_final: bool) -> Proof:
        """The proof to report for an answer of that value: the most general one that closes its gap.

        Without one, the bound that holds for every schedule; and also until `is_final`: a schedule
        outside what is proven may be better.
        """
        if value is None or self.is_closed(value, self.general) or not is_final:
            return self.general
        for scope in (Scope.GIVEN_ORDER, Scope.STAGE_MODEL):
            proof = self._by_scope.get(scope)
            if proof and proof.allows(value) and self.is_closed(value, proof):
                return proof
        return self.general

    def is_closed(self, value: float, proof: Proof) -> bool:
        """Whether no schedule of the proof's scope is better than `value` by more than the gap."""
        allowed = max(self._gap_ratio, PROOF_RATIO) * abs(value)
        return value - proof.bound <= allowed
