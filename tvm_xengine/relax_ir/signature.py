"""The roles of the parameters and results of a step's function, as typed attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tvm import relax

from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.relax_ir.dataflow import returned_fields
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.value_range import Parts, ValueRange

TRAIN_STEP = "train_step"

CONSTANTS_ATTR = "tvm_xengine.constants"
"""Attribute of a function: the values of the constants lifted to its last parameters."""

_ROLES = "tvm_xengine.roles"
_NUM_RESULTS = "tvm_xengine.num_results"
_RESULTS = "tvm_xengine.results"
_UPDATES = "tvm_xengine.updates"
_RANGES = "tvm_xengine.ranges"


@dataclass(frozen=True)
class StepSignature:
    """The contract of a function ``f(batch..., hyper..., state...) -> (results..., new state...)``.

    Attributes
    ----------
    roles
        Role of each parameter, in order.
    num_results
        Number of leading results; every further result is the new value of a state tensor.
    results
        Names of the leading results; None where the function's own tensors name them.
    updates
        For each further result, the position of the parameter that it replaces.
    ranges
        Allowed values of integer inputs, by name: class labels, indices into a table.
    """

    roles: tuple[Role, ...]
    num_results: int
    results: tuple[str, ...] | None = None
    updates: tuple[int, ...] = ()
    ranges: Mapping[str, ValueRange] = field(default_factory=dict)

    @classmethod
    def read(cls, func: relax.Function) -> StepSignature:
        """The signature that the attributes of `func` state.

        Parameters that were added after the attributes had been written are constants.

        Raises
        ------
        UnsupportedModuleError
            If the attributes are missing, or do not add up to what the function returns.
        """
        attrs = dict(func.attrs) if func.attrs else {}
        if _ROLES not in attrs:
            raise UnsupportedModuleError(
                f"the function does not say what its parameters are (attribute {_ROLES});"
                " BuildTrainingGraph does"
            )
        roles = tuple(Role(str(role)) for role in attrs[_ROLES])
        added = (Role.CONSTANT,) * (len(func.params) - len(roles))
        returned = len(returned_fields(func))
        num_results = int(attrs.get(_NUM_RESULTS, returned))
        updates = tuple(int(position) for position in attrs.get(_UPDATES, ()))
        if num_results + len(updates) != returned:
            raise UnsupportedModuleError(
                f"{_UPDATES} names {len(updates)} states, but {returned - num_results} are returned"
            )
        results = tuple(map(str, attrs[_RESULTS])) if _RESULTS in attrs else None
        ranges = {
            str(name): _range_of(json.loads(str(text)))
            for name, text in attrs.get(_RANGES, {}).items()
        }
        return cls((*roles, *added), num_results, results, updates, ranges)

    def write(self, func: relax.Function) -> relax.Function:
        """`func` with attributes that state this signature."""
        attrs = {
            _ROLES: [role.value for role in self.roles],
            _NUM_RESULTS: self.num_results,
            _UPDATES: list(self.updates),
        }
        if self.results is not None:
            attrs[_RESULTS] = list(self.results)
        if self.ranges:
            attrs[_RANGES] = {
                name: json.dumps(asdict(allowed)) for name, allowed in self.ranges.items()
            }
        return func.with_attrs(attrs)


def _range_of(record: dict[str, Any]) -> ValueRange:
    """A range from its fields, with lists for tuples."""
    low, high, besides, parts = (record[k] for k in ("low", "high", "besides", "parts"))
    if parts is None:
        return ValueRange(low, high, tuple(besides))
    ranges = tuple(map(_range_of, parts["ranges"]))
    shape, which = (tuple(parts[k]) for k in ("shape", "which"))
    return ValueRange(low, high, tuple(besides), Parts(ranges, shape, which))


def is_step(func: object) -> bool:
    """Whether a function of a module says what its parameters are."""
    return isinstance(func, relax.Function) and bool(func.attrs) and _ROLES in func.attrs


def lifted_constants(func: relax.Function) -> dict[str, Array]:
    """Values of the constants that were made parameters of `func`, by name."""
    values = list(func.attrs.get(CONSTANTS_ATTR, ())) if func.attrs else []
    names = [param.name for param in func.params[len(func.params) - len(values) :]]
    return {name: value.numpy() for name, value in zip(names, values, strict=True)}
