"""C functions that add the products of two runs of int8."""

from __future__ import annotations

from tvm_xengine.kernels.schedules.products.dots import DOT_4, DOT_16, DOT_BELOW_16

DOT_PRODUCTS: dict[str, str] = {
    DOT_4: f"""\
/* With Arm's DSP instructions products are added in pairs, those of terms 0 and 2, and of 1 and 3. */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FEATURE_UNALIGNED) && defined(__GNUC__)
#include <arm_acle.h>
static inline int32_t {DOT_4}(int32_t sum, const int8_t *a, const int8_t *b) {{
  int32_t x, y, odd_x, odd_y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  /* GCC makes two instructions of a rotation and __sxtb16. */
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd_x) : "r"(x));
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd_y) : "r"(y));
  return __smlad(odd_x, odd_y, __smlad(__sxtb16(x), __sxtb16(y), sum));
}}
#else
static inline int32_t {DOT_4}(int32_t sum, const int8_t *a, const int8_t *b) {{
  return sum + a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
}}
#endif""",
    DOT_16: f"""\
#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#endif
static inline int32_t {DOT_16}(int32_t sum, const int8_t *a, const int8_t *b) {{
#if defined(__ARM_FEATURE_MVE)
  return vmladavaq_s8(sum, vldrbq_s8(a), vldrbq_s8(b));
#else
  for (int k = 0; k < 16; k++) sum += a[k] * b[k];
  return sum;
#endif
}}""",
    DOT_BELOW_16: f"""\
#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#endif
static inline int32_t {DOT_BELOW_16}(int32_t sum, const int8_t *a, const int8_t *b, int32_t terms) {{
#if defined(__ARM_FEATURE_MVE)
  mve_pred16_t below = vctp8q((uint32_t)terms);
  return vmladavaq_s8(sum, vldrbq_z_s8(a, below), vldrbq_z_s8(b, below));
#else
  for (int k = 0; k < terms; k++) sum += a[k] * b[k];
  return sum;
#endif
}}""",
}
"""Definition of each, by its name."""
