"""C guards against labels out of range and values that are not finite, in all entry points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from tvm_xengine.aot.emit_c.prototypes import Argument, arguments
from tvm_xengine.aot.emit_c.types_in_c import int_literal
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.package.contents import Package
from tvm_xengine.scheduling.value_range import Parts


def not_finite(value: str) -> str:
    """The C condition that a float is NaN or infinite."""
    return f"!(fabsf({value}) <= FLT_MAX)"


def no_rate(value: str) -> str:
    """The C condition that a float is no learning rate: negative, NaN or infinite."""
    return f"!({value} >= 0.0f && {value} <= FLT_MAX)"


def range_guard(package: Package, given: Argument) -> list[str]:
    """Return ``_ERANGE`` where an integer argument has a value that it may not have."""
    name, allowed = f"{given.name}[i]", given.allowed
    assert allowed is not None
    if allowed.parts is not None:
        return _guard_of_parts(package, given, allowed.parts)
    # A comparison with the first or last value of the type would only make compilers warn.
    type_ = np.iinfo(given.place.dtype)
    bounds = [f"{name} < {allowed.low}"] * (allowed.low > type_.min)
    bounds += [f"{name} > {allowed.high}"] * (allowed.high < type_.max)
    if not bounds:
        return []
    besides = "".join(f" && {name} != {value}" for value in allowed.besides)
    outside = f"({' || '.join(bounds)}){besides}"
    return _loop(package, "RANGE", given, f"if ({outside}) return {package.macro}_ERANGE;")


def _guard_of_parts(package: Package, given: Argument, parts: Parts) -> list[str]:
    """The same where elements have different ranges."""
    c_type, name, count = given.c_type, given.name, len(parts.ranges)
    number_type = "uint8_t" if count <= 2**8 else "uint32_t"
    low, high, part = (f"{name}_{what}" for what in ("low", "high", "part"))
    besides = "".join(
        f" && !({part} == {number}u && {name}[i] == {int_literal(value, given.place.dtype)})"
        for number, one in enumerate(parts.ranges)
        for value in one.besides
    )
    outside = f"({name}[i] < {low}[{part}] || {name}[i] > {high}[{part}])"
    return [
        f"#if {package.macro}_RANGE_GUARD",
        "  {",
        f"    static const {c_type} {low}[{count}] = {given.macro}_PART_MIN;",
        f"    static const {c_type} {high}[{count}] = {given.macro}_PART_MAX;",
        f"    static const {number_type} {part}_of[{len(parts.which)}] = {given.macro}_PART;",
        f"    for (size_t i = 0; i < {given.count}u; ++i) {{",
        f"      const size_t {part} = {part}_of[{_place_of(given.place.shape, parts.shape)}];",
        f"      if ({outside}{besides}) return {package.macro}_ERANGE;",
        "    }",
        "  }",
        "#endif",
    ]


def _place_of(whole: Sequence[int], parts: Sequence[int]) -> str:
    """The place in a table of the element `i`, where the table has one place for some dimensions."""
    terms: list[str] = []
    inner, pitch = 1, 1
    for extent, kept in reversed(list(zip(whole, parts, strict=True))):
        if kept > 1:
            at = f"i / {inner}u" if inner > 1 else "i"
            at = f"({at}) % {extent}u" if inner * extent < prod(whole) else at
            terms.insert(0, f"({at}) * {pitch}u" if pitch > 1 else at)
            pitch *= kept
        inner *= extent
    return " + ".join(terms)


def input_guard(package: Package, given: Argument) -> list[str]:
    """Return ``_ENAN`` where a floating-point argument is not finite."""
    name = f"{given.name}[i]"
    check = f"if ({not_finite(name)}) return {package.macro}_ENAN;"
    return _loop(package, "NAN", given, check)


def loss_guard(package: Package, loss: str, before: Sequence[str]) -> list[str]:
    """Return ``_ENAN`` where the loss is not finite, after the lines `before`; `loss` points to it."""
    left = "".join(f" {line.strip()}" for line in before)
    refused = f"return {package.macro}_ENAN;"
    return [
        f"#if {package.macro}_NAN_GUARD",
        f"  if ({not_finite(f'*{loss}')}) {f'{{{left} {refused} }}' if left else refused}",
        "#endif",
    ]


def guard_macros(package: Package, promises: Iterable[str]) -> str:
    """The macros that switch the guards off, with what they cost; `promises` are of the loss's guard."""
    macro = package.macro
    costs = "\n".join(
        f"   {entry.value}: {sum(one.count for one in _floats(package, entry))} elements"
        f"{' and the loss' if entry.learns else ''}, one comparison of the absolute value each"
        for entry in package.functions
        if may_be_not_finite(package, entry)
    )
    learns = any(entry.learns for entry in package.functions)
    refused = "an input or the loss" if learns else "an input"
    said = "Of a bad input nothing is computed and the state is untouched"
    said += f";\n   of a bad loss: {'; '.join(promises)}" if learns else ""
    ranges = "\n".join(
        f"   {entry.value}: {integers} elements, two comparisons each"
        for entry in package.functions
        if (integers := sum(one.count for one in _integers(package, entry)))
    )
    parts = []
    if costs:
        parts.append(f"""\
/* 1: {macro}_ENAN where {refused} is NaN or infinite. {said}. Costs:
{costs} */
#ifndef {macro}_NAN_GUARD
#define {macro}_NAN_GUARD 1
#endif""")
    if ranges:
        parts.append(f"""\
/* 1: {macro}_ERANGE where a label or index is out of its range; nothing was computed then. Costs:
{ranges} */
#ifndef {macro}_RANGE_GUARD
#define {macro}_RANGE_GUARD 1
#endif""")
    return "\n\n".join(parts)


def may_be_not_finite(package: Package, entry: Entry) -> bool:
    """Whether an entry point looks for NaN and infinity, in its inputs or in its loss."""
    return entry.learns or bool(_floats(package, entry))


def _floats(package: Package, entry: Entry) -> list[Argument]:
    given = arguments(package, entry)
    return [one for one in given if one.place.dtype == "float32" and not one.is_result]


def _integers(package: Package, entry: Entry) -> list[Argument]:
    return [one for one in arguments(package, entry) if one.allowed is not None]


def _loop(package: Package, guard: str, given: Argument, check: str) -> list[str]:
    return [
        f"#if {package.macro}_{guard}_GUARD",
        f"  for (size_t i = 0; i < {given.count}u; ++i) {check}",
        "#endif",
    ]
