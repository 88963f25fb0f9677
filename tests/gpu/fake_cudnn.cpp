// cuDNN's convolutions on the fake GPU, as far as they are called. Built as libcudnn.so.9.
#include <cstddef>
#include <cstring>
#include <vector>

#include "fake_work.h"

namespace {

const int success = 0, bad_parameter = 2000, not_supported = 3000;
const int fma_math = 3, deterministic = 1, most_algorithms = 2;
const size_t forward_workspace_bytes = 1000;  // of algorithm 1, not a multiple of anything

struct Extents {
  std::vector<int> extents;
};

struct Convolution {
  std::vector<int> padding, strides, dilation;
  int groups = 1, math = 0;
};

struct Performance {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};

using Visit = std::function<void(size_t data, size_t weight, size_t output)>;

// All triples of elements that a convolution multiplies.
void for_each_product(const Extents& data, const Extents& weight, const Extents& output,
                      const Convolution& convolution, const Visit& visit) {
  const size_t rank = convolution.strides.size();
  const int out_channels = weight.extents[0], channels = weight.extents[1];
  const int out_of_group = out_channels / convolution.groups;
  size_t pixels = 1, window = 1;
  for (size_t a = 0; a < rank; ++a) pixels *= output.extents[a + 2], window *= weight.extents[a + 2];
  for (int n = 0; n < output.extents[0]; ++n)
    for (int o = 0; o < out_channels; ++o)
      for (size_t pixel = 0; pixel < pixels; ++pixel)
        for (int c = 0; c < channels; ++c)
          for (size_t place = 0; place < window; ++place) {
            size_t at = 0, place_left = place, pixel_left = pixel, step = 1;
            bool is_inside = true;
            for (size_t a = rank; a-- > 0;) {
              const int p = pixel_left % output.extents[a + 2], w = place_left % weight.extents[a + 2];
              pixel_left /= output.extents[a + 2], place_left /= weight.extents[a + 2];
              const int x = p * convolution.strides[a] + w * convolution.dilation[a] - convolution.padding[a];
              is_inside &= x >= 0 && x < data.extents[a + 2];
              at += x * step, step *= data.extents[a + 2];
            }
            if (!is_inside) continue;
            const size_t channel = size_t(o / out_of_group) * channels + c;
            visit((size_t(n) * data.extents[1] + channel) * step + at,
                  (size_t(o) * channels + c) * window + place, (size_t(n) * out_channels + o) * pixels + pixel);
          }
}

size_t count(const Extents& extents) {
  size_t product = 1;
  for (int extent : extents.extents) product *= extent;
  return product;
}

int launch(const Extents& result, void* given, void* workspace, size_t workspace_bytes,
           std::function<void(std::vector<double>&)> compute) {
  float* content = fake_content<float>(given);
  char* scratch = fake_content<char>(workspace);
  if (content == nullptr || (workspace_bytes && scratch == nullptr)) return bad_parameter;
  const size_t size = count(result);
  return fake_launch([=] {
    if (workspace_bytes) std::memset(scratch, 0xEE, workspace_bytes);
    std::vector<double> sums(size);
    compute(sums);
    for (size_t k = 0; k < size; ++k) content[k] = sums[k];
  });
}

int algorithms(const Convolution* convolution, int* found, Performance* best, int first, int first_is, int second) {
  if (convolution->math != fma_math) return not_supported;
  *found = most_algorithms;
  best[0] = {first, success, 1, 0, first_is, fma_math, {}};
  best[1] = {second, success, 2, 0, deterministic, fma_math, {}};
  return success;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return 90000; }
int cudnnCreate(void** handle) { *handle = new int; return success; }

int cudnnCreateTensorDescriptor(void** made) { *made = new Extents; return success; }
int cudnnDestroyTensorDescriptor(Extents* extents) { delete extents; return success; }
int cudnnCreateFilterDescriptor(void** made) { *made = new Extents; return success; }
int cudnnDestroyFilterDescriptor(Extents* extents) { delete extents; return success; }
int cudnnCreateConvolutionDescriptor(void** made) { *made = new Convolution; return success; }
int cudnnDestroyConvolutionDescriptor(Convolution* convolution) { delete convolution; return success; }

int cudnnSetTensorNdDescriptor(Extents* extents, int type, int rank, const int* given, const int* strides) {
  if (type != 0 || rank < 4) return bad_parameter;
  int compact = 1;
  for (int axis = rank; axis-- > 0; compact *= given[axis])
    if (strides[axis] != compact) return not_supported;
  extents->extents.assign(given, given + rank);
  return success;
}
int cudnnSetFilterNdDescriptor(Extents* extents, int type, int format, int rank, const int* given) {
  if (type != 0 || format != 0 || rank < 4) return bad_parameter;
  extents->extents.assign(given, given + rank);
  return success;
}
int cudnnSetConvolutionNdDescriptor(Convolution* convolution, int rank, const int* padding, const int* strides,
                                    const int* dilation, int mode, int type) {
  if (rank < 2 || mode != 1 || type != 0) return bad_parameter;
  convolution->padding.assign(padding, padding + rank);
  convolution->strides.assign(strides, strides + rank);
  convolution->dilation.assign(dilation, dilation + rank);
  return success;
}
int cudnnSetConvolutionGroupCount(Convolution* convolution, int groups) { convolution->groups = groups; return success; }
int cudnnSetConvolutionMathType(Convolution* convolution, int math) { convolution->math = math; return success; }

// The first guess takes workspace, or would add in any order.
int cudnnGetConvolutionForwardAlgorithm_v7(void*, Extents*, Extents*, Convolution* convolution, Extents*, int, int* found,
                                           Performance* best) {
  return algorithms(convolution, found, best, 1, deterministic, 0);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void*, Extents*, Extents*, Convolution* convolution, Extents*, int,
                                                int* found, Performance* best) {
  return algorithms(convolution, found, best, 0, !deterministic, 1);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void*, Extents*, Extents*, Convolution* convolution, Extents*, int,
                                                  int* found, Performance* best) {
  return algorithms(convolution, found, best, 3, !deterministic, 1);
}
int cudnnGetConvolutionForwardWorkspaceSize(void*, Extents*, Extents*, Convolution*, Extents*, int algorithm, size_t* size) {
  *size = algorithm == 1 ? forward_workspace_bytes : 0;
  return success;
}
int cudnnGetConvolutionBackwardDataWorkspaceSize(void*, Extents*, Extents*, Convolution*, Extents*, int, size_t* size) {
  *size = 0;
  return success;
}
int cudnnGetConvolutionBackwardFilterWorkspaceSize(void*, Extents*, Extents*, Convolution*, Extents*, int, size_t* size) {
  *size = 0;
  return success;
}

int cudnnConvolutionForward(void*, const float* one, Extents* data, const void* x, Extents* weight, const void* w,
                            Convolution* convolution, int algorithm, void* workspace, size_t workspace_bytes,
                            const float* zero, Extents* output, void* y) {
  const float *xs = fake_content<float>(x), *ws = fake_content<float>(w);
  if (*one != 1 || *zero != 0 || !xs || !ws) return bad_parameter;
  if (workspace_bytes < (algorithm == 1 ? forward_workspace_bytes : 0)) return bad_parameter;
  return launch(*output, y, workspace, workspace_bytes, [=, data = *data, weight = *weight, output = *output, convolution = *convolution](std::vector<double>& sums) {
    for_each_product(data, weight, output, convolution,
                     [&](size_t d, size_t v, size_t o) { sums[o] += double(xs[d]) * ws[v]; });
  });
}
int cudnnConvolutionBackwardData(void*, const float* one, Extents* weight, const void* w, Extents* output, const void* dy,
                                 Convolution* convolution, int algorithm, void* workspace, size_t workspace_bytes,
                                 const float* zero, Extents* data, void* dx) {
  const float *gs = fake_content<float>(dy), *ws = fake_content<float>(w);
  if (*one != 1 || *zero != 0 || !gs || !ws || algorithm != 1) return bad_parameter;
  return launch(*data, dx, workspace, workspace_bytes, [=, data = *data, weight = *weight, output = *output, convolution = *convolution](std::vector<double>& sums) {
    for_each_product(data, weight, output, convolution,
                     [&](size_t d, size_t v, size_t o) { sums[d] += double(gs[o]) * ws[v]; });
  });
}
int cudnnConvolutionBackwardFilter(void*, const float* one, Extents* data, const void* x, Extents* output, const void* dy,
                                   Convolution* convolution, int algorithm, void* workspace, size_t workspace_bytes,
                                   const float* zero, Extents* weight, void* dw) {
  const float *xs = fake_content<float>(x), *gs = fake_content<float>(dy);
  if (*one != 1 || *zero != 0 || !xs || !gs || algorithm != 1) return bad_parameter;
  return launch(*weight, dw, workspace, workspace_bytes, [=, data = *data, weight = *weight, output = *output, convolution = *convolution](std::vector<double>& sums) {
    for_each_product(data, weight, output, convolution,
                     [&](size_t d, size_t v, size_t o) { sums[v] += double(xs[d]) * gs[o]; });
  });
}

}  // extern "C"
