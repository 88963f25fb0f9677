#include "flash.h"

#include <string.h>

#include "serial.h"

enum {
  PAGE_BYTES = 4096,
  SLOT_PAGES = (MODEL_CHECKPOINT_BYTES + PAGE_BYTES - 1) / PAGE_BYTES
};

static long failing_save, failing_byte; /* 0: power does not fail */
static long saves;

/* Nothing is written any more. An emulator stands still here until it is killed. */
static void power_fails(const flash *f) {
  say("Power fails while slot %c is written, after %u bytes.\n", f->letter, (unsigned)f->used);
  fflush(NULL);
  for (;;) {
  }
}

static int fill_with_ones(flash *f) {
  static uint8_t ones[PAGE_BYTES];
  memset(ones, 0xff, sizeof ones);
  if (fseek(f->file, 0, SEEK_SET)) return 1;
  for (int page = 0; page < SLOT_PAGES; page++)
    if (fwrite(ones, sizeof ones, 1, f->file) != 1) return 1;
  return fflush(f->file);
}

static int erase(void *user) {
  flash *f = user;
  f->used = 0;
  f->erased++;
  saves++;
  return fill_with_ones(f);
}

static int program(void *user, const void *data, size_t bytes) {
  flash *f = user;
  int fails = saves == failing_save && f->used + bytes > (size_t)failing_byte;
  size_t count = fails ? (size_t)failing_byte - f->used : bytes;
  if (f->used + bytes > (size_t)SLOT_PAGES * PAGE_BYTES) return 1;
  if (fseek(f->file, (long)f->used, SEEK_SET) || fwrite(data, 1, count, f->file) != count) return 1;
  f->used += count;
  if (fflush(f->file)) return 1;
  if (fails) power_fails(f);
  return 0;
}

static int read_back(void *user, size_t offset, void *data, size_t bytes) {
  flash *f = user;
  return fseek(f->file, (long)offset, SEEK_SET) || fread(data, 1, bytes, f->file) != bytes;
}

int flash_begin(flash memory[NUM_SLOTS], model_slot slots[NUM_SLOTS]) {
  FILE *power = fopen("power.txt", "r");
  if (power) {
    if (fscanf(power, "%ld %ld", &failing_save, &failing_byte) != 2 || failing_byte < 0) failing_save = 0;
    fclose(power);
  }
  for (int i = 0; i < NUM_SLOTS; i++) {
    char name[] = "slot_a.bin";
    name[5] = (char)('a' + i);
    memory[i] = (flash){.letter = (char)('A' + i), .file = fopen(name, "r+b")};
    if (!memory[i].file) { /* a new device */
      memory[i].file = fopen(name, "w+b");
      if (!memory[i].file || fill_with_ones(&memory[i])) return memory[i].letter;
    }
    slots[i] = (model_slot){erase, program, read_back, &memory[i]};
  }
  return 0;
}
