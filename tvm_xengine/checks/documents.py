"""Dataclasses from JSON, with every field of the type that its class declares."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, fields
from enum import Enum
from functools import cache, partial
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
    hints = _readers(cast(Any, cls))
    for each in fields(cast(Any, cls)):
        if each.init and each.name not in row and _is_required(each):
            raise KeyError(each.name)
    if unknown := [str(key) for key in row if key not in hints]:
        raise TypeError(f"a {cls.__name__} has no field {unknown[0]!r}; it has {', '.join(hints)}")
    try:
        values = {key: hints[key](value) for key, value in row.items()}
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
def _readers(cls: Any) -> dict[str, Callable[[Any], Any]]:
    """How the fields of a dataclass are read."""
    hints = typing.get_type_hints(cls)
    return {field.name: _reader(hints[field.name]) for field in fields(cls) if field.init}


def typed_value(hint: Any, value: object) -> Any:
    """`value` as the type that an annotation names; TypeError where it is another."""
    return _reader(hint)(value)


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """The function that reads values of a type: files have many rows of few types."""
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        (only,) = (_reader(each) for each in arguments if each is not type(None))
        return lambda value: None if value is None and type(None) in arguments else only(value)
    if hint is Any:
        return lambda value: value
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return partial(_items, _reader(arguments[0]))
    if origin is tuple:
        return partial(_tuple, tuple(map(_reader, arguments)))
    if origin is Mapping:
        return partial(_mapping, _reader(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    return partial(_scalar, hint)


def _scalar(hint: type, value: object) -> object:
    if type(value) is hint:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    raise TypeError(f"expected {getattr(hint, '__name__', hint)}, got {_short(value)}")


def _mapping(read: Callable[[Any], Any], value: object) -> dict[object, object]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, got {_short(value)}")
    return {key: read(item) for key, item in value.items()}


def _items(read: Callable[[Any], Any], value: object) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {_short(value)}")
    return tuple(map(read, value))


def _tuple(readers: tuple[Callable[[Any], Any], ...], value: object) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {_short(value)}")
    if len(value) != len(readers):
        raise TypeError(f"expected a list of {len(readers)}, got {_short(value)}")
    return tuple(read(item) for read, item in zip(readers, value, strict=True))


def _short(value: object) -> str:
    """A value in a message, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
