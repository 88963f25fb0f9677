"""What the functions of a package take, return and promise, as C declarations and comments."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tvm_xengine.aot.c_names import c_identifier
from tvm_xengine.aot.emit_c.types_in_c import int_literal, stored_type
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.package.contents import GRADIENT_WEIGHT, Package, inputs_of
from tvm_xengine.program.step_program import Operand
from tvm_xengine.scheduling.value_range import Parts, ValueRange

_LINE = 96
"""Characters of a line of a table, so that it can be read."""


@dataclass(frozen=True)
class Argument:
    """An array that the caller of an entry point hands over.

    Attributes
    ----------
    name
        In C.
    macro
        Start of the names of its macros.
    model_name
        In the model.
    place
        Its type and shape, and of a result the place that it is copied from.
    allowed
        The values that an integer input may have; None allows all.
    is_result
        Whether the function writes it.
    """

    name: str
    macro: str
    model_name: str
    place: Operand
    allowed: ValueRange | None
    is_result: bool

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.place.shape)

    @property
    def c_type(self) -> str:
        """Type of an element."""
        return stored_type(self.place.dtype)


def arguments(package: Package, entry: Entry) -> list[Argument]:
    """What an entry point takes: inputs first, then results."""
    interface = package.functions[entry].interface
    macros: list[str] = []

    def macro(name: str) -> str:
        made = f"{package.macro}_{entry.name}_{name.upper()}"
        while made in macros:  # `x` and `X` are two inputs
            made += "_"
        macros.append(made)
        return made

    found = [
        Argument(
            view.name, macro(view.name), name, view, interface.ranges.get(name), is_result=False
        )
        for name, view in inputs_of(package.functions[entry]).items()
    ]
    taken = {argument.name for argument in found}
    for name, place in interface.results.items():
        if name != GRADIENT_WEIGHT:
            c_name = c_identifier(name)
            c_name = f"{c_name}_out" if c_name in taken else c_name
            found.append(Argument(c_name, macro(c_name), name, place, None, is_result=True))
    return found


def prototype(package: Package, entry: Entry) -> str:
    """Declaration of an entry point, without semicolon."""
    given = [
        f"{'' if one.is_result else 'const '}{one.c_type} *{one.name}"
        for one in arguments(package, entry)
    ]
    everything = ", ".join([f"{package.name}_ctx *ctx", *given])
    return f"int32_t {package.name}_{entry.value}({everything})"


def init_prototype(package: Package) -> str:
    """Declaration of the initialisation, without semicolon."""
    memory = "".join(f", void *{name}, size_t {name}_bytes" for name in package.regions)
    return f"int32_t {package.name}_init({package.name}_ctx *ctx{memory}, uint64_t plan_hash)"


def argument_lines(package: Package, entry: Entry) -> Iterator[str]:
    """For each argument, what it holds: type, shape, allowed values."""
    for one in arguments(package, entry):
        shape = f" {list(one.place.shape)}" if one.place.shape else ""
        kind = f"{one.place.dtype}{shape}" if shape else f"one {one.place.dtype}"
        original = "" if one.model_name == one.name else f", {one.model_name!r} of the model"
        result = "; result, may be NULL" if one.is_result else ""
        yield f"{one.name}: {kind}{_allowed(one.allowed)}{original}{result}"


def argument_macros(package: Package, entry: Entry) -> Iterator[str]:
    """Macros with the shape, the number of elements and the allowed values of each argument."""
    for one in arguments(package, entry):
        start = f"#define {one.macro}"
        yield f"{start}_COUNT {one.count}u /* {one.place.size_bytes} bytes */"
        if one.place.shape:
            yield f"{start}_SHAPE {{{', '.join(map(str, one.place.shape))}}}"
        if one.allowed is not None and one.allowed.parts is not None:
            yield from _part_macros(start, one.place.dtype, one.allowed.parts)
        elif one.allowed is not None:
            yield f"{start}_MIN {_literal(one.allowed.low)}"
            yield f"{start}_MAX {_literal(one.allowed.high)}"
            for position, value in enumerate(one.allowed.besides):
                yield f"{start}_IGNORED{_position(position)} {_literal(value)}"


def _part_macros(start: str, dtype: str, parts: Parts) -> Iterator[str]:
    """Macros of the ranges that elements have, and of which one each has."""
    yield (
        f"{start}_PART_SHAPE {{{', '.join(map(str, parts.shape))}}} /* 1 stands for all of a dimension */"
    )
    numbers = ", ".join(map(str, parts.which))
    lines = textwrap.wrap(numbers, _LINE) if len(numbers) > _LINE else [numbers]
    yield f"{start}_PART {{" + " \\\n  ".join(["", *lines] if lines[1:] else lines) + "}"
    for limit, values in (
        ("MIN", [one.low for one in parts.ranges]),
        ("MAX", [one.high for one in parts.ranges]),
    ):
        yield f"{start}_PART_{limit} {{{', '.join(int_literal(v, dtype) for v in values)}}}"
    for number, one in enumerate(parts.ranges):
        for position, value in enumerate(one.besides):
            yield f"{start}_PART_{number}_IGNORED{_position(position)} {int_literal(value, dtype)}"


def _position(position: int) -> str:
    """The number behind a name of which there are several."""
    return "" if position == 0 else f"_{position + 1}"


def _literal(value: int) -> str:
    return f"({value})" if value < 0 else str(value)


def _allowed(allowed: ValueRange | None) -> str:
    if allowed is None:
        return ""
    return f", each {allowed}"
