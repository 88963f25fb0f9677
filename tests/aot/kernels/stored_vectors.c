/* Floats that are read between two stores of a vector of zeros: GCC 12.2 reads all but the first one
 * behind the second store if vectors are stored by `vst1q_f32`. What it prints is right or not. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "vectors.h"

__attribute__((noinline)) static void spread(const float *restrict given, float *restrict made) {
  float all[8];
  float parts[4];
  for (int32_t outer = 0; outer < 2; outer++) {
    const int32_t at = outer * 4;
    xe_f32x4_store(&parts[0], xe_f32x4_all(0.0f));
    for (int32_t i = 0; i < 4; i++) parts[i] += given[at + i] / (float)((i < 1 ? i : 1) + 1);
    for (int32_t i = 0; i < 4; i++) all[i * 2] = parts[i];
    xe_f32x4_store(&parts[0], xe_f32x4_all(0.0f));
    for (int32_t k = 0; k < 2; k++) {
      for (int32_t i = 0; i < 4; i++) parts[i] += i - k < 3 ? given[at + i + 1 - k] : 0.0f;
    }
    for (int32_t i = 0; i < 4; i++) all[i * 2 + 1] = parts[i];
    for (int32_t i = 0; i < 8; i++) made[outer * 8 + i] = all[i] * all[i];
  }
}

int main(void) {
  const float given[8] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f};
  float made[16];
  spread(given, made);
  for (int i = 0; i < 16; i++) printf("%d\n", (int)(4.0f * made[i]));
  return 0;
}
