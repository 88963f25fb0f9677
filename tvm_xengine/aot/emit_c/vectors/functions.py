"""C functions on four neighbouring floats: a vector register of Helium, or four numbers elsewhere."""

from __future__ import annotations

LANES = 4
"""Floats in a register of Arm's Helium (M-profile vector extension)."""

VECTOR = "xe_f32x4"
"""The type, and the prefix of every function."""

_TYPE = f"""\
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
#include <arm_mve.h>
#define XE_HELIUM 1
typedef float32x4_t {VECTOR};
#else
#define XE_HELIUM 0
typedef struct {{
  float of[{LANES}];
}} {VECTOR};
#endif"""

_BINARY = f"{VECTOR} a, {VECTOR} b"
_COMPARED = f"{_BINARY}, {VECTOR} yes, {VECTOR} no"
_MADE: dict[str, tuple[str, str, str]] = {
    "all": ("float a", "vdupq_n_f32(a)", "a"),
    "add": (_BINARY, "vaddq_f32(a, b)", "a.of[i] + b.of[i]"),
    "sub": (_BINARY, "vsubq_f32(a, b)", "a.of[i] - b.of[i]"),
    "mul": (_BINARY, "vmulq_f32(a, b)", "a.of[i] * b.of[i]"),
    "scale": (f"{VECTOR} a, float b", "vmulq_n_f32(a, b)", "a.of[i] * b"),
    "add_product": (
        f"{VECTOR} sum, {_BINARY}",
        "vfmaq_f32(sum, a, b)",
        "sum.of[i] + a.of[i] * b.of[i]",
    ),
    "add_scaled": (
        f"{VECTOR} sum, {VECTOR} a, float b",
        "vfmaq_n_f32(sum, a, b)",
        "sum.of[i] + a.of[i] * b",
    ),
    "if_gt": (_COMPARED, "vpselq_f32(yes, no, vcmpgtq_f32(a, b))", "a.of[i] > b.of[i]"),
    "if_ge": (_COMPARED, "vpselq_f32(yes, no, vcmpgeq_f32(a, b))", "a.of[i] >= b.of[i]"),
    # Compilers warn of `==` between floats.
    "if_eq": (
        _COMPARED,
        "vpselq_f32(yes, no, vcmpeqq_f32(a, b))",
        "a.of[i] <= b.of[i] && a.of[i] >= b.of[i]",
    ),
}
"""Parameters, result with Helium, and element ``i`` of the result without."""


def _function(name: str) -> str:
    parameters, helium, element = _MADE[name]
    if name.startswith("if_"):
        element = f"{element} ? yes.of[i] : no.of[i]"
    return f"""\
static inline {VECTOR} {VECTOR}_{name}({parameters}) {{
#if XE_HELIUM
  return {helium};
#else
  {VECTOR} made = {{{{0.0f}}}};
  for (int i = 0; i < {LANES}; i++) made.of[i] = {element};
  return made;
#endif
}}"""


# By memcpy, which is one instruction: GCC 12.2 moves other accesses across `vst1q_f32` of the same bytes.
_LOAD = f"""\
static inline {VECTOR} {VECTOR}_load(const float *from) {{
  {VECTOR} made;
  memcpy(&made, from, sizeof made);
  return made;
}}"""

_STORE = f"""\
static inline void {VECTOR}_store(float *to, {VECTOR} a) {{
  memcpy(to, &a, sizeof a);
}}"""

_LANE = f"""\
static inline float {VECTOR}_lane({VECTOR} a, int i) {{
#if XE_HELIUM
  return a[i];
#else
  return a.of[i];
#endif
}}"""

VECTOR_FUNCTIONS: dict[str, str] = {
    VECTOR: _TYPE,
    **{f"{VECTOR}_{name}": _function(name) for name in _MADE},
    f"{VECTOR}_load": _LOAD,
    f"{VECTOR}_store": _STORE,
    f"{VECTOR}_lane": _LANE,
}
"""Definition of the type and of each function."""
