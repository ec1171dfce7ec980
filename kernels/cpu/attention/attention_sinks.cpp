// SPDX-License-Identifier: Apache-2.0
// The share of logits without a value, given to rows after they were attended: no row and no tile
// of attention knows of them.
#include <algorithm>
#include <cmath>

#include "cpu/attention/attention_schedule.h"
#include "cpu/split_work.h"

namespace kvgauge::attention_schedule {

void CpuAttention::DoAddSinks(const Tensor& sinks, Tensor out, Tensor log_sum_exp, Tensor entropy) {
  const int64_t rows = out.shape[0], heads = out.shape[1], dim = out.shape[2];
  const int workers = omp_in_parallel() != 0 ? 1 : Workers(rows * heads * dim);
  PiecesFor(workers, rows, [&](int64_t i) {
    for (int64_t h = 0; h < heads; ++h) {
      float& sum = log_sum_exp.f32()[h * log_sum_exp.stride[0] + i];
      const float before = sum, sink = sinks.f32()[h], top = std::max(before, sink);
      const float after = top + std::log(std::exp(before - top) + std::exp(sink - top));
      const float kept = std::exp(before - after);
      float* const row = out.f32() + i * out.stride[0] + h * out.stride[1];
      for (int64_t k = 0; k < dim; ++k) row[k] *= kept;
      sum = after;
      if (entropy.empty()) continue;
      float& spread = entropy.f32()[h * entropy.stride[0] + i];
      const float taken = std::exp(sink - after);
      float both = taken > 0 ? taken * (after - sink) : 0.0f;
      if (kept > 0) both += kept * (spread + (after - before));
      spread = both;
    }
  });
}

}  // namespace kvgauge::attention_schedule
