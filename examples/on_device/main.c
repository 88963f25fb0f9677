/* Adapts a network to its user, on the device: measures, trains, saves, measures again. Whenever power returns it goes
   on from the newest sound checkpoint. The data are in samples.h, which the computer writes. */
#include "flash.h"
#include "model.h"
#include "samples.h"
#include "serial.h"

static _Alignas(MODEL_ALIGN) uint8_t sram[MODEL_SRAM_BYTES];
static flash memory[NUM_SLOTS];
static model_slot slots[NUM_SLOTS];

static int stopped(const char *what, int32_t status) {
  say("Stopped: %s: %s.\n", what, model_status_text(status));
  return 1;
}

static void introduce(void) {
  say("\n%s\n", TITLE);
  say("Arena: %u bytes of SRAM, of which %u are trained weights.\n", (unsigned)MODEL_SRAM_BYTES,
      (unsigned)MODEL_STATE_BYTES);
  say("Flash: %u bytes of code, %u of frozen weights, %u of initial weights, %u of samples.\n",
      (unsigned)MODEL_CODE_BYTES, (unsigned)MODEL_FROZEN_BYTES, (unsigned)MODEL_STATE_BYTES,
      (unsigned)(sizeof train_inputs + sizeof test_inputs));
}

/* Says what is in each slot, and loads the newest that is sound; the number of it, or 0. */
static uint32_t recover(model_ctx *ctx) {
  model_loaded found;
  for (int i = 0; i < NUM_SLOTS; i++) {
    int32_t status = model_checkpoint_load(ctx, slots[i].read, slots[i].user, MODEL_REFUSE_ABSENT, &found);
    if (status)
      say("Slot %c: nothing to use (%s).\n", memory[i].letter, model_status_text(status));
    else
      say("Slot %c: checkpoint %u.\n", memory[i].letter, (unsigned)found.sequence);
  }
  if (!model_slots_load(ctx, slots, NUM_SLOTS, MODEL_REFUSE_ABSENT, &found)) return (uint32_t)found.sequence;
  return 0;
}

/* How many of the user's test samples are recognised, or a status. */
static int32_t count_right(model_ctx *ctx) {
  int32_t right = 0;
  for (int i = 0; i < NUM_TESTS; i++) {
    float scores[MODEL_INFER_OUTPUT_COUNT];
    int best = 0;
    int32_t status = model_infer(ctx, test_inputs[i], scores);
    if (status) return status;
    for (int k = 1; k < (int)MODEL_INFER_OUTPUT_COUNT; k++)
      if (scores[k] > scores[best]) best = k;
    right += best == test_labels[i];
  }
  return right;
}

static int32_t report_accuracy(model_ctx *ctx, const char *when) {
  int32_t right = count_right(ctx);
  if (right >= 0)
    say("%s: %d of %d test samples right (%d %%).\n", when, (int)right, NUM_TESTS,
        (int)(100 * right + NUM_TESTS / 2) / NUM_TESTS);
  return right;
}

static int32_t save(model_ctx *ctx, uint32_t step) {
  uint32_t before[NUM_SLOTS];
  for (int i = 0; i < NUM_SLOTS; i++) before[i] = memory[i].erased;
  int32_t status = model_slots_save(ctx, slots, NUM_SLOTS);
  for (int i = 0; i < NUM_SLOTS && !status; i++)
    if (memory[i].erased != before[i])
      say("Saved checkpoint %u in slot %c, %u bytes.\n", (unsigned)(step / STEPS_PER_SAVE), memory[i].letter,
          (unsigned)MODEL_CHECKPOINT_BYTES);
  return status;
}

int main(void) {
  model_ctx ctx;
  int32_t status;
  serial_begin();
  introduce();
  if (flash_begin(memory, slots)) return stopped("flash", MODEL_EIO);
  if ((status = model_init(&ctx, sram, sizeof sram, MODEL_PLAN_HASH))) return stopped("init", status);
  /* Saves are made every STEPS_PER_SAVE steps, so a checkpoint's number says how many steps it has seen. */
  uint32_t step = recover(&ctx) * STEPS_PER_SAVE;
  if (step == 0) {
    if ((status = model_state_reset(&ctx))) return stopped("reset", status);
    say("Starts with the weights of the factory.\n");
  } else {
    say("Goes on after step %u.\n", (unsigned)step);
  }
  if ((status = report_accuracy(&ctx, step ? "So far" : "Before")) < 0) return stopped("infer", status);
  while (step < NUM_STEPS) {
    float loss;
    const uint32_t batch = step % NUM_BATCHES;
    if ((status = model_train_step(&ctx, train_inputs[batch], train_labels[batch], &loss, NULL)))
      return stopped("train", status);
    say("Step %u: loss %.7f.\n", (unsigned)++step, (double)loss);
    if (step % STEPS_PER_SAVE == 0 && (status = save(&ctx, step))) return stopped("save", status);
  }
  if ((status = report_accuracy(&ctx, "After")) < 0) return stopped("infer", status);
  say("Done.\n");
  return 0;
}
