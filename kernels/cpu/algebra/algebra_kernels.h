// SPDX-License-Identifier: Apache-2.0
// Kernels behind AlgebraOps. One table per instruction set.
#pragma once

#include <cstdint>

namespace kvgauge {

// Rows of the second matrix go into panels of this many, transposed: [d, kPanel].
inline constexpr int64_t kPanel = 32;
inline constexpr int64_t kTile = 4;
// Columns of doubles that are turned and mirrored together; one of their rows is that long.
inline constexpr int64_t kColumns = 32;

struct AlgebraKernels {
  // For `rows` <= kTile rows of a, [rows, d], against a panel; out: [rows, kPanel]. Every element
  // is one chain over d in order, whatever the tile around it.
  void (*dot_panel)(const float* a, int64_t rows, int64_t d, const float* panel, float* out);
  void (*squared_distance_panel)(const float* a, int64_t rows, int64_t d, const float* panel,
                                 float* out);
  // x: one row; d a power of two.
  void (*hadamard)(float* x, int64_t d);
  // sums += x.
  void (*add)(const float* x, int64_t n, double* sums);

  double (*dot)(const double* x, const double* y, int64_t n);
  // y += scale * x.
  void (*axpy)(double scale, const double* x, int64_t n, double* y);
  // x . h, and image += scale * x.
  double (*dot_and_add)(const double* x, const double* h, double scale, int64_t n, double* image);
  // rows[r] -= sum over i of p[i][r] q[i], for kTile rows that are `stride` apart. p, q: [count],
  // vectors of kTile and n numbers that are `stride` apart, too.
  void (*subtract_products)(const double* p, const double* q, int64_t count, int64_t stride,
                            int64_t n, double* rows);
  // (x, y) = (c x - s y, s x + c y).
  void (*rotate)(double c, double s, int64_t n, double* x, double* y);
  // `count` times, with rows x and y that follow each other and a cosine and a sine for each:
  // (x, y) = (c x + s y, c y - s x), where y is x of the next one. rows: [count + 1, kColumns]
  void (*turn_rows)(const double* cosines_sines, int64_t count, double* rows);
  // rows -= share h (h^T rows). h: [count]; rows: [count, kColumns]
  void (*mirror_rows)(const double* h, double share, int64_t count, double* rows);
};

const AlgebraKernels& PortableAlgebraKernels();
const AlgebraKernels& Avx2AlgebraKernels();
const AlgebraKernels& Avx512AlgebraKernels();

}  // namespace kvgauge
