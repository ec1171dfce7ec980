// SPDX-License-Identifier: Apache-2.0
// From sums to the output of a PanelProduct. In an unnamed namespace for the reason given in
// panel.h.
#pragma once

#include "cpu/linear/linear_kernels.h"
#include "cpu/linear/panel.h"

namespace kvgauge {
namespace {

// sums: [rows][64], contiguous.
template <class V>
inline void Finish(const PanelProduct& p, const float* sums) {
  const typename V::F alpha = V::Set(p.alpha);
  const int64_t whole = p.columns / V::kLanes * V::kLanes;
  for (int64_t r = 0; r < p.rows; ++r) {
    const float* sum = sums + r * kPanelColumns;
    float* out = p.out + r * p.out_stride;
    for (int64_t c = 0; c < whole; c += V::kLanes) {
      typename V::F v = V::Mul(alpha, V::Load(sum + c));
      if (p.bias != nullptr) v = V::Add(v, V::Load(p.bias + c));
      if (p.add) v = V::Add(V::Load(out + c), v);
      V::Store(out + c, v);
    }
    for (int64_t c = whole; c < p.columns; ++c) {
      float v = p.alpha * sum[c];
      if (p.bias != nullptr) v += p.bias[c];
      out[c] = p.add ? out[c] + v : v;
    }
  }
}

}  // namespace
}  // namespace kvgauge
