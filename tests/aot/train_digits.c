/* One epoch of LeNet on batches from a file, by semihosting; writes a checkpoint and the accuracy's
   numerator. Files: batches.bin (per step: images, labels), tests.bin (the same), model.bin (made). */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "lenet.h"

enum { PIXELS = 28 * 28, CLASSES = 10 };

static _Alignas(8) uint8_t sram[LENET_SRAM_BYTES];
static float images[BATCH * PIXELS];
static int64_t labels[BATCH];
static float scores[BATCH * CLASSES];

static int put(void *user, const void *data, size_t bytes) {
  return fwrite(data, 1, bytes, (FILE *)user) != bytes;
}

int main(void) {
  lenet_ctx ctx;
  int correct = 0;
  FILE *file = fopen("batches.bin", "rb");
  if (!file) return 10;
  memset(&ctx, 0, sizeof ctx);
  if (lenet_init(&ctx, sram, sizeof sram, LENET_PLAN_HASH) || lenet_state_reset(&ctx)) return 11;
  if (lenet_set_lr(&ctx, 0.01f)) return 12;
  for (int step = 0; step < STEPS; step++) {
    if (fread(images, sizeof images, 1, file) != 1 || fread(labels, sizeof labels, 1, file) != 1) return 13;
    if (lenet_train_step(&ctx, images, labels, NULL, NULL)) return 14;
  }
  fclose(file);
  file = fopen("tests.bin", "rb");
  if (!file) return 15;
  for (int step = 0; step < TEST_STEPS; step++) {
    if (fread(images, sizeof images, 1, file) != 1 || fread(labels, sizeof labels, 1, file) != 1) return 16;
    if (lenet_eval(&ctx, images, scores)) return 17;
    for (int i = 0; i < BATCH; i++) {
      int best = 0;
      for (int c = 1; c < CLASSES; c++)
        if (scores[i * CLASSES + c] > scores[i * CLASSES + best]) best = c;
      correct += best == labels[i];
    }
  }
  fclose(file);
  file = fopen("model.bin", "wb");
  if (!file || lenet_checkpoint_save(&ctx, put, file)) return 18;
  fclose(file);
  printf("%d\n", correct);
  return 0;
}
