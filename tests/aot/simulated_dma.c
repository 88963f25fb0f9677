/* Runs training steps of a package, first with copies by memcpy, then with a simulated DMA that is late, early
   or at random moments done; prints for each run the loss of the last step and a sum over the state.
   Exit code 1 where a wait returns too early for what was asked, or a call leaves a copy under way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include PACKAGE_HEADER

typedef struct {
  uint8_t *to;
  const uint8_t *from;
  size_t bytes;
} copy;

typedef struct {
  copy queue[CHANNELS][MOST];
  uint32_t begun[CHANNELS], ended[CHANNELS], most_left;
  uint32_t random; /* 0: late, 1: early, else at random */
} engine;

static void end_one(engine *dma, uint32_t channel) {
  const copy *done = &dma->queue[channel][dma->ended[channel]++ % MOST];
  memcpy(done->to, done->from, done->bytes);
}

/* Time passes. */
static void tick(engine *dma) {
  for (uint32_t channel = 0; channel < CHANNELS; channel++)
    while (dma->ended[channel] < dma->begun[channel]) {
      if (dma->random > 1u) dma->random = dma->random * 1664525u + 1013904223u;
      if (!(dma->random >> 31) && dma->random != 1u) break;
      end_one(dma, channel);
    }
}

static void start(void *user, uint32_t channel, void *to, const void *from, size_t bytes) {
  engine *dma = (engine *)user;
  uint32_t left = 0;
  memset(to, 0xa5, bytes); /* nobody may look at it yet */
  dma->queue[channel][dma->begun[channel]++ % MOST] = (copy){(uint8_t *)to, (const uint8_t *)from, bytes};
  for (uint32_t k = 0; k < CHANNELS; k++) left += dma->begun[k] - dma->ended[k];
  if (left > dma->most_left) dma->most_left = left;
  if (dma->begun[channel] - dma->ended[channel] > MOST) exit(1);
  tick(dma);
}

static void wait_for(void *user, uint32_t channel, uint32_t pending) {
  engine *dma = (engine *)user;
  tick(dma);
  while (dma->begun[channel] - dma->ended[channel] > pending) end_one(dma, channel);
}

static int sum_up(void *user, const void *data, size_t bytes) {
  uint32_t *sum = (uint32_t *)user;
  for (size_t i = 0; i < bytes; i++) *sum = (*sum ^ ((const uint8_t *)data)[i]) * 16777619u;
  return 0;
}

static engine dma;
ARENAS
INPUTS

int main(void) {
  uint32_t random = 1;
  FILL
  for (uint32_t run = 0; run < RUNS; run++) {
    CTX ctx;
    DMA hooks = {start, wait_for, &dma};
    float loss = 0.0f;
    uint32_t bits, sum = 2166136261u;
    memset(&dma, 0, sizeof dma);
    dma.random = run <= 2u ? run - 1u : run * 2654435769u;
    if (INIT || RESET) return 2;
    if (run && USE(&ctx, &hooks)) return 2;
    for (int step = 0; step < 3; step++) {
      if (STEP) return 3;
      for (uint32_t k = 0; k < CHANNELS; k++)
        if (dma.begun[k] != dma.ended[k]) return 1;
    }
    if (SAVE(&ctx, sum_up, &sum)) return 4;
    memcpy(&bits, &loss, sizeof bits);
    printf("%08lx %08lx %lu %lu\n", (unsigned long)bits, (unsigned long)sum,
           (unsigned long)dma.begun[0], (unsigned long)dma.most_left);
  }
  return 0;
}
