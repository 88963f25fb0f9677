"""What a model was called with when it was exported, and the tensors of a later call like it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile, zip_longest

from tvm_xengine.errors import InvalidDataError


@dataclass(frozen=True)
class Fixed:
    """An argument that is no tensor: export compiles its value in."""

    name: str
    value: object

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}"

    def require(self, value: object) -> None:
        """Refuse another value, unless none is given."""
        if value is not None and value != self.value:
            raise InvalidDataError(
                f"{self} was compiled in, got {value!r}; compile a step for each such value, or make it"
                " a tensor"
            )


Structure = object
"""None for a tensor, `Fixed` for a constant; mappings and sequences of structures."""


def tensors_of(given: Sequence[object], arguments: Sequence[Structure]) -> list[object]:
    """The tensors in the arguments of a call, in the order in which the model reads them.

    Mappings are read by their keys. What is no tensor may be left out, else it must be what was
    compiled in. None counts as nothing.

    Parameters
    ----------
    given
        Arguments of the model, and further ones behind them.
    arguments
        What the model was exported for.

    Raises
    ------
    InvalidDataError
        If a constant or the keys of a mapping are others.
    """
    waiting = list(arguments)
    found: list[object] = []
    for value in given:
        if _holds_tensors(value):  # constants in front of it are left out
            waiting = list(dropwhile(_is_constant, waiting))
        found += _tensors(value, waiting.pop(0) if waiting else None)
    return found


def constants_of(structure: Structure) -> Iterator[Fixed]:
    """All constants in a structure."""
    if isinstance(structure, Fixed):
        yield structure
    for part in _parts(structure):
        yield from constants_of(part)


def _tensors(value: object, like: Structure) -> list[object]:
    if isinstance(like, Fixed):
        like.require(value)
        return []
    if value is None:
        return []
    if isinstance(value, Mapping):
        order = _in_order(value, like) if isinstance(like, Mapping) else dict.fromkeys(value)
        return [leaf for key, part in order.items() for leaf in _tensors(value.get(key), part)]
    if isinstance(value, list | tuple) and any(map(_is_structure, value)):
        parts = zip_longest(value, like if isinstance(like, list | tuple) else ())
        return [leaf for one, part in parts for leaf in _tensors(one, part)]
    return [value]


def _in_order(
    value: Mapping[object, object], like: Mapping[object, Structure]
) -> Mapping[object, Structure]:
    given = {key for key, one in value.items() if one is not None}
    wanted = [key for key, part in like.items() if not _is_constant(part)]
    if not given.issuperset(wanted) or not given.issubset(like):
        raise InvalidDataError(f"expected a mapping with {wanted}, got {list(value)}")
    return like


def _is_structure(value: object) -> bool:
    return value is None or isinstance(value, list | tuple | Mapping) or hasattr(value, "shape")


def _holds_tensors(value: object) -> bool:
    return hasattr(value, "shape") or any(map(_holds_tensors, _parts(value)))


def _is_constant(structure: Structure) -> bool:
    return structure is not None and all(map(_is_constant, _parts(structure)))


def _parts(structure: object) -> Iterable[object]:
    if isinstance(structure, Mapping):
        return structure.values()
    return structure if isinstance(structure, list | tuple) else ()
