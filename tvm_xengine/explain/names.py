"""The names by which people know tensors and ops: the model's own, and its layers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from tvm_xengine.errors import InvalidProblemError
from tvm_xengine.explain.categories import before_the_loss
from tvm_xengine.scheduling.graph import Op, OpGraph, Role

_LAST_PART = re.compile(r"[./][^./]*$|_(?:running_mean|running_var|num_batches_tracked|[^_./]*)$")
"""``.weight`` of ``features.0.weight``, ``_weight`` of ``conv1_weight``, a statistic of batch norm."""
_GRADIENT = re.compile(r"_grad(?:_sum)?(?:_\d+)?(?:_\d+of\d+|_joined)?$")
"""How the backward pass names what belongs to a parameter, of a slice of the batch, too."""
_SLICE = re.compile(r"_(?:\d+of\d+|joined|recomputed)$")
"""How what is made of an op is named: its slices, their sum, and its repetition."""
_LINE = re.compile(r"([^/\\]+:\d+)")
"""``net.py:12``."""
_CALL = re.compile(r"(call \d+)")
"""Which call of the module, where it is not the first one."""
_MODULE = re.compile(r"in (\S+)")
"""``in encoder.layers.0``; no name of a tensor has a space."""
_LAYERED = (Role.PARAMETER, Role.STATISTIC)
_MOST_NAMED = 5
"""So many similar names stand in a message."""


@dataclass(frozen=True)
class Names:
    """The names of a step's tensors and the layers of its ops.

    Attributes
    ----------
    of_model
        Names that the model gives its tensors, by their names in the step; of what is computed, and of
        ops, also `source_names`.
    """

    graph: OpGraph
    of_model: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def label(self, tensor: str) -> str:
        """The model's name of a tensor; a result of the step has that of its variable."""
        given = self.of_model.get(tensor, (tensor,))[0]
        if given != tensor:
            return given
        state = self.graph.update_of.get(tensor)
        if state is not None:
            return f"new {self.label(state)}"
        parameter = self._parameter_of.get(tensor)
        if parameter is None:
            parameter = self._parameter_of_gradient(tensor)
        if parameter is not None and tensor.startswith(f"{parameter}_"):
            return f"{self.label(parameter)} {tensor.removeprefix(f'{parameter}_')}"
        return tensor

    def place(self, key: str) -> str:
        """Layer and line of a tensor or an op, ``conv1, net.py:12``; empty where neither is known."""
        return ", ".join(filter(None, (self.layer.get(key, ""), self.line(key))))

    @cached_property
    def layer(self) -> Mapping[str, str]:
        """The layer of each op and of each tensor with bytes of its own; empty where unknown.

        An op belongs to the module whose source computes it, or to the layer within that whose
        parameters it reads or updates: what is tied to another layer is told apart from it. Else it
        belongs to the layer whose gradient it makes, or that made what it reads, of the forward pass
        where it can.
        """
        of_op: dict[str, str] = {}
        of_tensor = {
            state: self._module(parameter) for state, parameter in self._parameter_of.items()
        }
        for op in self.graph.ops:
            of_op[op.name] = self._layer_of(op, of_tensor)
            of_tensor |= dict.fromkeys(op.outputs, of_op[op.name])
            for name in self.graph.reads[op.name]:
                if self.graph.tensor[name].role is not Role.BATCH:
                    of_tensor.setdefault(name, of_op[op.name])
        missing = {tensor.name: "" for tensor in self.graph.bases}
        return {**missing, **of_tensor, **of_op}

    def matching(self, name: str) -> tuple[str, ...]:
        """The tensors and ops that a name or a pattern means, in the order of the graph.

        A name is that of a tensor, of an op, one that the model gives, or of a layer.

        Raises
        ------
        InvalidProblemError
            If it means nothing; the message has similar names.
        """
        known = {name: self.names_of(name) for name in self._all}
        exact = [key for key, names in known.items() if name in names]
        if exact:
            return tuple(exact)
        found = [key for key, names in known.items() if any(fnmatchcase(n, name) for n in names)]
        if not found:
            every = dict.fromkeys(one for names in known.values() for one in names)
            similar = difflib.get_close_matches(name, every, _MOST_NAMED, cutoff=0.4)
            hint = f"; similar names are {', '.join(similar)}" if similar else ""
            raise InvalidProblemError(
                f"{name!r} is no tensor, op, layer or device of the plan{hint}"
            )
        return tuple(found)

    def names_of(self, key: str) -> tuple[str, ...]:
        """Every name of a tensor or an op."""
        label = self.label(key) if key in self.graph.tensor else key
        known = self.of_model.get(key, ())
        of_model = (one for one in known if not (_MODULE.fullmatch(one) or _CALL.fullmatch(one)))
        line = self.line(key)
        lines = dict.fromkeys((line, line.partition(", ")[0]))  # without the call
        every = (key, label, *of_model, self.layer.get(key, ""), *lines)
        return tuple(filter(None, every))

    def line(self, key: str) -> str:
        """The line of the model's source that computes a tensor or an op; empty where unknown.

        Where a module is called again, with the number of the call: ``net.py:12, call 2``.
        A fused op has the line of the layer whose parameters it reads; what is made for the backward
        pass, such as ``conv1_weight_grad``, that of the variable that it is named after. Anything
        else has the line of its layer, if all that is known of the layer is on one.
        """
        found = self._own_line(key)
        lines = self._lines_of_layer.get(self.layer.get(key, ""), ())
        return next(iter(lines)) if not found and len(lines) == 1 else found

    def _own_line(self, key: str) -> str:
        op = self.graph.producer.get(key, key)
        layered = [name for name in self.graph.reads.get(op, ()) if self._is_layered(name)]
        is_known = key in self.of_model or op in self.of_model
        keys = (key, op, *layered) if is_known else (*layered, key)
        return ", ".join(self._in_source((_LINE, _CALL), keys))

    def _in_source(self, forms: Sequence[re.Pattern[str]], keys: Iterable[str]) -> list[str]:
        """What has these forms among the names of a variable: the first one with the first form.

        Variables are looked up by the keys, and by what those are named after.
        """
        for key in keys:
            name = key
            while name:
                every = self.of_model.get(name, ())
                found = [
                    match[1] for form in forms for one in every if (match := form.fullmatch(one))
                ]
                if any(forms[0].fullmatch(one) for one in every):
                    return found
                name = name.rpartition("_")[0]
        return []

    @cached_property
    def _lines_of_layer(self) -> Mapping[str, Collection[str]]:
        found: dict[str, set[str]] = {}
        for op in self.graph.ops:
            if (layer := self.layer[op.name]) and (line := self._own_line(op.name)):
                found.setdefault(layer, set()).add(line)
        return found

    @cached_property
    def _all(self) -> tuple[str, ...]:
        tensors = [tensor.name for tensor in self.graph.bases]
        return tuple(dict.fromkeys([*tensors, *(op.name for op in self.graph.ops)]))

    @cached_property
    def _parameter_of(self) -> Mapping[str, str]:
        """The parameter that state belongs to: what is updated in the same op."""
        found: dict[str, str] = {}
        for op in self.graph.ops:
            states = [state for _, state in op.updates]
            parameters = [s for s in states if self.graph.tensor[s].role is Role.PARAMETER]
            for state in states:
                if parameters:
                    named = [p for p in parameters if state.startswith(p)]
                    found[state] = max(named, key=len) if named else parameters[0]
        return found

    def _parameter_of_gradient(self, tensor: str) -> str | None:
        """The parameter whose gradient, or a part of it, has the name: ``conv1_weight_grad_2``."""
        parameter = _GRADIENT.sub("", tensor)
        known = parameter != tensor and self.graph.tensor.get(parameter)
        return parameter if known and known.role is Role.PARAMETER else None

    @cached_property
    def _forward(self) -> frozenset[str]:
        return before_the_loss(self.graph)

    def _layer_of(self, op: Op, of_tensor: Mapping[str, str]) -> str:
        states = [name for name in self.graph.reads[op.name] if self._is_layered(name)]
        layers = [self._module(self._parameter_of.get(name, name)) for name in states]
        for module in self._in_source((_MODULE,), (op.name, *op.outputs)):
            return next((layer for layer in layers if layer.startswith(f"{module}.")), module)
        if layers:
            return layers[0]
        for output in op.outputs:
            for reader in self.graph.consumers[output]:
                updated = [s for _, s in self.graph.op[reader].updates if self._is_layered(s)]
                if updated and output not in self._forward:
                    return self._module(self._parameter_of.get(updated[0], updated[0]))
        for output in op.outputs:
            if (of := self._parameter_of_gradient(output)) is not None:
                return self._module(of)
        made = [name for name in self.graph.reads[op.name] if name in self.graph.producer]
        forward = [name for name in made if name in self._forward]
        return next((of_tensor[name] for name in (*forward, *made) if of_tensor.get(name)), "")

    def _is_layered(self, name: str) -> bool:
        return self.graph.tensor[name].role in _LAYERED

    def _module(self, parameter: str) -> str:
        name = self.label(parameter) if parameter in self.of_model else parameter
        return _LAST_PART.sub("", name) or name


def source_names(variable: str, line: str, module: str, call: int = 1) -> tuple[str, ...]:
    """The names of a computed variable: its own, and where they are known its line and module.

    Parameters
    ----------
    call
        Which call of the module it is, from 1.
    """
    again = f"call {call}" if call > 1 else ""
    return tuple(filter(None, (variable, line, f"in {module}" if module else "", again)))


def names_of_ops(
    ops: Iterable[str],
    origins: Mapping[str, Sequence[str]],
    of_source: Mapping[str, Sequence[str]],
) -> dict[str, tuple[str, ...]]:
    """The names of ops, by where the first of their parts comes from that is known.

    Parameters
    ----------
    origins
        The variables that a fused op was made of; other ops are named after a variable.
    of_source
        `source_names` of variables.
    """
    found = {}
    for op in ops:
        whole = _SLICE.sub("", op)
        for part in origins.get(whole, (whole,)):
            name = part
            while name and name not in of_source:
                name = name.rpartition("_")[0]
            if name:
                found[op] = (op, *of_source[name][1:])
                break
    return found


def joined(parts: Iterable[str]) -> str:
    """Parts of a sentence as ``a, b and c``."""
    every = list(parts)
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} and {every[-1]}"
