"""How element types are stored and computed with in C."""

from __future__ import annotations

import math

from tvm_xengine.errors import UnsupportedModuleError

_STORED = {
    "bool": "uint8_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}

HALF_TYPES = ("float16", "bfloat16")
"""Types that are stored as 16 bits, and computed with as float rounded after every operation."""

NARROW_TYPES = ("int8", "uint8", "int16", "uint16")
"""Types that C widens to int, so that results must be cut back."""


def stored_type(dtype: str) -> str:
    """The C type of an element in memory.

    Raises
    ------
    UnsupportedModuleError
        If C has no such type.
    """
    if dtype not in _STORED:
        raise UnsupportedModuleError(
            f"the C back end has no type for {dtype}; it has {', '.join(_STORED)}"
        )
    return _STORED[dtype]


def value_type(dtype: str) -> str:
    """The C type of an expression."""
    return "float" if dtype in HALF_TYPES else stored_type(dtype)


def is_float(dtype: str) -> bool:
    """Whether `dtype` is a floating-point type."""
    return "float" in dtype


def float_literal(value: float, dtype: str) -> str:
    """`value` as a hexadecimal constant, which C reads back to the same bits."""
    suffix = "" if dtype == "float64" else "f"
    if math.isnan(value):
        return "NAN" if suffix else "(double)NAN"
    if math.isinf(value):
        name = "INFINITY" if suffix else "(double)INFINITY"
        return name if value > 0 else f"(-{name})"
    mantissa, exponent = value.hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    text = f"{mantissa}p{exponent}{suffix}"
    return f"({text})" if text.startswith("-") else text


def int_literal(value: int, dtype: str) -> str:
    """`value` as a C constant of the right width and sign."""
    if dtype == "bool":
        return "1" if value else "0"
    if dtype == "int64":
        # The smallest number has no literal of its own in C.
        return "INT64_MIN" if value == -(2**63) else f"({value}LL)" if value < 0 else f"{value}LL"
    if dtype in ("uint32", "uint64"):
        return f"{value}{'ull' if dtype == 'uint64' else 'u'}"
    if value == -(2**31):
        return "INT32_MIN"
    return f"({value})" if value < 0 else str(value)
