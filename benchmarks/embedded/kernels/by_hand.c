/* Kernels as an engineer writes them for a small core: sums in registers, each operand loaded once for
   four sums, conditions outside of the innermost loops. Shapes are macros, so that GCC knows them. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef XE_DENSE /* x [M, K], w [N, K], y [M, N] */
enum { M = XE_M, K = XE_K, N = XE_N };

void hand_forward(const float *restrict x, const float *restrict w, const float *restrict bias, float *restrict y) {
  for (int m = 0; m < M; m += 2)
    for (int n = 0; n < N; n += 4) {
      const float *a = x + m * K, *b = w + n * K;
      float s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
      for (int k = 0; k < K; k++) {
        float a0 = a[k], a1 = a[K + k], b0 = b[k], b1 = b[K + k], b2 = b[2 * K + k], b3 = b[3 * K + k];
        s00 += a0 * b0; s01 += a0 * b1; s02 += a0 * b2; s03 += a0 * b3;
        s10 += a1 * b0; s11 += a1 * b1; s12 += a1 * b2; s13 += a1 * b3;
      }
      float *to = y + m * N + n;
      const float *add = bias + n;
      to[0] = s00 + add[0]; to[1] = s01 + add[1]; to[2] = s02 + add[2]; to[3] = s03 + add[3];
      to[N] = s10 + add[0]; to[N + 1] = s11 + add[1]; to[N + 2] = s12 + add[2]; to[N + 3] = s13 + add[3];
    }
}

/* dw [N, K] = dy^T x */
void hand_weight_gradient(const float *restrict x, const float *restrict dy, float *restrict dw) {
  for (int n = 0; n < N; n += 2)
    for (int k = 0; k < K; k += 4) {
      float s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
      for (int m = 0; m < M; m++) {
        const float *a = dy + m * N + n, *b = x + m * K + k;
        float a0 = a[0], a1 = a[1], b0 = b[0], b1 = b[1], b2 = b[2], b3 = b[3];
        s00 += a0 * b0; s01 += a0 * b1; s02 += a0 * b2; s03 += a0 * b3;
        s10 += a1 * b0; s11 += a1 * b1; s12 += a1 * b2; s13 += a1 * b3;
      }
      float *to = dw + n * K + k;
      to[0] = s00; to[1] = s01; to[2] = s02; to[3] = s03;
      to[K] = s10; to[K + 1] = s11; to[K + 2] = s12; to[K + 3] = s13;
    }
}

/* dx [M, K] = dy w */
void hand_data_gradient(const float *restrict dy, const float *restrict w, float *restrict dx) {
  for (int m = 0; m < M; m += 2)
    for (int k = 0; k < K; k += 4) {
      const float *a = dy + m * N, *b = w + k;
      float s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
      for (int n = 0; n < N; n++, b += K) {
        float a0 = a[n], a1 = a[N + n], b0 = b[0], b1 = b[1], b2 = b[2], b3 = b[3];
        s00 += a0 * b0; s01 += a0 * b1; s02 += a0 * b2; s03 += a0 * b3;
        s10 += a1 * b0; s11 += a1 * b1; s12 += a1 * b2; s13 += a1 * b3;
      }
      float *to = dx + m * K + k;
      to[0] = s00; to[1] = s01; to[2] = s02; to[3] = s03;
      to[K] = s10; to[K + 1] = s11; to[K + 2] = s12; to[K + 3] = s13;
    }
}
#endif

#ifdef XE_CONV /* x [C, H, H], w [O, C, 3, 3] with padding 1, y [O, H, H] */
enum { C = XE_C, O = XE_O, H = XE_H };

static int least(int a, int b) { return a < b ? a : b; }
static int most(int a, int b) { return a > b ? a : b; }

void hand_forward(const float *restrict x, const float *restrict w, const float *restrict bias, float *restrict y) {
  for (int o = 0; o < O; o += 4)
    for (int i = 0; i < H; i++)
      for (int j = 0; j < H; j++) {
        int u0 = most(0, 1 - i), u1 = least(3, H + 1 - i), v0 = most(0, 1 - j), v1 = least(3, H + 1 - j);
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (int c = 0; c < C; c++)
          for (int u = u0; u < u1; u++) {
            const float *a = x + (c * H + i + u - 1) * H + j - 1, *b = w + (o * C + c) * 9 + u * 3;
            for (int v = v0; v < v1; v++) {
              s0 += a[v] * b[v]; s1 += a[v] * b[v + 9 * C];
              s2 += a[v] * b[v + 18 * C]; s3 += a[v] * b[v + 27 * C];
            }
          }
        float *to = y + (o * H + i) * H + j;
        to[0] = s0 + bias[o]; to[H * H] = s1 + bias[o + 1];
        to[2 * H * H] = s2 + bias[o + 2]; to[3 * H * H] = s3 + bias[o + 3];
      }
}

void hand_weight_gradient(const float *restrict x, const float *restrict dy, float *restrict dw) {
  for (int o = 0; o < O; o += 4)
    for (int c = 0; c < C; c++)
      for (int u = 0; u < 3; u++)
        for (int v = 0; v < 3; v++) {
          float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
          for (int i = most(0, 1 - u); i < least(H, H + 1 - u); i++) {
            const float *a = x + (c * H + i + u - 1) * H + v - 1, *b = dy + (o * H + i) * H;
            for (int j = most(0, 1 - v); j < least(H, H + 1 - v); j++) {
              s0 += a[j] * b[j]; s1 += a[j] * b[j + H * H];
              s2 += a[j] * b[j + 2 * H * H]; s3 += a[j] * b[j + 3 * H * H];
            }
          }
          float *to = dw + ((o * C + c) * 3 + u) * 3 + v;
          to[0] = s0; to[9 * C] = s1; to[18 * C] = s2; to[27 * C] = s3;
        }
}

void hand_data_gradient(const float *restrict dy, const float *restrict w, float *restrict dx) {
  for (int c = 0; c < C; c += 4)
    for (int i = 0; i < H; i++)
      for (int j = 0; j < H; j++) {
        int u0 = most(0, i + 2 - H), u1 = least(3, i + 2), v0 = most(0, j + 2 - H), v1 = least(3, j + 2);
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (int o = 0; o < O; o++)
          for (int u = u0; u < u1; u++) {
            const float *a = dy + (o * H + i + 1 - u) * H + j + 1, *b = w + (o * C + c) * 9 + u * 3;
            for (int v = v0; v < v1; v++) {
              s0 += a[-v] * b[v]; s1 += a[-v] * b[v + 9];
              s2 += a[-v] * b[v + 18]; s3 += a[-v] * b[v + 27];
            }
          }
        float *to = dx + (c * H + i) * H + j;
        to[0] = s0; to[H * H] = s1; to[2 * H * H] = s2; to[3 * H * H] = s3;
      }
}
#endif
