"""JSON Schemas of annotations and dataclasses, with the words of their docstrings."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from numpydoc.docscrape import NumpyDocString

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
TRUTH: Schema = {"type": "boolean"}

_PLAIN: Mapping[Any, Schema] = {
    str: TEXT,
    int: WHOLE,
    float: NUMBER,
    bool: TRUTH,
    type(None): {"type": "null"},
    Any: {},
}


def schema_of(hint: Any, *, written: bool = False) -> Schema:
    """The schema of a value with an annotation.

    Parameters
    ----------
    written
        Whether only what this program writes is described: then every field is there. Otherwise
        fields with a default may be missing.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}
    if is_dataclass(hint):
        return schema_of_class(typing.cast(type, hint), written=written)
    parts = [schema_of(one, written=written) for one in arguments if one is not Ellipsis]
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": parts}
    if origin is tuple and arguments[-1] is not Ellipsis:
        return sequence(parts)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": parts[1]}
    if isinstance(origin, type) and issubclass(origin, Collection):
        return {"type": "array", "items": parts[0]}
    raise TypeError(f"no schema is known for {hint!r}")


def schema_of_class(
    cls: type,
    *,
    written: bool = False,
    without: Sequence[str] = (),
    **properties: Schema,
) -> Schema:
    """The schema of an object with the fields of a dataclass.

    Parameters
    ----------
    without
        Fields that the file does not have.
    properties
        Fields that the file has in another form, or in addition; those in addition may be missing
        unless `written`.
    """
    hints, words = typing.get_type_hints(cls), descriptions(cls)
    own = [one for one in fields(cls) if one.init and one.name not in without]
    found: dict[str, Schema] = {}
    for one in own:
        there = properties.get(one.name) or schema_of(hints[one.name], written=written)
        found[one.name] = {**there, **words.get(one.name, {})}
    extra = {name: one for name, one in properties.items() if name not in found}
    required = [one.name for one in own if written or _has_no_default(one)]
    return {
        **record({**found, **extra}, [*required, *(extra if written else ())]),
        "description": (inspect.getdoc(cls) or "").split("\n")[0],
    }


def record(properties: Mapping[str, Schema], required: Sequence[str] | None = None) -> Schema:
    """An object with these keys and no others; None requires all of them."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def sequence(parts: Sequence[Schema]) -> Schema:
    """A list of these values, in this order."""
    count = len(parts)
    return {"type": "array", "prefixItems": list(parts), "minItems": count, "maxItems": count}


def rows(of: Schema) -> Schema:
    """A list of such values."""
    return {"type": "array", "items": of}


def by_name(of: Schema) -> Schema:
    """An object with such values under any name."""
    return {"type": "object", "additionalProperties": of}


def or_null(of: Schema) -> Schema:
    """Such a value, or null."""
    return {"anyOf": [of, {"type": "null"}]}


@cache
def descriptions(cls: type) -> dict[str, Schema]:
    """What a class says of each of its fields."""
    found: dict[str, Schema] = {}
    for names, _, lines in NumpyDocString(inspect.getdoc(cls) or "")["Attributes"]:
        for name in names.split(","):
            found[name.strip()] = {"description": " ".join(" ".join(lines).split())}
    return found


def _has_no_default(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING
