"""Refuses arguments of another type than the annotations of a public function name."""

from __future__ import annotations

import inspect
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_LONGEST = 60
"""Characters of a value that a message shows."""
_ABSTRACT: dict[Any, str] = {
    Mapping: "a mapping",
    Sequence: "a sequence",
    Iterable: "an iterable",
}
_PLAIN: dict[Any, tuple[type | tuple[type, ...], str]] = {
    float: (numbers.Real, "a number"),
    int: (numbers.Integral, "a whole number"),
    str: (str, "a text"),
    Path: (os.PathLike, "a path"),
}


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Refuse arguments of a wrong type before the function begins.

    Annotations that name anything else than numbers, texts, paths, our own classes, functions and
    collections are left to the function.

    Raises
    ------
    TypeError
        Raised by the function, naming the parameter, what it takes and what it was given.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given = signature.bind(*args, **kwargs).arguments
        for name, value in given.items():
            if (known := _kinds(function, name)) is None:
                continue
            if not any(_is(value, kind) for kind in known):
                wanted = " or ".join(_called(kind) for kind in known if not _is_part(kind, known))
                raise TypeError(f"expected {wanted} for {name}, got {_short(value)}")
        return function(*args, **kwargs)

    return call


@cache
def _kinds(function: Callable[..., Any], name: str) -> tuple[Any, ...] | None:
    """The types that a parameter takes; None where they cannot be checked."""
    parameter = inspect.signature(function).parameters[name]
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return None
    names = vars(sys.modules[function.__module__])
    try:
        hint = typing.get_type_hints(_annotated(parameter.annotation), names)["it"]
        kinds = tuple(_members(hint))
    except (NameError, TypeError):  # imported for type checkers only
        return None
    return kinds if all(_is_known(kind) for kind in kinds) else None


def _annotated(annotation: object) -> Any:
    return type("Annotated", (), {"__annotations__": {"it": annotation}})


def _members(hint: Any) -> Iterable[Any]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        for member in typing.get_args(hint):
            yield from _members(member)
    else:
        yield typing.get_origin(hint) or hint


def _is_known(kind: Any) -> bool:
    if kind in (bool, type(None), Callable) or kind in _PLAIN or kind in _ABSTRACT:
        return True
    is_ours = isinstance(kind, type) and kind.__module__.startswith("tvm_xengine")
    return is_ours and not getattr(kind, "_is_protocol", False)


def _is(value: object, kind: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is Callable:
        return callable(value)
    kind = Iterable if kind is Sequence else kind  # sets of patterns are as good
    return isinstance(value, _PLAIN[kind][0] if kind in _PLAIN else kind)


def _is_part(kind: Any, known: tuple[Any, ...]) -> bool:
    """Whether another of the types says it all: a whole number is a number."""
    return kind is int and float in known


def _called(kind: Any) -> str:
    if kind in _PLAIN:
        return _PLAIN[kind][1]
    plain = {bool: "True or False", type(None): "None", Callable: "a function"}
    return plain.get(kind) or _ABSTRACT.get(kind) or f"a {kind.__name__}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({type(value).__name__})"
