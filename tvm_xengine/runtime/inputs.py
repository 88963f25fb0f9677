"""Checks of a step's inputs: names, shapes, types, values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tvm_xengine.errors import InvalidInputError
from tvm_xengine.program.step_program import StepInterface
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.value_range import ValueRange

_MOST_NAMED = 8
"""So many names stand in a message; large networks have hundreds of parameters."""

_FLOATS = ("float", "bfloat")
_NO_NUMBERS = "OUSMm"
"""Kinds of arrays of objects, text, dates and durations."""


def checked_inputs(
    interface: StepInterface, arrays: Mapping[str, ArrayLike], *, required: Iterable[str] = ()
) -> dict[str, NDArray[np.generic]]:
    """`arrays` in the types that the step reads.

    Floating-point inputs take floating-point numbers, rounded to their type, integers and booleans;
    integer inputs take integers and booleans; boolean inputs take booleans, 0 and 1.

    Parameters
    ----------
    required
        Inputs that must be there.

    Raises
    ------
    InvalidInputError
        If an input is unknown, missing, of another shape or type, or has a value out of its range.
    """
    if unknown := [name for name in arrays if name not in interface.given]:
        raise InvalidInputError(
            f"expected one of {_some(interface.given)} as input, got {unknown[0]!r}"
        )
    if missing := [name for name in required if name not in arrays]:
        raise InvalidInputError(
            f"expected the inputs {_some(required)}, got {_some(arrays)}: {missing[0]!r} is missing"
        )
    return {name: _checked(interface, name, array) for name, array in arrays.items()}


def in_slices(
    interface: StepInterface, arrays: Mapping[str, NDArray[np.generic]]
) -> dict[str, NDArray[np.generic]]:
    """Checked inputs as they lie in arenas: those in slices are cut."""
    found: dict[str, NDArray[np.generic]] = {}
    for name, values in arrays.items():
        pieces = interface.slices.get(name, ())
        ends = np.cumsum([interface.inputs[piece].shape[0] for piece in pieces])
        cut = np.split(values, ends[:-1]) if pieces else [values]
        found.update(zip(pieces or (name,), cut, strict=True))
    return found


def is_finite(array: NDArray[Any]) -> bool:
    """Whether no element is a NaN or an infinity; one pass over the array, without a copy."""
    if not _is_float(array.dtype):
        return True
    # In float64 the sum of finite numbers of shorter types cannot overflow.
    with np.errstate(all="ignore"):
        total = array.sum(dtype=np.float64)
    return bool(np.isfinite(total)) or bool(np.isfinite(array.astype(np.float64)).all())


def nan_count(array: NDArray[Any]) -> int:
    """How many elements are a NaN."""
    return 0 if is_finite(array) else int(np.isnan(array.astype(np.float64)).sum())


def _checked(interface: StepInterface, name: str, array: ArrayLike) -> NDArray[np.generic]:
    view = interface.given[name]
    try:
        values = np.asarray(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(f"{name}: expected an array, got {type(array).__name__}") from error
    if values.dtype.kind in _NO_NUMBERS:
        found = type(array).__name__ if values.ndim == 0 else _type_of(values)
        raise InvalidInputError(f"{name} must have type {view.dtype}, got {found}")
    if values.shape != view.shape:
        raise InvalidInputError(
            f"{name} must have shape {view.shape}, got {values.shape}"
            f"{_advice(view.shape, values.shape) if view.role is Role.BATCH else ''}"
        )
    wanted = np.dtype(view.dtype)
    if not _is_taken(values, wanted):
        raise InvalidInputError(f"{name} must have type {view.dtype}, got {_type_of(values)}")
    if wanted.kind in "iu" and values.dtype.kind in "iub" and values.size:
        info = np.iinfo(wanted)
        allowed = interface.ranges.get(name, ValueRange(int(info.min), int(info.max)))
        _check_range(name, values, allowed)
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(values, dtype=wanted).reshape(view.shape)
    if _is_float(wanted) and values.dtype.itemsize > wanted.itemsize:
        _check_overflow(name, values, stored)
    return stored


def _is_taken(values: NDArray[Any], wanted: np.dtype[Any]) -> bool:
    found = values.dtype
    if found == wanted:
        return True
    if _is_float(wanted):
        return _is_float(found) or found.kind in "iub"
    if wanted.kind in "iu":
        return found.kind in "iub"
    return found.kind in "iu" and bool(((values == 0) | (values == 1)).all())


def _check_range(name: str, values: NDArray[Any], allowed: ValueRange) -> None:
    if (place := allowed.first_outside(values)) is None:
        return
    where = f" at {place}" if place else ""
    if allowed.parts is not None:
        raise InvalidInputError(
            f"{name} must be in {allowed.at(place)}{where}, got {values[place]}"
        )
    raise InvalidInputError(f"{name} must be in {allowed}, got {values[place]}{where}")


def _check_overflow(name: str, values: NDArray[Any], stored: NDArray[Any]) -> None:
    """Refuse finite numbers that are infinite in the type that the step reads."""
    if is_finite(stored):
        return
    lost = np.isinf(stored.astype(np.float64)) & np.isfinite(values)
    if lost.any():
        place = np.unravel_index(int(lost.argmax()), values.shape)
        where = "" if not place else f" at {tuple(map(int, place))}"
        raise InvalidInputError(
            f"{name} must have numbers that {stored.dtype} can hold, got {values[place]}{where}"
        )


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.name.startswith(_FLOATS)


def _type_of(values: NDArray[Any]) -> str:
    return "text" if values.dtype.kind in "US" else str(values.dtype)


def _some(names: Iterable[str]) -> str:
    every = list(names)
    more = f", and {len(every) - _MOST_NAMED} more" if len(every) > _MOST_NAMED else ""
    return f"{every[:_MOST_NAMED]}{more}"


def _advice(wanted: tuple[int, ...], found: tuple[int, ...]) -> str:
    """What to do about a batch of another size, such as the rest at the end of an epoch."""
    if not wanted or len(found) != len(wanted) or found[1:] != wanted[1:]:
        return ""
    return (
        f"; every batch has {wanted[0]} entries, so leave out a rest (drop_last=True of a loader)"
    )
