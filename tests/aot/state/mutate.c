/* Loads COUNT mutated checkpoints; exit code 0 when each was refused with the state untouched, or was
   accepted because nothing had changed. NAME and HEADER come from the command line. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include HEADER

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define CALL(f) JOIN(NAME, f)

enum { CODES = 15 };

typedef struct {
  uint8_t *bytes;
  size_t length, capacity;
} file;

static int put(void *user, const void *data, size_t bytes) {
  file *to = user;
  if (bytes > to->capacity - to->length) return 1;
  memcpy(to->bytes + to->length, data, bytes);
  to->length += bytes;
  return 0;
}

static int get(void *user, size_t offset, void *data, size_t bytes) {
  file *from = user;
  if (offset > from->length || bytes > from->length - offset) return 1;
  memcpy(data, from->bytes + offset, bytes);
  return 0;
}

static uint32_t state = 1;
static uint32_t draw(uint32_t below) {
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state % below;
}

int main(void) {
  CALL(_ctx) ctx;
  size_t size = CALL(_checkpoint_bytes)();
  uint8_t *memory = aligned_alloc(64, (REGION_BYTES + 63) / 64 * 64);
  uint8_t *before = malloc(REGION_BYTES);
  file good = {malloc(size), 0, size};
  int codes[CODES] = {0};
  if (CALL(_init)(&ctx, memory, REGION_BYTES, PLAN_HASH) || CALL(_state_reset)(&ctx)) return 1;
  memset(memory + KEPT_BYTES, 0xa5, REGION_BYTES - KEPT_BYTES);
  if (CALL(_checkpoint_save)(&ctx, put, &good) || good.length != size) return 2;
  memcpy(before, memory, REGION_BYTES);
  for (int round = 0; round < COUNT; round++) {
    size_t length = size;
    file bad = {NULL, 0, 0};
    int code;
    if (draw(4) == 0) length = draw((uint32_t)size); /* truncated */
    bad.bytes = malloc(length ? length : 1);          /* exact size: the sanitizer sees a stray read */
    bad.length = bad.capacity = length;
    memcpy(bad.bytes, good.bytes, length);
    if (length)
      for (uint32_t flips = draw(4) + (length == size); flips; flips--) {
        size_t at = draw(3) ? draw((uint32_t)length) : draw(length < 48 ? (uint32_t)length : 48);
        switch (draw(3)) {
          case 0: bad.bytes[at] ^= (uint8_t)(1u << draw(8)); break;
          case 1: bad.bytes[at] = (uint8_t)draw(256); break;
          default: bad.bytes[at] = 0xff; break;
        }
      }
    code = CALL(_checkpoint_load)(&ctx, get, &bad, draw(2), NULL);
    if (code > 0 || code <= -CODES) return 3;
    codes[-code]++;
    if (code == 0 && (length != size || memcmp(bad.bytes, good.bytes, size))) return 4;
    if (memcmp(memory, before, REGION_BYTES)) return 5;
    if (!ctx.ready) return 6;
    free(bad.bytes);
  }
  for (int code = 0; code < CODES; code++) printf("%d\n", codes[code]);
  free(good.bytes);
  free(before);
  free(memory);
  return 0;
}
