/* Runs a generated kernel and the one written by hand on the same numbers; prints the instructions of both and
   their largest difference, in millionths of the largest result. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "kernel.h"

#ifdef __riscv
static uint64_t xe_instructions(void) {
  uint32_t low, high, again;
  do __asm__ volatile("rdinstreth %0\n\trdinstret %1\n\trdinstreth %2" : "=r"(high), "=r"(low), "=r"(again));
  while (high != again);
  return (uint64_t)high << 32 | low;
}
#else
uint64_t xe_instructions(void);
#endif

int main(void) {
  uint32_t random = 1;
  float difference = 0, largest = 0;
  for (unsigned k = 0; k < sizeof inputs / sizeof *inputs; k++)
    for (unsigned i = 0; i < inputs[k].count; i++) {
      random = random * 1664525u + 1013904223u;
      inputs[k].values[i] = (float)(random >> 16) / 32768.0f - 1.0f;
    }
  uint64_t start = xe_instructions();
  GENERATED;
  uint64_t generated = xe_instructions() - start;
  start = xe_instructions();
  BY_HAND;
  uint64_t by_hand = xe_instructions() - start;
  for (unsigned i = 0; i < RESULTS; i++) {
    difference = fmaxf(difference, fabsf(found[i] - expected[i]));
    largest = fmaxf(largest, fabsf(expected[i]));
  }
  printf("%lu %lu %lu\n", (unsigned long)generated, (unsigned long)by_hand, (unsigned long)(1e6f * difference / largest));
  return 0;
}
