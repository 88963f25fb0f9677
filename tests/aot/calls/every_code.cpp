// A C++ caller that meets every code of a package: prints each with its text, and exits with the line of a
// call that returns another one, or that changes what it refuses to change. CHECKPOINTS has arrays of bytes.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "tiny_mlp.h"
CHECKPOINTS

namespace {

struct File {
  const unsigned char *bytes;
  size_t length;
};

int read_file(void *user, size_t offset, void *data, size_t bytes) {
  const File *file = static_cast<const File *>(user);
  if (offset > file->length || bytes > file->length - offset) return 1;
  std::memcpy(data, file->bytes + offset, bytes);
  return 0;
}

int fail_to_write(void *, const void *, size_t) { return 1; }

int append(void *user, const void *data, size_t bytes) {
  auto *to = static_cast<std::vector<unsigned char> *>(user);
  const auto *from = static_cast<const unsigned char *>(data);
  to->insert(to->end(), from, from + bytes);
  return 0;
}

alignas(64) unsigned char sram[TINY_MLP_SRAM_BYTES + 8];
float x[TINY_MLP_TRAIN_STEP_X_COUNT];
int64_t labels[TINY_MLP_TRAIN_STEP_LABELS_COUNT] = {1, 2};

int32_t load(tiny_mlp_ctx *ctx, const unsigned char *bytes, size_t length, tiny_mlp_loaded *report) {
  File file = {bytes, length};
  return tiny_mlp_checkpoint_load(ctx, read_file, &file, TINY_MLP_REFUSE_ABSENT, report);
}

}  // namespace

// The call returns CODE, and leaves state and settings as they are.
#define RETURNS(code, call)                                                     \
  do {                                                                          \
    const std::vector<unsigned char> before(sram, sram + TINY_MLP_STATE_BYTES); \
    const float lr = ctx.lr;                                                    \
    const int32_t status = (call);                                              \
    if (status != TINY_MLP_##code) {                                            \
      std::fprintf(stderr, "line %d: %d\n", __LINE__, static_cast<int>(status)); \
      return 1;                                                                 \
    }                                                                           \
    if (std::memcmp(sram, before.data(), before.size()) || ctx.lr != lr) return __LINE__; \
    std::printf("%s: %s\n", #code, tiny_mlp_status_text(status));               \
  } while (0)

int main() {
  tiny_mlp_ctx ctx = {};
  tiny_mlp_loaded found = {};
  const float infinite = std::numeric_limits<float>::infinity();
  RETURNS(EINVAL, tiny_mlp_set_lr(&ctx, 0.1f));  // no state that has settings yet
  RETURNS(EINVAL, tiny_mlp_discard(&ctx));
  RETURNS(EPLAN, tiny_mlp_init(&ctx, sram, sizeof sram, TINY_MLP_PLAN_HASH ^ 1u));
  RETURNS(EALIGN, tiny_mlp_init(&ctx, sram + 1, TINY_MLP_SRAM_BYTES, TINY_MLP_PLAN_HASH));
  RETURNS(ESIZE, tiny_mlp_init(&ctx, sram, TINY_MLP_SRAM_BYTES - 1u, TINY_MLP_PLAN_HASH));
  RETURNS(OK, tiny_mlp_init(&ctx, sram, sizeof sram, TINY_MLP_PLAN_HASH));
  RETURNS(EINVAL, tiny_mlp_train_step(&ctx, x, labels, nullptr, nullptr));
  if (tiny_mlp_state_reset(&ctx)) return __LINE__;
  for (const float rate : {-0.01f, -infinite, infinite, std::nanf("")})
    RETURNS(ERANGE, tiny_mlp_set_lr(&ctx, rate));
  if (tiny_mlp_set_lr(&ctx, 0.25f) || ctx.lr != 0.25f || tiny_mlp_set_lr(&ctx, 0.0f)) return __LINE__;
  RETURNS(EEMPTY, tiny_mlp_apply(&ctx));
  labels[1] = 4;
  RETURNS(ERANGE, tiny_mlp_train_step(&ctx, x, labels, nullptr, nullptr));
  labels[1] = 2;
  x[31] = infinite;
  RETURNS(ENAN, tiny_mlp_train_step(&ctx, x, labels, nullptr, nullptr));
  x[31] = 0.0f;
  RETURNS(OK, tiny_mlp_accumulate(&ctx, x, labels, nullptr, nullptr));
  RETURNS(EBUSY, tiny_mlp_train_step(&ctx, x, labels, nullptr, nullptr));
  if (tiny_mlp_discard(&ctx)) return __LINE__;
  RETURNS(EIO, tiny_mlp_checkpoint_save(&ctx, fail_to_write, nullptr));
  RETURNS(EIO, load(&ctx, sound, sizeof sound - 5u, &found));
  RETURNS(EFORMAT, load(&ctx, foreign, sizeof foreign, &found));
  RETURNS(ECRC, load(&ctx, damaged, sizeof damaged, &found));
  if (found.tensor) return __LINE__;
  RETURNS(EABSENT, load(&ctx, lacking, sizeof lacking, &found));
  RETURNS(ESHAPE, load(&ctx, other_shape, sizeof other_shape, &found));
  std::printf("of %s\n", found.tensor);
  RETURNS(EFROZEN, load(&ctx, other_frozen, sizeof other_frozen, &found));
  std::printf("of %s\n", found.tensor);
  RETURNS(ERANGE, load(&ctx, negative_rate, sizeof negative_rate, &found));
  std::printf("of %s\n", found.tensor);
  RETURNS(ERANGE, load(&ctx, infinite_rate, sizeof infinite_rate, nullptr));
  if (load(&ctx, sound, sizeof sound, &found) || ctx.lr != 0.125f || found.tensor) return __LINE__;
  std::vector<unsigned char> again;
  RETURNS(OK, tiny_mlp_checkpoint_save(&ctx, append, &again));
  if (again.size() != sizeof sound || std::memcmp(again.data(), sound, sizeof sound)) return __LINE__;
  return 0;
}
