"""C functions on four neighbouring numbers: a vector register of Helium, or four numbers elsewhere."""

from __future__ import annotations

LANES = 4
"""Numbers of 32 bits in a register of Arm's Helium (M-profile vector extension)."""

FLOATS, INTEGERS = "xe_f32x4", "xe_i32x4"
VECTOR = {"float32": FLOATS, "int32": INTEGERS}
"""The type, and the prefix of every function, by what a vector holds."""

VECTOR_TYPES = "xe_x4"
"""Name of the definition of both types."""

_TYPES = f"""\
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
#include <arm_mve.h>
#define XE_HELIUM 1
typedef float32x4_t {FLOATS};
typedef int32x4_t {INTEGERS};
#else
#define XE_HELIUM 0
typedef struct {{
  float of[{LANES}];
}} {FLOATS};
typedef struct {{
  int32_t of[{LANES}];
}} {INTEGERS};
#endif"""

_HELIUM = {FLOATS: ("float", "f32"), INTEGERS: ("int32_t", "s32")}
"""Type of an element, and Arm's suffix."""

_BINARY = "{v} a, {v} b"
_COMPARED = f"{_BINARY}, {{v}} yes, {{v}} no"
_BOTH: dict[str, tuple[str, str, str]] = {
    "all": ("{e} a", "vdupq_n_{s}(a)", "a"),
    "add": (_BINARY, "vaddq_{s}(a, b)", "a.of[i] + b.of[i]"),
    "sub": (_BINARY, "vsubq_{s}(a, b)", "a.of[i] - b.of[i]"),
    "mul": (_BINARY, "vmulq_{s}(a, b)", "a.of[i] * b.of[i]"),
    "scale": ("{v} a, {e} b", "vmulq_n_{s}(a, b)", "a.of[i] * b"),
}
"""Parameters, result with Helium, and element ``i`` of the result without, for both types."""

_OF_FLOATS: dict[str, tuple[str, str, str]] = {
    "add_product": (
        f"{{v}} sum, {_BINARY}",
        "vfmaq_f32(sum, a, b)",
        "sum.of[i] + a.of[i] * b.of[i]",
    ),
    "add_scaled": (
        "{v} sum, {v} a, float b",
        "vfmaq_n_f32(sum, a, b)",
        "sum.of[i] + a.of[i] * b",
    ),
    "if_gt": (
        _COMPARED,
        "vpselq_f32(yes, no, vcmpgtq_f32(a, b))",
        "a.of[i] > b.of[i] ? yes.of[i] : no.of[i]",
    ),
    "if_ge": (
        _COMPARED,
        "vpselq_f32(yes, no, vcmpgeq_f32(a, b))",
        "a.of[i] >= b.of[i] ? yes.of[i] : no.of[i]",
    ),
    # Compilers warn of `==` between floats.
    "if_eq": (
        _COMPARED,
        "vpselq_f32(yes, no, vcmpeqq_f32(a, b))",
        "a.of[i] <= b.of[i] && a.of[i] >= b.of[i] ? yes.of[i] : no.of[i]",
    ),
    # Of a number and a bound that is none: NaN gives the bound.
    "above": ("{v} a, float b", "vmaxnmq_f32(a, vdupq_n_f32(b))", "a.of[i] > b ? a.of[i] : b"),
    "below": ("{v} a, float b", "vminnmq_f32(a, vdupq_n_f32(b))", "a.of[i] < b ? a.of[i] : b"),
    "of_integers": (f"{INTEGERS} a", "vcvtq_f32_s32(a)", "(float)a.of[i]"),
}
_OF_INTEGERS: dict[str, tuple[str, str, str]] = {
    "add_product": (
        f"{{v}} sum, {_BINARY}",
        "vaddq_s32(sum, vmulq_s32(a, b))",
        "sum.of[i] + a.of[i] * b.of[i]",
    ),
    "add_scaled": (
        "{v} sum, {v} a, int32_t b",
        "vmlaq_n_s32(sum, a, b)",
        "sum.of[i] + a.of[i] * b",
    ),
    "nearest": (f"{FLOATS} a", "vcvtnq_s32_f32(a)", "xe_nearest(a.of[i])"),
    "load_bytes": ("const int8_t *from", "vldrbq_s32(from)", "from[i]"),
    "load_bytes_apart": (
        "const int8_t *from, int32_t step",
        "vldrbq_gather_offset_s32(from, vmulq_n_u32(vidupq_n_u32(0, 1), (uint32_t)step))",
        "from[i * step]",
    ),
}


def _function(vector: str, name: str, made: tuple[str, str, str]) -> str:
    element, suffix = _HELIUM[vector]
    parameters, helium, lane = (
        text.format(v=vector, e=element, s=suffix) if "{" in text else text for text in made
    )
    return f"""\
static inline {vector} {vector}_{name}({parameters}) {{
#if XE_HELIUM
  return {helium};
#else
  {vector} made = {{{{0}}}};
  for (int i = 0; i < {LANES}; i++) made.of[i] = {lane};
  return made;
#endif
}}"""


def _in_memory(vector: str) -> dict[str, str]:
    """Load, store and read a lane.

    By memcpy, which is one instruction: GCC 12.2 moves other accesses across `vst1q_f32` of the same bytes.
    """
    element, _ = _HELIUM[vector]
    return {
        f"{vector}_load": f"""\
static inline {vector} {vector}_load(const {element} *from) {{
  {vector} made;
  memcpy(&made, from, sizeof made);
  return made;
}}""",
        f"{vector}_store": f"""\
static inline void {vector}_store({element} *to, {vector} a) {{
  memcpy(to, &a, sizeof a);
}}""",
        f"{vector}_lane": f"""\
static inline {element} {vector}_lane({vector} a, int i) {{
#if XE_HELIUM
  return a[i];
#else
  return a.of[i];
#endif
}}""",
    }


_STORE_BYTES_APART = f"""\
static inline void {INTEGERS}_store_bytes_apart(int8_t *to, int32_t step, {INTEGERS} a) {{
#if XE_HELIUM
  vstrbq_scatter_offset_s32(to, vmulq_n_u32(vidupq_n_u32(0, 1), (uint32_t)step), a);
#else
  for (int i = 0; i < {LANES}; i++) to[i * step] = (int8_t)a.of[i];
#endif
}}"""

_STORE_BYTES = f"""\
static inline void {INTEGERS}_store_bytes(int8_t *to, {INTEGERS} a) {{
#if XE_HELIUM
  vstrbq_s32(to, a);
#else
  for (int i = 0; i < {LANES}; i++) to[i] = (int8_t)a.of[i];
#endif
}}"""

VECTOR_FUNCTIONS: dict[str, str] = {
    VECTOR_TYPES: _TYPES,
    **{
        f"{vector}_{name}": _function(vector, name, made)
        for vector, own in ((FLOATS, _OF_FLOATS), (INTEGERS, _OF_INTEGERS))
        for name, made in {**_BOTH, **own}.items()
    },
    **_in_memory(FLOATS),
    **_in_memory(INTEGERS),
    f"{INTEGERS}_store_bytes": _STORE_BYTES,
    f"{INTEGERS}_store_bytes_apart": _STORE_BYTES_APART,
}
"""Definition of the types and of each function."""
