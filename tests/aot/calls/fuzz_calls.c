/* Random sequences of calls of a package with one region, or two (TWO), with good and bad arguments of all kinds.
   With ENTRIES it has accumulate, apply and infer, too; with DMA copies between regions are late, and some at random.
   Every call must return a code, must refuse what is bad, and a refused call must change nothing.
   Compiled with PACKAGE (its name), HEADER, MACRO (the name in capitals), SEED
   and CALLS, and sanitizers. */
#include HEADER
#include <stdio.h>
#include <string.h>

#define PASTE(a, b) a##b
#define JOIN(a, b) PASTE(a, b)
#define F(name) JOIN(PACKAGE, name)
#define M(name) JOIN(MACRO, name)

#define ROWS 2
#define INPUTS (ROWS * 16)
#define OUTPUTS (ROWS * 4)
#ifdef ENTRIES
#define SAMPLE_KINDS 4
#define BUSY M(_EBUSY)
#else
#define SAMPLE_KINDS 0
#define BUSY 1 /* no code */
#endif
#ifdef DMA
#define KINDS (10 + SAMPLE_KINDS + 1)
#else
#define KINDS (10 + SAMPLE_KINDS)
#endif
#define AROUND 4096 /* bytes on both sides of the region, which belong to nobody */

static uint64_t state;
static uint32_t any(uint32_t below) { /* splitmix64, which repeats everywhere */
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return (uint32_t)((z ^ (z >> 31)) % below);
}

static uint32_t edge(uint32_t below) { /* the first, the last, or any one */
  return any(3) ? (any(2) ? below - 1 : 0) : any(below);
}

static float not_finite(void) {
  float infinite = 1e38f * 1e38f;
  switch (any(3)) { case 0: return infinite; case 1: return -infinite; default: return infinite - infinite; }
}

#ifdef TWO
#define REGIONS 2
#define LARGER M(_PSRAM_BYTES)
#define LARGER_KEPT M(_PSRAM_KEPT_BYTES)
#define INIT(ctx, memory, bytes, hash) F(_init)(ctx, memory[0], bytes[0], memory[1], bytes[1], hash)
#else
#define REGIONS 1
#define LARGER 0
#define LARGER_KEPT 0
#define INIT(ctx, memory, bytes, hash) F(_init)(ctx, memory[0], bytes[0], hash)
#endif

static struct { /* the context lies behind the memory */
  struct {
    _Alignas(64) uint8_t first[AROUND + M(_SRAM_BYTES) + 64 + AROUND];
    _Alignas(64) uint8_t second[AROUND + LARGER + 64 + AROUND];
  } memory;
  _Alignas(16) uint8_t contexts[sizeof(F(_ctx)) + 16];
} all;
#define contexts all.contexts
static const struct { uint8_t *at; size_t bytes, kept; } regions[] = {
  {all.memory.first + AROUND, M(_SRAM_BYTES), M(_SRAM_KEPT_BYTES)},
  {all.memory.second + AROUND, LARGER, LARGER_KEPT},
};
static _Alignas(64) uint8_t before[sizeof all.memory];
static const uint8_t *as_before(const uint8_t *at) { return before + (at - (uint8_t *)&all.memory); }
static _Alignas(16) float x[INPUTS + 4];
static _Alignas(16) int64_t labels[ROWS + 1];
static _Alignas(16) uint8_t results[256], loaded[64];
static uint8_t saved[sizeof all.memory];
static size_t saved_bytes, in_file;
static long fails_at; /* the call of a callback that fails, or that reads something else */

static int is_bad;

/* A pointer to at least `bytes` bytes that may be read: mostly `good`, else one of those that the
   package has to refuse. `result` may be missing, and lie at any address outside. */
static void *pointer(void *good, size_t align, int result) {
  uint32_t which = any(REGIONS);
  uint8_t *region = regions[which].at;
  uint32_t bytes = (uint32_t)regions[which].bytes;
  switch (any(12)) {
    case 0: is_bad |= !result; return NULL;
    case 1: if (align > 1) { is_bad = 1; return (uint8_t *)good + 1 + any((uint32_t)align - 1); } return good;
    case 2: is_bad = 1; return region + any(bytes / 16) * 16; /* inside */
    case 3: is_bad = 1; return region - (result ? 1 + any(3) : (uint32_t)align); /* over its beginning */
    case 4: is_bad = 1; return region + (bytes - 1) / (result ? 1 : (uint32_t)align) * (result ? 1 : (uint32_t)align); /* over its end */
    case 5: if (result) { is_bad = 1; return contexts + sizeof(F(_ctx)) - 1 - (any(2) ? 0 : any(sizeof(F(_ctx)) + 3)); } return good;
    default: return good;
  }
}

