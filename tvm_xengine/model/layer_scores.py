"""Scores of layers that a user gives: from a file, and which parameters they are of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from tvm_xengine.checks.names import closest_first, some
from tvm_xengine.errors import InvalidScoresError
from tvm_xengine.files.read_text import read_document
from tvm_xengine.frontends.layers import Layer, enclosing, layer_name
from tvm_xengine.frontends.roles import TensorRole, Use


def read_scores(path: Path) -> dict[str, float]:
    """Scores by name of a layer or parameter, from a TOML file with lines such as ``"net.conv1" = 0.3``.

    Tables are read as the beginning of names: ``[net]`` with ``conv1 = 0.3`` says the same.

    Raises
    ------
    InvalidScoresError
        If the file cannot be read, is not TOML, or a score is no number of at least 0.
    """
    return read_document(path, "scores", InvalidScoresError, _parsed)


def _parsed(text: str) -> dict[str, float]:
    try:
        document = tomlkit.parse(text).unwrap()
    except (TOMLKitError, RecursionError, AttributeError, TypeError) as error:
        # tomlkit passes some faults of a text on as errors of its own code.
        raise ValueError(f"expected TOML: {error}") from error
    pairs = list(_flat(document, ""))
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidScoresError(f"{twice!r} has two scores; leave one out")
    return checked_scores(dict(pairs))


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def checked_scores(scores: Mapping[str, object]) -> dict[str, float]:
    """The scores as numbers.

    Raises
    ------
    InvalidScoresError
        If one is no finite number of at least 0, or none is above 0.
    """
    for name, score in scores.items():
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        if not (is_number and 0 <= score < math.inf):  # type: ignore[operator]
            raise InvalidScoresError(
                f"expected a finite number of at least 0 as the score of {name!r}, got {score!r}"
            )
    found = {name: float(score) for name, score in scores.items()}  # type: ignore[arg-type]
    if not sum(found.values()) > 0:
        raise InvalidScoresError("expected the score of at least one layer above 0")
    if not sum(found.values()) < math.inf:
        raise InvalidScoresError("expected scores with a finite sum; divide all by a number")
    return found


def scored_layers(roles: Sequence[TensorRole], scores: Mapping[str, float]) -> tuple[Layer, ...]:
    """The layers to choose from, in the order of the model.

    A name is that of a parameter, of a layer, or of a module around layers. A parameter belongs to the
    innermost name that has a score; one without any stays frozen.

    Raises
    ------
    InvalidScoresError
        If a name is none of the model, its parameters are not trained, or all belong to other names.
    """
    members: dict[str, list[str]] = {name: [] for name in scores}
    for role in roles:
        if role.use is Use.TRAINED:
            name = next((name for name in _names_around(role) if name in scores), None)
            if name is not None:
                members[name].append(role.variable)
    for name in scores:
        if not members[name]:
            raise InvalidScoresError(_without_parameters(name, roles))
    position = {role.variable: at for at, role in enumerate(roles)}
    found = [Layer(name, tuple(members[name]), score) for name, score in scores.items()]
    return tuple(sorted(found, key=lambda layer: position[layer.parameters[0]]))


def _names_around(role: TensorRole) -> Iterator[str]:
    """Names by which a score may mean a parameter, the innermost first."""
    yield from role.names
    for name in role.names:
        yield from enclosing(name)


def _without_parameters(name: str, roles: Sequence[TensorRole]) -> str:
    """Why a score is of no parameter."""
    around = [role for role in roles if name in _names_around(role)]
    parameters = [role for role in around if role.is_parameter]
    if any(role.use is Use.TRAINED for role in parameters):
        return f"all parameters of {name!r} have scores of their own; leave one or the others out"
    if parameters:
        reasons = dict.fromkeys(role.reason for role in parameters if role.reason)
        why = f" ({'; '.join(reasons)})" if reasons else ""
        return f"{name!r} has a score but is not trained{why}; leave the score out, or train it"
    if around:
        return f"{name!r} has a score but is a {around[0].use.value}, and no parameter"
    known = {layer_name(r): None for r in roles if r.use is Use.TRAINED}
    known |= {r.name: None for r in roles if r.use is Use.TRAINED}
    return (
        f"{name!r} is no layer or parameter of the model; the closest are"
        f" {some(closest_first(known, name))}"
    )
