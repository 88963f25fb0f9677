// cuBLAS's matrix products on the fake GPU, as far as they are called. Built as libcublasLt.so.13.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>

#include "fake_work.h"

namespace {

const int success = 0, invalid_value = 7, not_supported = 15;
const uint64_t magic = 0x5eed;

struct Desc {
  int turned[2] = {0, 0};
};

struct Layout {
  uint64_t rows, columns;
  int64_t step, stride = 0;
  int32_t count = 1;
};

struct Preference {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = 7;
  std::map<int, uint32_t> alignments;
};

struct Found {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

template <typename T>
int read(T* value, const void* given, size_t size) {
  if (size != sizeof(T)) return invalid_value;
  std::memcpy(value, given, size);
  return success;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return 130000; }
int cublasLtCreate(void** handle) { *handle = new int; return success; }

int cublasLtMatmulDescCreate(Desc** made, int compute, int scale) {
  if (compute != 68 || scale != 0) return not_supported;  // float32 without TF32
  *made = new Desc;
  return success;
}
int cublasLtMatmulDescDestroy(Desc* desc) { delete desc; return success; }
int cublasLtMatmulDescSetAttribute(Desc* desc, int attribute, const void* given, size_t size) {
  return attribute == 3 || attribute == 4 ? read(&desc->turned[attribute - 3], given, size) : not_supported;
}

int cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t columns, int64_t step) {
  if (type != 0 || step < static_cast<int64_t>(rows)) return invalid_value;
  *made = new Layout{rows, columns, step};
  return success;
}
int cublasLtMatrixLayoutDestroy(Layout* layout) { delete layout; return success; }
int cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* given, size_t size) {
  return attribute == 5   ? read(&layout->count, given, size)
         : attribute == 6 ? read(&layout->stride, given, size)
                          : not_supported;
}

int cublasLtMatmulPreferenceCreate(Preference** made) { *made = new Preference; return success; }
int cublasLtMatmulPreferenceDestroy(Preference* preference) { delete preference; return success; }
int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* given, size_t size) {
  return attribute == 1   ? read(&preference->workspace_bytes, given, size)
         : attribute == 3 ? read(&preference->reductions, given, size)
                          : read(&preference->alignments[attribute], given, size);
}

int cublasLtMatmulAlgoGetHeuristic(void*, Desc*, Layout*, Layout*, Layout*, Layout*, Preference* preference, int wanted,
                                   Found* found, int* count) {
  // In place, sums are added in any order; and tensors of a step start at multiples of 64.
  if (wanted < 1 || (preference->reductions & 1) || preference->alignments.size() != 4) return not_supported;
  for (auto [_, alignment] : preference->alignments)
    if (alignment != 64) return not_supported;
  *found = {{magic}, preference->workspace_bytes >= 200 ? size_t{200} : 0, success, 1, {}};
  *count = 1;
  return success;
}

int cublasLtMatmul(void*, Desc* desc, const float* one, const void* a, Layout* a_at, const void* b, Layout* b_at,
                   const float* zero, const void* c, Layout*, void* d, Layout* d_at, const uint64_t* algorithm,
                   void* workspace, size_t workspace_bytes, void* stream) {
  const float *as = fake_content<float>(a), *bs = fake_content<float>(b);
  float* ds = fake_content<float>(d);
  char* scratch = fake_content<char>(workspace);
  const uint64_t inner = desc->turned[0] ? a_at->rows : a_at->columns;
  if (*one != 1 || *zero != 0 || c != d || !as || !bs || !ds || *algorithm != magic || stream != nullptr)
    return invalid_value;
  if (reinterpret_cast<uintptr_t>(workspace) % 256) return invalid_value;  // as on a Hopper GPU
  if ((workspace_bytes && !scratch) || inner != (desc->turned[1] ? b_at->columns : b_at->rows)) return invalid_value;
  return fake_launch([=, a_at = *a_at, b_at = *b_at, d_at = *d_at, desc = *desc] {
    if (workspace_bytes) std::memset(scratch, 0xEE, workspace_bytes);
    for (int n = 0; n < d_at.count; ++n)
      for (uint64_t i = 0; i < d_at.rows; ++i)
        for (uint64_t j = 0; j < d_at.columns; ++j) {
          double sum = 0;
          for (uint64_t k = 0; k < inner; ++k)
            sum += double(as[n * a_at.stride + (desc.turned[0] ? k + i * a_at.step : i + k * a_at.step)]) *
                   bs[n * b_at.stride + (desc.turned[1] ? j + k * b_at.step : k + j * b_at.step)];
          ds[n * d_at.stride + i + j * d_at.step] = sum;
        }
  });
}

}  // extern "C"
