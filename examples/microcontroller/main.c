/* Trains on one batch from two files, and prints the loss of every step. */
#include <stdio.h>
#include "digits.h"

static _Alignas(8) uint8_t sram[DIGITS_SRAM_BYTES];
static _Alignas(8) float images[16 * 8 * 8];
static _Alignas(8) int64_t labels[16];

static int read_all(const char *name, void *to, size_t bytes) {
  FILE *file = fopen(name, "rb");
  size_t found = file ? fread(to, 1, bytes, file) : 0;
  if (file) fclose(file);
  return found == bytes;
}

int main(void) {
  digits_ctx ctx;
  if (!read_all("images.bin", images, sizeof images)) return 1;
  if (!read_all("labels.bin", labels, sizeof labels)) return 1;
  if (digits_init(&ctx, sram, sizeof sram, DIGITS_PLAN_HASH) != DIGITS_OK) return 2;
  if (digits_state_reset(&ctx) != DIGITS_OK) return 3;
  for (int step = 0; step < 20; ++step) {
    float loss;
    int32_t correct;
    if (digits_train_step(&ctx, images, labels, &loss, &correct) != DIGITS_OK) return 4;
    printf("%.6f\n", (double)loss);
  }
  return 0;
}
