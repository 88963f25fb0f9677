/* Copies and fills of bytes, between others: prints what is where, by a sum for each. GCC 12.2 drops what was
 * stored before a vector of which only some lanes are stored. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "vectors.h"

static uint32_t sum_of(const int8_t *bytes, int32_t count) {
  uint32_t sum = 1;
  for (int32_t k = 0; k < count; k++) sum = sum * 31u + (uint8_t)bytes[k];
  return sum % 1000003u;
}

static int8_t from[600];

#define TRY(STEP, FROM_STEP, COUNT)                                          \
  {                                                                          \
    int8_t to[200];                                                          \
    xe_fill_bytes(to, 1, 7, 200);                                            \
    xe_fill_bytes(to + 2, STEP, -3, COUNT);                                  \
    to[4] = 99;                                                              \
    xe_copy_bytes(to + 3, STEP, from + 5, FROM_STEP, COUNT);                 \
    to[3] = (int8_t)(to[3] + to[3 + STEP]);                                  \
    printf("%lu\n", (unsigned long)sum_of(to, 200));                         \
  }

int main(void) {
  for (int32_t k = 0; k < 600; k++) from[k] = (int8_t)(k * 37 + k / 9);
  TRY(1, 1, 3) TRY(1, 1, 5) TRY(1, 1, 16) TRY(1, 1, 37)
  TRY(1, 2, 3) TRY(1, 9, 8) TRY(1, 9, 13) TRY(1, 125, 4)
  TRY(9, 1, 5) TRY(9, 9, 8) TRY(3, 7, 19) TRY(2, 1, 40)
  return 0;
}
