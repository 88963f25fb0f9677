"""Dataclasses from JSON, with every field of the type that its class declares."""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields
from enum import Enum
from functools import cache
from typing import Any, TypeGuard, TypeVar, cast

T = TypeVar("T")


def typed(cls: type[T], row: object) -> T:
    """An object of a dataclass from a JSON object with its fields.

    Lists become tuples, texts become members of an enumeration, whole numbers become floats.

    Raises
    ------
    KeyError
        The name of a field that is missing.
    TypeError
        If a field is unknown or of another type.
    ValueError
        If the class or an enumeration refuses a value.
    """
    if not isinstance(row, dict):
        raise TypeError(f"expected an object for a {cls.__name__}, got {_short(row)}")
    hints = _hints(cast(Any, cls))
    for each in fields(cast(Any, cls)):
        if each.init and each.name not in row and _is_required(each):
            raise KeyError(each.name)
    if unknown := [str(key) for key in row if key not in hints]:
        raise TypeError(f"a {cls.__name__} has no field {unknown[0]!r}; it has {', '.join(hints)}")
    try:
        values = {key: typed_value(hints[key], value) for key, value in row.items()}
    except TypeError as error:
        raise TypeError(f"{cls.__name__} {_short(row.get('name', ''))}: {error}") from error
    return cls(**values)


def is_of_schema(document: object, schema: int | str) -> TypeGuard[dict[str, Any]]:
    """Whether a document is an object that names this version of its format."""
    found = document.get("schema") if isinstance(document, dict) else None
    return type(found) is type(schema) and found == schema


def reject_unknown_keys(where: str, row: Mapping[str, object], known: Collection[str]) -> None:
    """Raise a ValueError that names keys which a reader would pass over."""
    if unknown := sorted(set(row) - set(known)):
        raise ValueError(f"{where} has unknown keys {unknown}; known are {sorted(known)}")


def _is_required(of: Field[Any]) -> bool:
    return of.default is MISSING and of.default_factory is MISSING


@cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls) if field.init}


def typed_value(hint: Any, value: object) -> Any:
    """`value` as the type that an annotation names; TypeError where it is another."""
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        (hint,) = (each for each in arguments if each is not type(None))
        return typed_value(hint, value)
    if hint is Any:
        return value
    if origin is tuple:
        return _tuple(arguments, value)
    if origin is Mapping:
        if not isinstance(value, dict):
            raise TypeError(f"expected an object, got {_short(value)}")
        return {key: typed_value(arguments[1], item) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise TypeError(f"expected {getattr(hint, '__name__', hint)}, got {_short(value)}")
    return value


def _tuple(arguments: tuple[Any, ...], value: object) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {_short(value)}")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(typed_value(arguments[0], item) for item in value)
    if len(value) != len(arguments):
        raise TypeError(f"expected a list of {len(arguments)}, got {_short(value)}")
    return tuple(typed_value(*pair) for pair in zip(arguments, value, strict=True))


def _short(value: object) -> str:
    """A value in a message, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
