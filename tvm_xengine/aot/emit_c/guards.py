"""C guards that protect the state from labels out of range and values that are not finite."""

from __future__ import annotations

from math import prod

from tvm_xengine.aot.package.contents import Package, inputs_of
from tvm_xengine.program.step_program import OutsideView
from tvm_xengine.scheduling.value_range import ValueRange


def range_guard(package: Package, view: OutsideView, allowed: ValueRange) -> list[str]:
    """Return ``_ERANGE`` where an integer argument has a value that it may not have."""
    name = f"{view.name}[i]"
    # Where the type has no negative values, the comparison with 0 would only make compilers warn.
    low = (
        "" if view.dtype.startswith("uint") and allowed.low == 0 else f"{name} < {allowed.low} || "
    )
    besides = "".join(f" && {name} != {value}" for value in allowed.besides)
    outside = f"({low}{name} > {allowed.high}){besides}"
    return _loop(package, "RANGE", view, f"if ({outside}) return {package.macro}_ERANGE;")


def input_guard(package: Package, view: OutsideView) -> list[str]:
    """Return ``_ENAN`` where a floating-point argument is not finite."""
    name = f"{view.name}[i]"
    check = f"if (!({name} - {name} == 0.0f)) return {package.macro}_ENAN;"
    return _loop(package, "NAN", view, check)


def loss_guard(package: Package, loss: str) -> list[str]:
    """Return ``_ENAN`` where the loss is not finite; `loss` is a pointer to it."""
    return [
        f"#if {package.macro}_NAN_GUARD",
        f"  if (!(*{loss} - *{loss} == 0.0f)) return {package.macro}_ENAN;",
        "#endif",
    ]


def guard_macros(package: Package, promise: str) -> str:
    """The macros that switch the guards off, with what they cost; `promise` is of the loss's guard."""
    macro = package.macro
    arguments, ranges = inputs_of(package.train), package.train.interface.ranges
    floats = sum(prod(view.shape) for view in arguments.values() if view.dtype == "float32")
    integers = sum(prod(view.shape) for name, view in arguments.items() if name in ranges)
    return f"""\
/* 1: a step returns {macro}_ENAN where an input or the loss is NaN or infinite: for inputs with the state
   untouched, for the loss {promise}.
   Costs a subtraction and a comparison for each of {floats} input elements and the loss of a step. */
#ifndef {macro}_NAN_GUARD
#define {macro}_NAN_GUARD 1
#endif

/* 1: {macro}_ERANGE where a label or index is out of its range; nothing was computed then.
   Costs two comparisons for each of {integers} elements. */
#ifndef {macro}_RANGE_GUARD
#define {macro}_RANGE_GUARD 1
#endif"""


def _loop(package: Package, guard: str, view: OutsideView, check: str) -> list[str]:
    return [
        f"#if {package.macro}_{guard}_GUARD",
        f"  for (size_t i = 0; i < {prod(view.shape)}u; ++i) {check}",
        "#endif",
    ]
