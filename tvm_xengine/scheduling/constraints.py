"""Constraints on every schedule of a problem: where ops run, and which run only once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm_xengine.checks.documents import reject_unknown_keys, typed_value
from tvm_xengine.errors import InvalidProblemError
from tvm_xengine.scheduling.graph import OpGraph


@dataclass(frozen=True)
class Constraints:
    """What a schedule must respect in addition to the rules of its problem.

    Attributes
    ----------
    pinned
        Ops by name, and the only device on which each may run.
    kept
        Ops that run once: from that run to their last use, their results are in the memory of
        some device.
    """

    pinned: Mapping[str, str] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.pinned or self.kept)

    def check(self, graph: OpGraph, costs: Mapping[str, Mapping[str, Any]]) -> None:
        """Check that all ops exist, and that pinned ones can run where they must.

        Raises
        ------
        InvalidProblemError
            Naming the first op that does not exist or cannot run there.
        """
        for name in sorted({*self.pinned, *self.kept} - set(graph.op)):
            raise InvalidProblemError(f"a constraint names {name!r}, which is not an op")
        for op, device in self.pinned.items():
            if device not in costs[op]:
                able = ", ".join(costs[op])
                raise InvalidProblemError(
                    f"op {op} is pinned to {device!r}, but it can run only on {able}"
                )


def constraints_to_json(constraints: Constraints) -> dict[str, Any]:
    """`constraints` as a document for JSON."""
    return {"pinned": dict(constraints.pinned), "kept": sorted(constraints.kept)}


def constraints_from_json(document: Any) -> Constraints:
    """The constraints that `document` describes.

    Raises
    ------
    TypeError, ValueError, KeyError
        If it is malformed.
    """
    reject_unknown_keys("constraints", document, ("pinned", "kept"))
    pinned = typed_value(Mapping[str, str], document["pinned"])
    return Constraints(pinned, frozenset(typed_value(tuple[str, ...], document["kept"])))
