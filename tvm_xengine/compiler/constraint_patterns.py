"""Constraints on a schedule by patterns of names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import tvm

from tvm_xengine.checks.names import closest_first, some
from tvm_xengine.errors import InvalidProblemError
from tvm_xengine.passes.repeat_for_later_use import RepeatForLaterUse, repeatable_calls
from tvm_xengine.relax_ir.extract import extract_graph
from tvm_xengine.scheduling.constraints import Constraints
from tvm_xengine.scheduling.graph import Op, OpGraph
from tvm_xengine.scheduling.platform import Platform

_MOST_NAMED = 6
"""So many names of each kind stand in a message, the closest first."""


@dataclass(frozen=True)
class ConstraintPatterns:
    """Where ops run, which are run once, and which are repeated.

    Patterns are those of a shell. They match the name of an op, of a tensor that it makes, or of
    a parameter that it reads (as the model names it, or the step), so ``fc1.*`` is a layer.

    Attributes
    ----------
    pin
        Pairs of a pattern and the device on which its ops run; the last match counts.
    keep
        Ops that run once; their results stay in memory, of some device, until their last use.
    recompute
        Ops before the loss that are computed again for their uses after it, so that their
        results need no memory between. Those without such a use, and those whose results the
        step returns, are left as they are.
    """

    pin: tuple[tuple[str, str], ...] = ()
    keep: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()
    model_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names that the model gives a parameter, by the parameter's name in the step."""

    def repeated(self, mod: tvm.IRModule, func_name: str) -> tvm.IRModule:
        """The module with the calls that `recompute` matches repeated.

        Raises
        ------
        InvalidProblemError
            If a pattern matches no call that can be repeated.
        """
        if not self.recompute:
            return mod
        graph = extract_graph(mod, func_name).graph
        found = {pattern: self._matching(graph, "recompute", pattern) for pattern in self.recompute}
        names = repeatable_calls(mod[func_name], frozenset().union(*found.values()))
        for pattern, matching in found.items():
            if not matching & names:
                able = repeatable_calls(mod[func_name])
                raise InvalidProblemError(
                    f"recompute={pattern!r} matches {some(sorted(matching))}, but none of them has a"
                    " result that is used again after the loss and may be dropped;"
                    f" {some(closest_first(sorted(able), pattern)) or 'no op'} can be recomputed"
                )
        self._check_kept(graph, names)
        return tvm.transform.Sequential([RepeatForLaterUse(func_name, names)])(mod)

    def of(self, graph: OpGraph, platform: Platform) -> Constraints:
        """The constraints on the ops of a step.

        Raises
        ------
        InvalidProblemError
            If a pattern matches no op, or a device cannot compute.
        """
        able = [device.name for device in platform.computing]
        pinned: dict[str, str] = {}
        for pattern, device in self.pin:
            if device not in able:
                raise InvalidProblemError(
                    f"pin={pattern}={device} names no device that computes; those are"
                    f" {', '.join(able)}"
                )
            pinned |= dict.fromkeys(sorted(self._matching(graph, "pin", pattern)), device)
        kept = [self._matching(graph, "keep", pattern) for pattern in self.keep]
        return Constraints(pinned, frozenset().union(*kept))

    def _check_kept(self, graph: OpGraph, repeated: AbstractSet[str]) -> None:
        """Refuse ops that are to be kept and computed again."""
        for pattern in self.keep:
            if both := self._matching(graph, "keep", pattern) & repeated:
                raise InvalidProblemError(
                    f"keep={pattern!r} and recompute both match {some(sorted(both))}; keep it, or"
                    " compute it again"
                )

    def _matching(self, graph: OpGraph, option: str, pattern: str) -> AbstractSet[str]:
        found = {op.name for op in graph.ops if self._matches(graph, op, pattern)}
        if not found:
            raise InvalidProblemError(
                f"{option}={pattern!r} matches no op, and no tensor or input of one;"
                f" {self._names(graph, pattern)}"
            )
        return found

    def _matches(self, graph: OpGraph, op: Op, pattern: str) -> bool:
        read = self._parameters(graph, op)
        return any(fnmatchcase(name, pattern) for name in (op.name, *op.outputs, *read))

    def _parameters(self, graph: OpGraph, op: Op) -> list[str]:
        """Every name of the state that an op reads, those of the model first."""
        read = [name for name in graph.reads[op.name] if graph.tensor[name].role.is_resident]
        models = [name for variable in read for name in self.model_names.get(variable, ())]
        return [*models, *read]

    def _names(self, graph: OpGraph, pattern: str) -> str:
        """What could be matched: ops, their results where these have names of their own, and state."""
        ops = [op.name for op in graph.ops]
        kinds = {
            "ops": ops,
            "tensors": [name for op in graph.ops for name in op.outputs if name not in graph.op],
            "parameters and inputs": [
                name for op in graph.ops for name in self._parameters(graph, op)
            ],
        }
        return "; ".join(
            f"{kind}: {some(closest_first(names, pattern), _MOST_NAMED)}"
            for kind, names in kinds.items()
            if names
        )
