"""Layers of a model, by the names of their parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tvm_xengine.frontends.roles import TensorRole, Use

_SUFFIX = re.compile(r"(.+)_(?:weight|bias)")
"""Names of parameters that have no dot before their last part, as in this package's own networks."""


@dataclass(frozen=True)
class Layer:
    """Parameters that are trained together or not at all.

    Attributes
    ----------
    parameters
        Names in ``main``.
    score
        What it is worth to train them; scores of layers add up.
    """

    name: str
    parameters: tuple[str, ...]
    score: float


def enclosing(name: str) -> Iterator[str]:
    """The layer of a parameter and the modules around it, the innermost first."""
    module = name.rpartition(".")[0]
    suffixed = _SUFFIX.fullmatch(name)
    if suffixed and not (module and suffixed[1] == module):
        yield suffixed[1]
    while module:
        yield module
        module = module.rpartition(".")[0]


def layer_name(role: TensorRole) -> str:
    """The layer that a parameter belongs to: ``net.conv`` of ``net.conv.weight``."""
    module = role.name.rpartition(".")[0]
    return module or next(enclosing(role.name), role.name)


def layer_sums(roles: Iterable[TensorRole], values: Mapping[str, float]) -> dict[str, float]:
    """Sums of a value of each trained parameter, by its name in ``main``, over each layer."""
    sums: dict[str, float] = {}
    for role in roles:
        if role.use is Use.TRAINED:
            layer = layer_name(role)
            sums[layer] = sums.get(layer, 0.0) + values[role.variable]
    return sums
