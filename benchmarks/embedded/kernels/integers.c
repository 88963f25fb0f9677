/* Runs generated convolutions of int8 and those of CMSIS-NN on the same numbers; prints, for each layer, the
   instructions of both and their largest difference. CMSIS-NN rounds halves in another way. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "arm_nnfunctions.h"

typedef struct {
  void (*generated)(void);
  int in_channels, out_channels, is_depthwise, height, width, kernel, stride, padding, out_height, out_width;
} layer;

#include "integers.h"

uint64_t xe_instructions(void);

static int8_t data_last[DATA], weight_last[WEIGHT], expected[RESULT];
static int32_t expected_bias[CHANNELS], multiplier[CHANNELS], shift[CHANNELS];
static _Alignas(16) uint8_t buffer[1 << 18];

static int random_byte(void) {
  static uint32_t random = 1;
  random = random * 1664525u + 1013904223u;
  return (int)(random >> 24) - 128;
}

/* Zero points are -3 of the data and -5 of the result. */
static void prepare(const layer *l) {
  int area = l->height * l->width, window = l->kernel * l->kernel;
  int inner = l->is_depthwise ? 1 : l->in_channels;
  int places = 0;
  while (1 << 2 * places < inner * window) places++;
  for (int c = 0; c < l->in_channels; c++)
    for (int p = 0; p < area; p++) data_last[p * l->in_channels + c] = data[c * area + p] = (int8_t)random_byte();
  for (int o = 0; o < l->out_channels; o++) {
    int32_t sum = 0;
    for (int c = 0; c < inner; c++)
      for (int p = 0; p < window; p++) {
        int8_t value = (int8_t)random_byte();
        weight[(o * inner + c) * window + p] = value;
        weight_last[l->is_depthwise ? p * l->out_channels + o : (o * window + p) * inner + c] = value;
        sum += value;
      }
    expected_bias[o] = 50 * random_byte();
    bias[o] = expected_bias[o] + 3 * sum;
    multiplier[o] = 3 << 29;
    shift[o] = -6 - places;
    factor[o] = ldexpf(0.75f, shift[o]);
  }
}

static int by_cmsis(const layer *l) {
  cmsis_nn_context context = {buffer, sizeof buffer};
  cmsis_nn_per_channel_quant_params scales = {multiplier, shift};
  cmsis_nn_dims in = {1, l->height, l->width, l->in_channels}, biases = {1, 1, 1, l->out_channels};
  cmsis_nn_dims out = {1, l->out_height, l->out_width, l->out_channels};
  cmsis_nn_tile stride = {l->stride, l->stride}, padding = {l->padding, l->padding}, dilation = {1, 1};
  cmsis_nn_activation bounds = {-128, 127};
  if (l->is_depthwise) {
    cmsis_nn_dims filter = {1, l->kernel, l->kernel, l->out_channels};
    cmsis_nn_dw_conv_params how = {3, -5, 1, stride, padding, dilation, bounds};
    return arm_depthwise_conv_wrapper_s8(&context, &how, &scales, &in, data_last, &filter, weight_last, &biases, expected_bias, &out, expected);
  }
  cmsis_nn_dims filter = {l->out_channels, l->kernel, l->kernel, l->in_channels};
  cmsis_nn_conv_params how = {3, -5, stride, padding, dilation, bounds};
  return arm_convolve_wrapper_s8(&context, &how, &scales, &in, data_last, &filter, weight_last, &biases, expected_bias, &out, expected);
}

int main(void) {
  for (unsigned k = 0; k < sizeof layers / sizeof *layers; k++) {
    const layer *l = &layers[k];
    prepare(l);
    uint64_t start = xe_instructions();
    l->generated();
    uint64_t generated = xe_instructions() - start;
    start = xe_instructions();
    if (by_cmsis(l)) return 1;
    uint64_t theirs = xe_instructions() - start;
    int area = l->out_height * l->out_width, difference = 0;
    for (int o = 0; o < l->out_channels; o++)
      for (int p = 0; p < area; p++) {
        int found = abs(result[o * area + p] - expected[p * l->out_channels + o]);
        if (found > difference) difference = found;
      }
    printf("%lu %lu %d\n", (unsigned long)generated, (unsigned long)theirs, difference);
  }
  return 0;
}