static int take(void *user, const void *data, size_t bytes) {
  (void)user;
  if (!fails_at--) return 1;
  memcpy(saved + in_file, data, bytes);
  in_file += bytes;
  return 0;
}

static int give(void *user, size_t offset, void *data, size_t bytes) {
  int lies = user != NULL;
  if (offset + bytes > saved_bytes) return 1;
  memcpy(data, saved + offset, bytes);
  if (!fails_at--) {
    if (!lies) return 1;
    ((uint8_t *)data)[any((uint32_t)bytes)] ^= (uint8_t)(1u << any(8));
  }
  return 0;
}

/* Three slots in flash that may fail, or read something else. */
enum { SLOTS = 3 };
static struct { uint8_t bytes[sizeof all.memory]; size_t used; } flash[SLOTS];
static int has_sound; /* the last save was whole */

static int flash_erase(void *user) {
  if (!fails_at--) return 1;
  flash[*(const int *)user].used = 0;
  return 0;
}

static int flash_write(void *user, const void *data, size_t bytes) {
  int at = *(const int *)user;
  if (!fails_at--) return 1;
  memcpy(flash[at].bytes + flash[at].used, data, bytes);
  flash[at].used += bytes;
  return 0;
}

static int flash_read(void *user, size_t offset, void *data, size_t bytes) {
  int at = *(const int *)user;
  if (offset > flash[at].used || bytes > flash[at].used - offset) return 1;
  memcpy(data, flash[at].bytes + offset, bytes);
  if (!fails_at--) {
    if (any(2)) return 1;
    ((uint8_t *)data)[any((uint32_t)bytes)] ^= (uint8_t)(1u << any(8));
  }
  return 0;
}

static F(_slot) *make_slots(void) {
  static F(_slot) slots[SLOTS + 1]; /* one more, for addresses that are too large by less than one */
  static int numbers[SLOTS] = {0, 1, 2};
  for (int k = 0; k < SLOTS; k++)
    slots[k] = (F(_slot)){flash_erase, flash_write, flash_read, &numbers[k]};
  return slots;
}

#ifdef DMA
/* A simulated DMA: a copy is made when it is waited for, or at a random moment. */
static struct { uint8_t *to; const uint8_t *from; size_t bytes; } copies[M(_DMA_CHANNELS)][M(_DMA_MOST_COPIES)];
static uint32_t under_way[M(_DMA_CHANNELS)];
static long dma_starts, dma_faults;

static int in_regions(const uint8_t *at, size_t bytes) {
  for (size_t k = 0; k < REGIONS; k++)
    if (at >= regions[k].at && at + bytes <= regions[k].at + regions[k].bytes) return 1;
  return 0;
}

static void end_copies(uint32_t channel, uint32_t pending) {
  uint32_t ended = under_way[channel] > pending ? under_way[channel] - pending : 0;
  for (uint32_t k = 0; k < ended; k++)
    memcpy(copies[channel][k].to, copies[channel][k].from, copies[channel][k].bytes);
  memmove(copies[channel], copies[channel] + ended, (under_way[channel] - ended) * sizeof *copies[channel]);
  under_way[channel] -= ended;
}

static void dma_start(void *user, uint32_t channel, void *to, const void *from, size_t bytes) {
  if (user != copies || channel >= M(_DMA_CHANNELS) || under_way[channel] >= M(_DMA_MOST_COPIES) ||
      !in_regions(to, bytes) || !in_regions(from, bytes)) { dma_faults++; return; }
  memset(to, 0xff, bytes); /* NaN: nobody may look at it yet */
  copies[channel][under_way[channel]].to = to;
  copies[channel][under_way[channel]].from = from;
  copies[channel][under_way[channel]++].bytes = bytes;
  dma_starts++;
  end_copies(channel, any(2) ? under_way[channel] : any(under_way[channel] + 1));
}

static void dma_wait(void *user, uint32_t channel, uint32_t pending) {
  if (user != copies || channel >= M(_DMA_CHANNELS)) { dma_faults++; return; }
  end_copies(channel, any(2) ? pending : any(pending + 1));
}
#endif

