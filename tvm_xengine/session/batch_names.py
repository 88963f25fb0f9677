"""The tensors of a call by the names of the inputs of a step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tvm_xengine.checks.names import some
from tvm_xengine.errors import InvalidDataError, InvalidInputError
from tvm_xengine.frontends.call_structure import Fixed, Structure, constants_of, tensors_of
from tvm_xengine.frontends.step_names import step_name
from tvm_xengine.model.source import as_array
from tvm_xengine.relax_ir.types import Array


def by_name(
    names: Sequence[str],
    given: Sequence[object],
    named: Mapping[str, object],
    arguments: Sequence[Structure] = (),
) -> dict[str, Array]:
    """The tensors of a call by the names of the step's inputs.

    Parameters
    ----------
    arguments
        What the model was exported for.

    Raises
    ------
    InvalidDataError
        If too many or too few are given; what is missing or unknown is named.
    """
    if len(given) == 1 and isinstance(given[0], Mapping) and not named:
        first = next(iter(arguments), None)
        if not isinstance(first, Mapping) or first.keys().isdisjoint(given[0]):
            return by_name(names, (), given[0], arguments)
    fixed = {one.name: one for structure in arguments for one in constants_of(structure)}
    for name in fixed.keys() & named.keys():
        fixed[name].require(named[name])
    named = {step_name(one, names): value for one, value in named.items() if one not in fixed}
    flat = tensors_of(given, arguments)
    if len(flat) > len(names):
        raise InvalidDataError(
            f"expected {len(names)} tensors ({', '.join(names)}), got {len(flat)}"
            f"{_why_too_many(flat, fixed.values())}"
        )
    values = dict(zip(names, flat, strict=False))
    if unknown := [name for name in named if name not in names]:
        raise InvalidDataError(f"expected the inputs {', '.join(names)}, got {unknown}")
    if double := [name for name in named if name in values]:
        raise InvalidDataError(f"{double} are given by position and by name")
    values = {**values, **named}
    if missing := [name for name in names if name not in values]:
        # An input that a model may do without is given as None, too, and is none of `names`.
        for name, value in zip(names, given, strict=False):
            if value is None:
                raise InvalidDataError(f"expected a tensor for {name}, got None")
        raise InvalidDataError(f"expected the inputs {', '.join(names)}; {missing} are missing")
    return {name: array_called(name, value) for name, value in values.items()}


def _why_too_many(flat: Sequence[object], fixed: Collection[Fixed]) -> str:
    """What may be the reason, as the end of a sentence."""
    listed = any(isinstance(leaf, list | tuple | int | float) for leaf in flat)
    hint = "; give each as a tensor or an array, not as a list of numbers" if listed else ""
    return f"; compiled in were {some(str(one) for one in fixed)}{hint}" if fixed else hint


def array_called(name: str, value: object) -> Array:
    """A tensor of any library as an array; a refusal names it."""
    try:
        return as_array(value)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise InvalidInputError(f"{name}: {str(error).partition(chr(10))[0]}") from error
