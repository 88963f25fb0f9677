"""Functions of the C library that kernels call."""

from __future__ import annotations

_UNARY = """
acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 fabs floor log log10 log1p log2 nearbyint
sin sinh sqrt tan tanh trunc
"""
UNARY = {
    **{name: name for name in _UNARY.split()},
    "round": "nearbyint",
}  # TVM rounds halves to even
"""Library function of each TIR intrinsic with one floating-point argument."""

BINARY = {name: name for name in ("atan2", "copysign", "fmod", "hypot", "nextafter", "pow")}
"""The same with two arguments."""

EXTERN = frozenset(
    name + suffix for name in (*UNARY.values(), *BINARY.values()) for suffix in ("", "f")
)
"""What a kernel may call by its C name."""

OF_UNIT = frozenset(["ceil", "copysign", "fabs", "floor", "nearbyint", "round", "sqrt", "trunc"])
"""Those of which a floating-point unit has instructions."""