#define MUST(condition) \
  if (!(condition)) { fprintf(stderr, "call %ld, kind %u: code %d: %s\n", call, kind, (int)code, #condition); return 1; }

int main(void) {
  F(_ctx) *ctx = (void *)contexts;
  int has_memory = 0, has_state = 0, samples = 0;
  state = SEED;
  for (size_t k = 0; k < sizeof all.memory; k++) ((uint8_t *)&all.memory)[k] = (uint8_t)k;
  memset(ctx, 0, sizeof *ctx);
  for (long call = 0; call < CALLS; call++) {
    uint32_t kind = any(KINDS);
    int32_t code = 0;
    int may_void = 0, is_label_bad = 0, is_number_bad = 0;
    F(_ctx) *given = ctx;
    is_bad = 0;
    if (!any(20)) given = NULL;
    else if (!any(20)) given = (void *)(contexts + 1 + any(7));
    is_bad = given != ctx;
    for (size_t k = 0; k < INPUTS; k++) x[k] = (float)any(1000) / 500.0f - 1.0f;
    for (size_t k = 0; k < ROWS; k++) labels[k] = k || any(9) ? (int64_t)any(4) : -100; /* -100 does not count; the mean of none is NaN */
    memcpy(before, &all.memory, sizeof all.memory);
    switch (kind) {
      case 0: { /* init */
        uint8_t *memory[] = {regions[0].at, regions[1].at};
        size_t bytes[] = {regions[0].bytes, regions[1].bytes};
        uint64_t hash = M(_PLAN_HASH);
        int is_given_bad = is_bad;
        uint32_t k = any(REGIONS), needed = (uint32_t)bytes[k];
        switch (any(10)) {
          case 0: memory[k] = NULL; is_bad = 1; break;
          case 1: memory[k] += any(2) ? M(_ALIGN) / 2 : 1 + any(M(_ALIGN) - 1); is_bad = 1; break;
          case 2: bytes[k] = any(2) ? needed - 1u : any(needed); is_bad = 1; break;
          case 3: hash ^= 1ull << any(64); is_bad = 1; break;
          case 4: memory[k] = contexts - (uintptr_t)contexts % M(_ALIGN); is_bad = 1; break; /* over the context */
          case 5: bytes[k] = SIZE_MAX - any(64); is_bad = 1; break; /* over everything, the context too */
          case 6: /* one over the other's beginning or end */
            if (REGIONS == 2) {
              size_t most = any(2) ? bytes[1 - k] - 1 : any((uint32_t)bytes[1 - k]);
              memory[k] = memory[1 - k] + most / M(_ALIGN) * M(_ALIGN);
              is_bad = 1;
            }
            break;
          default: break;
        }
        code = INIT(given, memory, bytes, hash);
        if (!is_given_bad) has_memory = !is_bad, has_state = 0, samples = 0;
        break;
      }
      case 1:
        is_bad |= !has_memory;
        code = F(_state_reset)(given);
        has_state |= !is_bad;
        if (!is_bad) samples = 0;
        break;
      case 2: {
        static const float rates[] = {0.0f, 0.01f, -0.0f, 1e-30f}, negative[] = {-1e-45f, -0.01f, -3e38f};
        float rate = rates[any(4)];
        if (!any(6)) { rate = any(2) ? not_finite() : negative[any(3)]; is_number_bad = 1; }
        is_bad |= !has_state;
        code = F(_set_lr)(given, rate);
        MUST(!is_bad || code == M(_EINVAL) || code == M(_EALIGN));
        if (!is_bad && is_number_bad) MUST(code == M(_ERANGE));
        is_bad |= is_number_bad;
        break;
      }
      case 3: case 4: { /* train_step */
        if (!any(8)) { x[edge(INPUTS)] = not_finite(); is_number_bad = 1; }
        if (!any(8)) {
          static const int64_t edges[] = {4, -1, -99, -101, INT64_MAX, INT64_MIN, (int64_t)1 << 32};
          labels[any(ROWS)] = any(4) ? edges[any(7)] : any(2) ? 4 + (int64_t)any(100) : -1 - (int64_t)any(99);
          is_label_bad = 1;
        }
        is_bad |= !has_state;
        if (samples) {
          code = F(_train_step)(given, x, labels, NULL, NULL);
          MUST(is_bad ? code == M(_EINVAL) || code == M(_EALIGN) : code == BUSY);
          is_bad = 1;
          break;
        }
        {
          void *a = pointer(x, sizeof *x, 0), *b = pointer(labels, sizeof *labels, 0);
          void *c = pointer(results + any(4), 1, 1), *d = pointer(results + 64 + any(4), 1, 1);
          code = F(_train_step)(given, a, b, c, d);
        }
        /* Each fault has its code, in this order: none may hide behind another guard. */
        MUST(!is_bad || code == M(_EINVAL) || code == M(_EALIGN));
        if (!is_bad && is_number_bad) MUST(code == M(_ENAN));
        if (!is_bad && !is_number_bad && is_label_bad) MUST(code == M(_ERANGE));
        is_bad |= is_number_bad | is_label_bad;
        break;
      }
      case 5: { /* eval */
        if (!any(8)) { x[edge(INPUTS)] = not_finite(); is_number_bad = 1; }
        is_bad |= !has_state;
        {
          void *a = pointer(x, sizeof *x, 0), *b = pointer(results + any(4), 1, 1);
          code = F(_eval)(given, a, b);
        }
        MUST(!is_bad || code == M(_EINVAL) || code == M(_EALIGN));
        if (!is_bad && is_number_bad) MUST(code == M(_ENAN));
        is_bad |= is_number_bad;
        break;
      }
      case 6:
        is_bad |= !has_state;
        in_file = 0;
        fails_at = any(3) ? -1 : (long)any(4);
        if (!any(10)) { is_bad = 1; code = F(_checkpoint_save)(given, NULL, NULL); break; }
        {
          int fails = fails_at >= 0;
          code = F(_checkpoint_save)(given, take, NULL);
          saved_bytes = code ? in_file / 2 : in_file;
          if (!is_bad && !fails) MUST(in_file == F(_checkpoint_bytes)());
          if (fails && !is_bad) MUST(code == M(_EIO));
          is_bad |= fails;
        }
        break;
      case 8: case 9: { /* slots */
        uint32_t count = any(12) ? SLOTS : any(2);
        F(_slot) *slots = make_slots();
        int fails;
        fails_at = any(3) ? -1 : (long)any(400);
        fails = fails_at >= 0;
        switch (any(16)) {
          case 0: slots = NULL; is_bad = 1; break;
          case 1: slots = (void *)((uint8_t *)slots + 1 + any(7)); is_bad = 1; break;
          case 2: if (any(2)) slots[any(SLOTS)].read = NULL; else slots[any(SLOTS)].write = NULL; break;
          case 3: slots = (void *)(regions[0].at + any((uint32_t)regions[0].bytes / 16) * 16); is_bad = 1; break;
          case 4: /* over its beginning */
            slots = (void *)(regions[0].at - 8 * (1 + any(SLOTS * sizeof(F(_slot)) / 8 - 1)));
            count = SLOTS;
            is_bad = 1;
            break;
          default: break;
        }
        if (kind == 8) {
          for (uint32_t k = 0; !is_bad && k < SLOTS && k < count; k++) is_bad |= !slots[k].read || !slots[k].write;
          is_bad |= !has_state | (count < 2);
          code = F(_slots_save)(given, slots, count);
          MUST(!is_bad || code == M(_EINVAL) || code == M(_EALIGN));
          if (!is_bad && !fails) MUST(code == 0);
          if (!is_bad) has_sound = !fails;
        } else {
          void *report = pointer(loaded, _Alignof(F(_loaded)), 1);
          uint32_t absent = edge(3);
          for (uint32_t k = 0; !is_bad && k < SLOTS && k < count; k++) is_bad |= !slots[k].read;
          is_bad |= !has_memory | !count | (absent > M(_INITIALISE_ABSENT));
          may_void = !is_bad;
          code = F(_slots_load)(given, slots, count, absent, report);
          MUST(!is_bad || code == M(_EINVAL) || code == M(_EALIGN));
          if (!is_bad && !fails && has_sound && count == SLOTS) MUST(code == 0);
          if (!is_bad && !code) has_state = 1, samples = 0;
          if (!is_bad && code && ctx->ready == 0) has_state = 0, samples = 0;
        }
        if (!is_bad && code) is_bad = 1; /* what slots hold decides */
        break;
      }
#ifdef ENTRIES
      case 10: case 11: { /* accumulate: the second sample, whose label counts */
        if (!any(8)) { x[16 + edge(16)] = not_finite(); is_number_bad = 1; }
        if (!any(8)) { labels[1] = any(2) ? 4 : -1; is_label_bad = 1; }
        is_bad |= !has_state;
        {
          void *a = pointer(x + 16, sizeof *x, 0);
          int was_bad = is_bad;
          void *b = pointer(labels + 1, sizeof *labels, 0);
          for (size_t k = 0; k < REGIONS; k++) /* one label ends where the region begins */
            if (b == regions[k].at - sizeof *labels) { b = labels + 1; is_bad = was_bad; }
          void *c = pointer(results + any(4), 1, 1), *d = pointer(results + 64 + any(4), 1, 1);
          code = F(_accumulate)(given, a, b, c, d);
        }
        MUST(!is_bad || code == M(_EINVAL) || code == M(_EALIGN));
        if (!is_bad && is_number_bad) MUST(code == M(_ENAN));
        if (!is_bad && !is_number_bad && is_label_bad) MUST(code == M(_ERANGE));
        is_bad |= is_number_bad | is_label_bad;
        samples += !is_bad;
        break;
      }
      case 12: /* apply, or discard */
        is_bad |= !has_state;
        if (!any(3)) { code = F(_discard)(given); if (!is_bad) samples = 0; break; }
        code = F(_apply)(given);
        MUST(!is_bad || code == M(_EINVAL) || code == M(_EALIGN));
        if (!is_bad && !samples) { MUST(code == M(_EEMPTY)); is_bad = 1; }
        if (!is_bad) samples = 0;
        break;
      case 13: { /* infer */
        if (!any(8)) { x[16 + edge(16)] = not_finite(); is_number_bad = 1; }
        is_bad |= !has_state;
        void *a = pointer(x + 16, sizeof *x, 0), *b = pointer(results + any(4), 1, 1);
        code = F(_infer)(given, a, b);
        MUST(!is_bad || code == M(_EINVAL) || code == M(_EALIGN));
        if (!is_bad && is_number_bad) MUST(code == M(_ENAN));
        is_bad |= is_number_bad;
        break;
      }
#endif
#ifdef DMA
      case 10 + SAMPLE_KINDS: {
        static F(_dma) hooks[2]; /* one more, for addresses that are too large by less than one */
        const F(_dma) *given_hooks = any(4) ? hooks : NULL;
        hooks[0] = (F(_dma)){dma_start, dma_wait, copies};
        is_bad |= !has_memory;
        switch (any(8)) {
          case 0: given_hooks = (void *)((uint8_t *)hooks + 1 + any(_Alignof(F(_dma)) - 1)); is_bad = 1; break;
          case 1: hooks[0].start = NULL; is_bad |= given_hooks != NULL; break;
          case 2: hooks[0].wait = NULL; is_bad |= given_hooks != NULL; break;
          default: break;
        }
        code = F(_use_dma)(given, given_hooks);
        MUST(!is_bad || code == M(_EINVAL) || code == M(_EALIGN));
        break;
      }
#endif
      default:
        is_bad |= !has_memory;
        fails_at = any(3) ? -1 : (long)any(200);
        if (!any(10)) { is_bad = 1; code = F(_checkpoint_load)(given, NULL, NULL, 0, NULL); break; }
        {
          void *report = pointer(loaded, _Alignof(F(_loaded)), 1);
          uint32_t absent = edge(3);
          is_bad |= absent > M(_INITIALISE_ABSENT);
          may_void = !is_bad;
          code = F(_checkpoint_load)(given, give, any(2) ? contexts : NULL, absent, report);
          MUST(!is_bad || code == M(_EINVAL) || code == M(_EALIGN));
        }
        if (!is_bad && !code) has_state = 1, samples = 0;
        if (!is_bad && code && ctx->ready == 0) has_state = 0, samples = 0;
        if (!is_bad && code) is_bad = 1; /* what a file holds decides */
        break;
    }
    MUST(code <= 0 && code >= M(_EFROZEN));
    MUST(is_bad == (code != 0));
    /* Nobody writes around the region; a refused call leaves the state, or says that it is void. */
    for (size_t k = 0; k < REGIONS; k++) {
      uint8_t *at = regions[k].at, *end = at + regions[k].bytes;
      MUST(!memcmp(at - AROUND, as_before(at - AROUND), AROUND));
      MUST(!memcmp(end, as_before(end), 64 + AROUND));
      if (code && !(may_void && !ctx->ready)) MUST(!memcmp(at, as_before(at), regions[k].kept));
    }
    if (code && (kind <= 5 || kind > 9)) MUST(!memcmp(&all.memory, before, sizeof all.memory)); /* nothing was computed */
#ifdef ENTRIES
    MUST(has_memory == 0 || samples == (int)ctx->samples);
#endif
#ifdef DMA
    MUST(!dma_faults);
    for (uint32_t k = 0; k < M(_DMA_CHANNELS); k++) MUST(!under_way[k]); /* every call ends with nothing left */
#endif
    if (has_state != (ctx->ready != 0)) { fprintf(stderr, "call %ld, kind %u: ready %u\n", call, kind, ctx->ready); return 1; }
  }
#ifdef DMA
  if (!dma_starts) { fprintf(stderr, "no copy was made by DMA\n"); return 1; }
#endif
  return 0;
}
