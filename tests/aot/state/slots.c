/* Trains and saves into SLOTS slots, of which power fails at a random byte of every second save, and bits of
   a slot flip now and then. After each, the newest checkpoint that was written whole must be loaded, bit for bit.
   Exit code 0, or the line of the check that failed. NAME, PREFIX, HEADER and PLACES come from the command line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include HEADER

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define CALL(f) JOIN(NAME, f)
#define M(f) JOIN(PREFIX, f)
#define MUST(condition) if (!(condition)) return __LINE__

enum { SLOTS = 3, CAPACITY = 8192 };

typedef struct {
  uint8_t bytes[CAPACITY];
  size_t used;
  long fails_in; /* bytes until the power fails, or -1 */
  int was_erased;
} flash;

static int erase(void *user) {
  flash *f = user;
  if (!f->fails_in) return 1;
  memset(f->bytes, 0xff, sizeof f->bytes);
  f->used = 0;
  f->was_erased = 1;
  return 0;
}

static int put(void *user, const void *data, size_t bytes) {
  flash *f = user;
  size_t count = f->fails_in >= 0 && (size_t)f->fails_in < bytes ? (size_t)f->fails_in : bytes;
  if (f->used + bytes > sizeof f->bytes) return 1;
  memcpy(f->bytes + f->used, data, count);
  f->used += count;
  if (f->fails_in >= 0) f->fails_in -= (long)count;
  return count < bytes;
}

static int get(void *user, size_t offset, void *data, size_t bytes) {
  flash *f = user;
  if (offset > sizeof f->bytes || bytes > sizeof f->bytes - offset) return 1;
  memcpy(data, f->bytes + offset, bytes);
  return 0;
}

static uint32_t random_state = 1;
static uint32_t draw(uint32_t below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state % below;
}

static flash memory[SLOTS];
static struct {
  uint64_t number; /* 0: none */
  uint8_t state[M(_SRAM_KEPT_BYTES)], bytes[CAPACITY];
} written[SLOTS]; /* the last checkpoint of each slot that was written whole */

/* The slot of the newest checkpoint that is, byte for byte, as it was written; -1 without one. */
static int newest_sound(size_t size) {
  int newest = -1;
  for (int i = 0; i < SLOTS; i++)
    if (written[i].number && !memcmp(memory[i].bytes, written[i].bytes, size))
      if (newest < 0 || written[i].number > written[newest].number) newest = i;
  return newest;
}

static const struct { size_t offset, bytes; } parts_of[] = {PLACES}; /* padding between them is not saved */
static _Alignas(64) uint8_t sram[M(_SRAM_BYTES)];

int main(void) {
  CALL(_ctx) ctx;
  CALL(_slot) slots[SLOTS];
  CALL(_loaded) report;
  uint64_t number = 0;
  for (int i = 0; i < SLOTS; i++) {
    memory[i].fails_in = -1;
    erase(&memory[i]);
    slots[i] = (CALL(_slot)){erase, put, get, &memory[i]};
  }
  MUST(!CALL(_init)(&ctx, sram, sizeof sram, M(_PLAN_HASH)));
  MUST(CALL(_slots_load)(&ctx, slots, SLOTS, 0, &report) == M(_EFORMAT));
  MUST(CALL(_slots_save)(&ctx, slots, SLOTS) == M(_EINVAL)); /* no state yet */
  MUST(!CALL(_state_reset)(&ctx));
  MUST(CALL(_slots_save)(&ctx, slots, 1) == M(_EINVAL));
  for (int round = 0; round < ROUNDS; round++) {
    size_t size = CALL(_checkpoint_bytes)();
    MUST(size == M(_CHECKPOINT_BYTES));
    int fails = (int)draw(2), status, newest = newest_sound(size);
    for (size_t k = 0; k < M(_SRAM_KEPT_BYTES); k++) sram[k] = (uint8_t)draw(256); /* any state */
    for (int i = 0; i < SLOTS; i++) {
      memory[i].fails_in = fails ? (long)draw((uint32_t)size) : -1;
      memory[i].was_erased = 0;
    }
    number = newest < 0 ? 1 : written[newest].number + 1;
    status = CALL(_slots_save)(&ctx, slots, SLOTS);
    MUST(fails ? status == M(_EIO) : !status);
    MUST(newest == newest_sound(size) || !fails); /* what was newest is not touched */
    for (int i = 0; i < SLOTS && !fails; i++) {
      if (!memory[i].was_erased) continue;
      MUST(i != newest && memory[i].used == size);
      written[i].number = number;
      memcpy(written[i].state, sram, sizeof written[i].state);
      memcpy(written[i].bytes, memory[i].bytes, size);
    }
    MUST(fails || (newest_sound(size) >= 0 && written[newest_sound(size)].number == number));
    if (!draw(3)) memory[draw(SLOTS)].bytes[draw((uint32_t)size)] ^= (uint8_t)(1u << draw(8));
    newest = newest_sound(size);
    memset(sram, 0, sizeof sram); /* power is off */
    MUST(!CALL(_init)(&ctx, sram, sizeof sram, M(_PLAN_HASH)));
    status = CALL(_slots_load)(&ctx, slots, SLOTS, 0, &report);
    if (newest < 0) {
      MUST(status == M(_EFORMAT) && !ctx.ready);
      MUST(!CALL(_state_reset)(&ctx));
      continue;
    }
    MUST(!status && ctx.ready && report.sequence == written[newest].number && !report.ignored);
    for (size_t k = 0; k < sizeof(parts_of) / sizeof *parts_of; k++)
      MUST(!memcmp(sram + parts_of[k].offset, written[newest].state + parts_of[k].offset, parts_of[k].bytes));
  }
  return 0;
}
