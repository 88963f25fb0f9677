"""C helpers that kernels share."""

from __future__ import annotations

from collections.abc import Collection

from tvm_xengine.aot.emit_c.expressions import ExpressionWriter, Names, without_parentheses
from tvm_xengine.aot.emit_c.vectors.bytes_apart import BYTE_FUNCTIONS
from tvm_xengine.aot.emit_c.vectors.dot_products import DOT_PRODUCTS
from tvm_xengine.aot.emit_c.vectors.functions import VECTOR_FUNCTIONS
from tvm_xengine.kernels.lower.transcendentals.expand import written_out


def _equal(name: str, kind: str) -> str:
    """A comparison of floats that compilers do not warn of: nothing is near a value here."""
    return f"""\
/* Exact on purpose: is this the element that was chosen, is it an infinity or zero? */
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wfloat-equal"
#endif
static inline _Bool {name}({kind} a, {kind} b) {{ return a == b; }}
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif"""


HELPERS: dict[str, str] = {
    "xe_equalf": _equal("xe_equalf", "float"),
    "xe_equal": _equal("xe_equal", "double"),
    "xe_maxf": "static inline float xe_maxf(float a, float b) { return a > b ? a : b; }",
    "xe_minf": "static inline float xe_minf(float a, float b) { return a < b ? a : b; }",
    "xe_max": "static inline double xe_max(double a, double b) { return a > b ? a : b; }",
    "xe_min": "static inline double xe_min(double a, double b) { return a < b ? a : b; }",
    "xe_maxi": "static inline int64_t xe_maxi(int64_t a, int64_t b) { return a > b ? a : b; }",
    "xe_mini": "static inline int64_t xe_mini(int64_t a, int64_t b) { return a < b ? a : b; }",
    "xe_maxw": "static inline int32_t xe_maxw(int32_t a, int32_t b) { return a > b ? a : b; }",
    "xe_minw": "static inline int32_t xe_minw(int32_t a, int32_t b) { return a < b ? a : b; }",
    "xe_float_of_bits": """\
static inline float xe_float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}""",
    "xe_bits_of_float": """\
static inline uint32_t xe_bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}""",
    "xe_double_of_bits": """\
static inline double xe_double_of_bits(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}""",
    "xe_bits_of_double": """\
static inline uint64_t xe_bits_of_double(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}""",
    "xe_load_float16": """\
/* IEEE 754 binary16 to float; exact. */
static inline float xe_load_float16(uint16_t half) {
#if defined(__ARM_FP16_FORMAT_IEEE) && defined(__ARM_FP) && (__ARM_FP & 2)
  __fp16 value; /* one instruction */
  memcpy(&value, &half, sizeof value);
  return value;
#else
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 31u, fraction = half & 1023u;
  if (exponent == 31u) return xe_float_of_bits(sign | 0x7f800000u | (fraction << 13));
  if (exponent == 0u) {
    float value = (float)fraction * 0x1p-24f;
    return sign ? -value : value;
  }
  return xe_float_of_bits(sign | ((exponent + 112u) << 23) | (fraction << 13));
#endif
}""",
    "xe_store_float16": """\
/* float to IEEE 754 binary16, halves to even. */
static inline uint16_t xe_store_float16(float value) {
#if defined(__ARM_FP16_FORMAT_IEEE) && defined(__ARM_FP) && (__ARM_FP & 2)
  __fp16 rounded = (__fp16)value;
  uint16_t half;
  memcpy(&half, &rounded, sizeof half);
  return half;
#else
  uint32_t bits = xe_bits_of_float(value), sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (size >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
  if (size < 0x38800000u) {
    /* Adding 0.5 leaves the subnormal, rounded, in the low bits. */
    float shifted = xe_float_of_bits(size) + 0.5f;
    return (uint16_t)(sign | (xe_bits_of_float(shifted) - 0x3f000000u));
  }
  size += 0xfffu + ((size >> 13) & 1u) - 0x38000000u;
  return (uint16_t)(sign | (size >> 13));
#endif
}""",
    "xe_load_bfloat16": """\
static inline float xe_load_bfloat16(uint16_t half) {
  return xe_float_of_bits((uint32_t)half << 16);
}""",
    "xe_store_bfloat16": """\
/* float to bfloat16, halves to even. */
static inline uint16_t xe_store_bfloat16(float value) {
  uint32_t bits = xe_bits_of_float(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}""",
    "xe_popcount": """\
static inline int32_t xe_popcount(uint64_t bits) {
  int32_t count = 0;
  for (; bits; bits &= bits - 1) count++;
  return count;
}""",
    "xe_clz": """\
static inline int32_t xe_clz(uint64_t bits, int32_t width) {
  int32_t count = 0;
  for (int32_t at = width - 1; at >= 0 && !((bits >> at) & 1u); at--) count++;
  return count;
}""",
    "xe_nearest": """\
/* The integer nearest to a number below 2**22 in size, halves to even: an addition rounds so. */
static inline int32_t xe_nearest(float value) {
  return (int32_t)xe_bits_of_float(value + 0x1.8p+23f) - 0x4b400000;
}""",
    **DOT_PRODUCTS,
    **BYTE_FUNCTIONS,
    **VECTOR_FUNCTIONS,
}
"""Definition of each helper, in an order in which they can be defined."""

_NEEDS = {
    "xe_nearest": ("xe_bits_of_float",),
    "xe_load_float16": ("xe_float_of_bits",),
    "xe_store_float16": ("xe_float_of_bits", "xe_bits_of_float"),
    "xe_load_bfloat16": ("xe_float_of_bits",),
    "xe_store_bfloat16": ("xe_bits_of_float",),
}


def helper_definitions(used: Collection[str]) -> list[str]:
    """The definitions of the helpers `used` and of those they call, in an order that C takes."""
    known: dict[str, str] = {}
    needed: set[str] = set()

    def need(name: str) -> None:
        text, calls = _defined(name)
        for other in calls:
            if other not in needed:
                need(other)
        needed.add(name)
        if name not in HELPERS:
            known[name] = text

    for name in sorted(used):
        if name not in needed:
            need(name)
    return [*(text for name, text in HELPERS.items() if name in needed), *known.values()]


def _defined(name: str) -> tuple[str, Collection[str]]:
    """The definition of a helper, and the helpers that it calls."""
    written = written_out(name)
    if written is None:
        return HELPERS[name], _NEEDS.get(name, ())
    x, body = written
    names, calls = Names({name}), set[str]()
    writer = ExpressionWriter(names, calls, {})
    head, value = f"static float {name}(float {names.give(x)})", writer.write(body)
    lines = [*writer.lines, f"return {without_parentheses(value)};"]
    return "\n".join([f"{head} {{", *(f"  {line}" for line in lines), "}"]), calls
