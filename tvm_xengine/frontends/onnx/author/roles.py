"""Decides which tensors of an ONNX file are trained, by the operators that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper

from tvm_xengine.frontends.onnx.author.kinds import Kind, is_made_in_code
from tvm_xengine.frontends.onnx.author.tables import (
    follows_formula,
    is_float,
    is_mask,
    named_as_parameter,
    named_by_exporter,
)
from tvm_xengine.frontends.onnx.author.uses import NORMS, InputUse, use_of
from tvm_xengine.frontends.onnx.graphs.functions import all_nodes, reads_of
from tvm_xengine.frontends.roles import TensorRole, Use
from tvm_xengine.relax_ir.types import Array


def decide_roles(graph: onnx.GraphProto, kinds: Mapping[str, Kind]) -> dict[str, TensorRole]:
    """The role of each initialiser, by name.

    0. What the file tells of it (`kinds`) holds before all guesses: buffers and constants of the code
       are not trained; parameters are, unless their values are those of a mask or of a formula.

    1. What a layer multiplies with, adds or looks up is trained: filters, matrices, scales and
       biases of norms, recurrent weights, tables of embeddings.
       The ones and zeros that an exporter writes for a norm without scale and shift are constants.
    2. Running means and variances are statistics.
    3. An operand of arithmetic (a bias, a scale, a table of positions) is trained, unless its
       values are those of a mask or of a formula, unless it is a single number that the exporter
       named, and unless it meets the data before any trained layer does (means and deviations
       of the inputs; a table that is added there is one of positions, and what is called weight or
       bias is that of a norm).
    4. First states of recurrent layers are frozen where they are zero.
    5. All else is constant: shapes, bounds, indices, scales of quantisation.

    What is computed from initialisers alone has its role from who reads the result. A tensor
    with several uses has the first role of trained, statistic, frozen, constant.
    """
    return _Decision(graph, kinds).roles()


_SCALE = 1
"""Position of the scale among the inputs of a norm; the shift follows it."""


@dataclass(frozen=True)
class _Reading:
    """One use of a tensor of the file, perhaps after operators that read nothing else."""

    node: onnx.NodeProto
    position: int
    use: InputUse


@dataclass
class _Decision:
    graph: onnx.GraphProto
    kinds: Mapping[str, Kind]
    values: dict[str, Array] = field(init=False)
    readings: dict[str, list[_Reading]] = field(init=False)

    def __post_init__(self) -> None:
        self.values = {t.name: numpy_helper.to_array(t) for t in self.graph.initializer}
        self.readings = _readings(self.graph, self.values)

    def roles(self) -> dict[str, TensorRole]:
        """Decided in two rounds: layers first, then arithmetic by what layers it follows."""
        definite = {
            name
            for name, read in self.readings.items()
            if any(one.use is InputUse.WEIGHT for one in read) and self._can_train(name)
        }
        followers = _followers(self.graph, definite)
        leaders = _leaders(self.graph, definite)
        return {name: self._role(name, followers, leaders) for name in self.values}

    def _can_train(self, name: str) -> bool:
        value = self.values[name]
        if self._is_neutral(name) or self._is_looked_up_formula(name) or self._in_code(name):
            return False
        return is_float(value) and not is_mask(value)

    def _is_neutral(self, name: str) -> bool:
        """The ones or zeros of a norm that has no scale or no shift."""
        value = self.values[name]
        read = [one for one in self.readings[name] if one.use is InputUse.WEIGHT]
        return named_by_exporter(name) and all(
            one.node.op_type in NORMS and (value == (one.position == _SCALE)).all() for one in read
        )

    def _in_code(self, name: str) -> str:
        """Why a tensor is no parameter, where that is known; else nothing."""
        kind = self.kinds.get(name)
        if kind is not None:
            return "" if kind is Kind.PARAMETER else kind.value
        return "all elements are equal" if is_made_in_code(name, self.values[name]) else ""

    def _is_looked_up_formula(self, name: str) -> bool:
        """A table of sines that positions are looked up in."""
        read = [one for one in self.readings[name] if one.use is InputUse.WEIGHT]
        return all(one.node.op_type == "Gather" for one in read) and follows_formula(
            self.values[name]
        )

    def _role(self, name: str, followers: set[str], leaders: set[str]) -> TensorRole:
        value, read = self.values[name], self.readings.get(name, [])
        if not is_float(value):
            return TensorRole(name, name, Use.CONSTANT, reason=f"holds {value.dtype}")
        if not read:
            told = "only shapes and constants are made of it"
            return TensorRole(name, name, Use.CONSTANT, reason=told)
        found = [self._by_reading(name, one, followers, leaders) for one in read]
        order = (Use.TRAINED, Use.STATISTIC, Use.FROZEN, Use.CONSTANT)
        use, reason = min(found, key=lambda one: order.index(one[0]))
        others = sum(one[0] is use for one in found) - 1
        shared = f", shared by {others} more" if others else ""
        return TensorRole(name, name, use, reason=f"{reason}{shared}")

    def _by_reading(
        self, name: str, reading: _Reading, followers: set[str], leaders: set[str]
    ) -> tuple[Use, str]:
        value, told = self.values[name], _told(reading.node)
        match reading.use:
            case InputUse.STATISTIC:
                return Use.STATISTIC, f"running statistic of {told}"
            case InputUse.WEIGHT:
                if self._is_neutral(name):
                    return Use.CONSTANT, f"{told} has no such weight of its own"
                if self._can_train(name):
                    return Use.TRAINED, f"weight of {told}"
                if why := self._in_code(name):
                    return Use.FROZEN, f"{why}, read by {told}"
                return Use.FROZEN, f"read by {told}, with the values of a mask or of a formula"
            case InputUse.STATE:
                if why := self._in_code(name):
                    return Use.FROZEN, f"{why}, first state of {told}"
                if not value.any() and name not in self.kinds:
                    return Use.FROZEN, f"zero as the first state of {told}"
                return Use.TRAINED, f"first state of {told}"
            case InputUse.ARITHMETIC:
                return self._of_arithmetic(name, reading.node, followers, leaders)
            case InputUse.OTHER:
                return Use.CONSTANT, f"decides how {told} works"

    def _of_arithmetic(
        self, name: str, node: onnx.NodeProto, followers: set[str], leaders: set[str]
    ) -> tuple[Use, str]:
        value, told = self.values[name], _told(node)
        why = self._in_code(name)
        if value.size == 1 and (why or named_by_exporter(name)):
            return Use.CONSTANT, f"a number in the code, read by {told}"
        if not np.isfinite(value.astype(np.float64)).all() or is_mask(value):
            return Use.FROZEN, f"a mask, read by {told}"
        if follows_formula(value):
            return Use.FROZEN, f"a table that follows a formula, read by {told}"
        if name in self.kinds:
            return (
                (Use.FROZEN, f"{why}, read by {told}")
                if why
                else (Use.TRAINED, f"operand of {told}")
            )
        follows = any(name in followers for name in node.input)
        leads = any(made in leaders for made in node.output)
        is_table = node.op_type == "Add" and sum(extent > 1 for extent in value.shape) > 1
        if leads and not follows and not is_table and not named_as_parameter(name):
            return Use.FROZEN, f"meets the input in {told}, before any trained layer"
        return Use.TRAINED, f"operand of {told}"


def _readings(graph: onnx.GraphProto, values: Mapping[str, Array]) -> dict[str, list[_Reading]]:
    """Who reads each tensor of the file together with data, after what is made of it alone."""
    origins: dict[str, set[str]] = {name: {name} for name in values}
    found: dict[str, list[_Reading]] = {name: [] for name in values}
    for node in all_nodes(graph):
        reads = reads_of(node)
        if (reads and all(name in origins for name in reads)) or node.op_type == "Constant":
            for made in node.output:
                origins[made] = {one for name in reads for one in _passed(node, name, origins)}
            continue
        for position, name in enumerate(node.input):
            for origin in origins.get(name, ()):
                found[origin].append(_Reading(node, position, use_of(node, position)))
    return found


def _passed(node: onnx.NodeProto, name: str, origins: Mapping[str, set[str]]) -> Iterable[str]:
    """Shapes are made of a tensor without its values; scales of quantisation are no weights."""
    is_scale = node.op_type in ("QuantizeLinear", "DequantizeLinear") and name != node.input[0]
    return () if is_scale or node.op_type in ("Shape", "Size") else origins[name]


def _followers(graph: onnx.GraphProto, weights: set[str]) -> set[str]:
    """What depends on a weight, or is made inside a loop or branch, of which no more is known."""
    found = set(weights)
    for node in graph.node:
        inner = [one for a in node.attribute if a.HasField("g") for one in all_nodes(a.g)]
        for one in inner:
            found.update(one.output)
        if inner or any(name in found for name in node.input):
            found.update(node.output)
    return found


def _leaders(graph: onnx.GraphProto, weights: set[str]) -> set[str]:
    """What a layer with weights reads or depends on."""
    made_of_weights = set(weights)
    fixed = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if all(name in fixed for name in reads_of(node)):
            fixed.update(node.output)
            if any(name in made_of_weights for name in reads_of(node)):
                made_of_weights.update(node.output)
    found: set[str] = set()
    for node in reversed(list(graph.node)):
        is_layer = any(name in made_of_weights for name in node.input)
        if is_layer or any(made in found for made in node.output):
            found.update(reads_of(node))
    return found


def _told(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name or node.output[0]}"
