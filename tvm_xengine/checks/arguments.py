"""The kinds of arguments that public functions take, read from their annotations.

A value of another kind is refused where it is given, in a sentence that names the parameter. What a value
of the right kind may be (bounds, names, shapes) is checked by the function itself.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import os
import reprlib
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C")

_UNIONS = (Union, types.UnionType)

_WORDS = {
    float: "a number",
    int: "a whole number",
    bool: "True or False",
    str: "a text",
    Path: "a path",
    type(None): "None",
}


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function with the kinds of its arguments checked before it runs.

    Annotations that name what is imported for type checkers only, protocols and ``Any`` take
    every value; the function checks these itself.
    """

    @functools.wraps(function)
    def checking(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        signature = _signature(function)
        given: Mapping[str, object] | None = None
        with suppress(TypeError):
            given = signature.bind(*args, **kwargs).arguments
        if given is None:
            return function(*args, **kwargs)  # Python names what is missing or superfluous
        for name, value in given.items():
            _check(signature.parameters[name], value)
        return function(*args, **kwargs)

    return checking


def checked_fields(kind: type[_C]) -> type[_C]:
    """The dataclass, whose fields are checked for their kinds before one is made."""
    kind.__init__ = checked(kind.__init__)  # type: ignore[method-assign]
    return kind


@functools.cache
def _signature(function: Callable[..., object]) -> inspect.Signature:
    """The signature with annotations as objects; Any where one names what is not imported."""
    signature = inspect.signature(function)
    names = getattr(function, "__globals__", {})
    return signature.replace(
        parameters=[
            one.replace(annotation=_evaluated(one.annotation, names))
            for one in signature.parameters.values()
        ]
    )


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except NameError:
        return Any


def _check(parameter: inspect.Parameter, value: object) -> None:
    hint, default = parameter.annotation, parameter.default
    unnamed = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    if parameter.kind in unnamed or value is default or _accepts(hint, value):
        return
    plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    example = f"; for example {parameter.name}={default!r}" if plain else ""
    raise TypeError(
        f"expected {_words(hint)} for {parameter.name}, got {reprlib.repr(value)}"
        f" ({type(value).__name__}){example}"
    )


def _accepts(hint: Any, value: object) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        return any(_accepts(one, value) for one in arguments)
    if origin is not None:
        return _accepts_generic(origin, arguments, value)
    if hint is None:
        return value is None
    if hint in (Any, object, inspect.Parameter.empty) or not isinstance(hint, type):
        return True
    if getattr(hint, "_is_protocol", False):
        return True
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint is int:
        return hasattr(value, "__index__") and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    return isinstance(value, str | os.PathLike if hint is Path else hint)


def _accepts_generic(origin: Any, arguments: tuple[Any, ...], value: object) -> bool:
    if origin is Callable:
        return callable(value)
    if origin is tuple:
        if not isinstance(value, tuple | list):
            return False
        each = arguments[:1] * len(value) if arguments[-1] is ... else arguments
        return len(value) == len(each) and all(map(_accepts, each, value))
    if origin is Mapping:
        key, one = arguments
        return isinstance(value, Mapping) and all(
            _accepts(key, k) and _accepts(one, v) for k, v in value.items()
        )
    if isinstance(origin, type) and issubclass(origin, Iterable) and origin is not np.ndarray:
        if isinstance(value, str):
            return str in arguments
        # Iteration falls back on `__getitem__`.
        return isinstance(value, Iterable) or hasattr(value, "__getitem__")
    return True


def _words(hint: Any) -> str:
    """What a hint takes, as a phrase."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        return " or ".join(dict.fromkeys(map(_words, arguments)))
    if hint in _WORDS:
        return _WORDS[hint]
    if origin is Callable:
        return "a function"
    if origin is tuple:
        of = dict.fromkeys(_words(one) for one in arguments if one is not ...)
        count = "" if arguments[-1] is ... else f"{len(arguments)} values, each "
        return f"a tuple of {count}{' or '.join(of)}"
    if origin is Mapping:
        return f"a mapping from {_words(arguments[0])} to {_words(arguments[1])}"
    if origin is not None:
        return "a sequence" if arguments[0] is Any else f"a sequence, each {_words(arguments[0])}"
    name = str(getattr(hint, "__name__", "value of another kind"))
    return f"{'an' if name[0] in 'AEIO' else 'a'} {name}"
