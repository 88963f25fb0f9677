"""C functions that add the products of two runs of int8."""

from __future__ import annotations

from tvm_xengine.kernels.schedules.products.dots import DOT_4, DOT_RUNS

_MOST_RUNS = 4
"""Of whose sums Helium adds the products: so many even registers are free."""


def _runs(rows: int) -> str:
    """In assembly: GCC moves sums to memory, and makes addresses anew, in every step."""
    numbers = range(rows)
    adding = "\n".join(
        f"""      "vldrb.8 q1, [%[a{i}]], #16\\n"
      "vmladava.s8 %[s{i}], q1, q0\\n\""""
        for i in numbers
    )
    sums = ", ".join(f'[s{i}] "+Te"(s{i})' for i in numbers)
    runs = ", ".join(f'[a{i}] "+r"(a{i})' for i in numbers)
    return f"""\
static inline void {DOT_RUNS}{rows}(int32_t *sums, const int8_t *a, const int8_t *b, int32_t terms,
                             int32_t step) {{
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)
  int32_t {", ".join(f"s{i} = 0" for i in numbers)};
  const int8_t {", ".join(f"*a{i} = a + {i} * step" for i in numbers)};
  __asm__ volatile(
      "wlstp.8 lr, %[terms], 1f\\n"
      "2: vldrb.8 q0, [%[b]], #16\\n"
{adding}
      "letp lr, 2b\\n"
      "1:\\n"
      : {sums}, {runs}, [b] "+r"(b)
      : [terms] "r"(terms)
      : "q0", "q1", "lr", "memory");
  {" ".join(f"sums[{i}] = s{i};" for i in numbers)}
#else
  for (int i = 0; i < {rows}; i++) {{
    sums[i] = 0;
    for (int k = 0; k < terms; k++) sums[i] += a[i * step + k] * b[k];
  }}
#endif
}}"""


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
    **{f"{DOT_RUNS}{rows}": _runs(rows) for rows in range(1, _MOST_RUNS + 1)},
}
"""Definition of each, by its name."""
