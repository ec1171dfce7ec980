// SPDX-License-Identifier: Apache-2.0
// Kernels behind StateOps: one row of one head, or one row of a convolution. One table per
// instruction set.
#pragma once

#include <cstdint>

namespace kvgauge {

struct StateKernels {
  // out[c] = bias[c] + sum over i of taps[i * columns + c] * rows[i][c]; bias may be null.
  void (*convolve)(const float* const* rows, const float* taps, const float* bias, int64_t width,
                   int64_t columns, float* out);
  // One row of StateOps::Scan for one head.
  void (*scan)(float* state, const float* query, const float* key, const float* value,
               int64_t key_dim, int64_t value_dim, float decay, float weight, float skip,
               bool corrects, float* out);
  // One row of StateOps::ScanColumns for `count` neighbours of `columns`; all but query and key
  // begin at the first of them. skip may be null.
  void (*scan_columns)(float* state, const float* query, const float* key, const float* value,
                       const float* step, const float* rates, const float* skip, int64_t key_dim,
                       int64_t columns, int64_t count, float* out);
  // n rows of StateOps::ScanAverages for `count` neighbours of `columns`; all pointers are at the
  // first of them, rows of keys, values and out so far apart.
  void (*scan_averages)(float* state, const float* keys, int64_t key_row, const float* values,
                        int64_t value_row, const float* rates, const float* first, int64_t n,
                        int64_t columns, int64_t count, float* out, int64_t out_row);
  // One row of StateOps::ScanDecays for one head; decays: e^rates.
  void (*scan_decays)(float* state, const float* query, const float* key, const float* value,
                      const float* decays, const float* find, const float* write, int64_t key_dim,
                      int64_t value_dim, float* out);
  // One row of StateOps::ScanBonus for one head; decays: e^rates; bonus: or null.
  void (*scan_bonus)(float* state, const float* query, const float* key, const float* value,
                     const float* decays, const float* bonus, int64_t key_dim, int64_t value_dim,
                     float* out);
  // out[i] = e^x[i]
  void (*exponents)(const float* x, int64_t n, float* out);
};

const StateKernels& PortableStateKernels();
const StateKernels& Avx2StateKernels();
const StateKernels& Avx512StateKernels();

}  // namespace kvgauge
