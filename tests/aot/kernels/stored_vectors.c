/* Numbers that are read between two stores of a vector of zeros: GCC 12.2 reads all but the first one
 * behind the second store if vectors are stored by `vst1q_f32`. What it prints is right or not. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "vectors.h"

#ifdef BYTES
typedef int8_t number;
#define STORE_ZEROS(to) xe_i32x4_store_bytes(to, xe_i32x4_all(0))
#else
typedef float number;
#define STORE_ZEROS(to) xe_f32x4_store(to, xe_f32x4_all(0.0f))
#endif

__attribute__((noinline)) static void spread(const number *restrict given, number *restrict made) {
  number all[8];
  number parts[4];
  for (int32_t outer = 0; outer < 2; outer++) {
    const int32_t at = outer * 4;
    STORE_ZEROS(&parts[0]);
    for (int32_t i = 0; i < 4; i++) parts[i] += given[at + i] / (number)((i < 1 ? i : 1) + 1);
    for (int32_t i = 0; i < 4; i++) all[i * 2] = parts[i];
    STORE_ZEROS(&parts[0]);
    for (int32_t k = 0; k < 2; k++) {
      for (int32_t i = 0; i < 4; i++) parts[i] += i - k < 3 ? given[at + i + 1 - k] : 0;
    }
    for (int32_t i = 0; i < 4; i++) all[i * 2 + 1] = parts[i];
    for (int32_t i = 0; i < 8; i++) made[outer * 8 + i] = all[i] * all[i];
  }
}

int main(void) {
  const number given[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  number made[16];
  spread(given, made);
  for (int i = 0; i < 16; i++) printf("%d\n", (int)(4 * made[i]));
  return 0;
}
