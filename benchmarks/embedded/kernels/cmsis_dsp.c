/* A dense layer by the matrix functions of CMSIS-DSP. */
#include "arm_math.h"

enum { M = XE_M, K = XE_K, N = XE_N };

static float turned[64 * 64];

static void product(int rows, int depth, int columns, const float *a, const float *b, float *c) {
  arm_matrix_instance_f32 left, right, result;
  arm_mat_init_f32(&left, (uint16_t)rows, (uint16_t)depth, (float *)a);
  arm_mat_init_f32(&right, (uint16_t)depth, (uint16_t)columns, (float *)b);
  arm_mat_init_f32(&result, (uint16_t)rows, (uint16_t)columns, c);
  arm_mat_mult_f32(&left, &right, &result);
}

static void turn(int rows, int columns, const float *a) {
  arm_matrix_instance_f32 from, to;
  arm_mat_init_f32(&from, (uint16_t)rows, (uint16_t)columns, (float *)a);
  arm_mat_init_f32(&to, (uint16_t)columns, (uint16_t)rows, turned);
  arm_mat_trans_f32(&from, &to);
}

void hand_forward(const float *x, const float *w, const float *bias, float *y) {
  turn(N, K, w);
  product(M, K, N, x, turned, y);
  for (int m = 0; m < M; m++) arm_add_f32(y + m * N, (float *)bias, y + m * N, N);
}

void hand_weight_gradient(const float *x, const float *dy, float *dw) {
  turn(M, N, dy);
  product(N, M, K, turned, x, dw);
}

void hand_data_gradient(const float *dy, const float *w, float *dx) { product(M, N, K, dy, w, dx); }
