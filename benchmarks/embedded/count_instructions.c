/* Prints the instructions of one training step on an emulated Cortex-M (-icount shift=0). */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include HEADER

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define CALL(f) JOIN(NAME, f)

uint64_t xe_instructions(void);

static _Alignas(64) uint8_t sram[REGION_BYTES];
static _Alignas(64) float x[INPUTS];
static _Alignas(64) int64_t labels[LABELS];

int main(void) {
  CALL(_ctx) ctx;
  uint64_t start;
  memset(&ctx, 0, sizeof ctx);
  if (CALL(_init)(&ctx, sram, sizeof sram, PLAN_HASH) || CALL(_state_reset)(&ctx)) return 1;
  for (int i = 0; i < INPUTS; i++) x[i] = (float)(i % 17) / 8 - 1;
  start = xe_instructions();
  if (CALL(_train_step)(&ctx, x, labels, NULL, NULL)) return 2;
  printf("%lu\n", (unsigned long)(xe_instructions() - start));
  return 0;
}
