// SPDX-License-Identifier: Apache-2.0
// Products that become scores, as a template over a vector type; see attention_tiles.h.
#pragma once

#include <limits>

#include "cpu/attention/attention_kernels.h"
#include "cpu/isa/vector_math.h"

namespace kvgauge {

// The one place that turns the product of column j into a score. kExtras: there are some.
template <class V, bool kSoftcap, bool kExtras>
struct ScoreRule {
  using F = typename V::F;
  F scale, cap;
  ScoreExtras extras;
  template <class Args>
  explicit ScoreRule(const Args& args)
      : scale(V::Set(kSoftcap ? args.scale / args.softcap : args.scale)),
        cap(V::Set(args.softcap)),
        extras(args.extras) {}
  [[gnu::always_inline]] F operator()(F score, int j) const {
    if constexpr (kExtras) {
      if (extras.key_scale != nullptr) score = V::Mul(score, V::Load(extras.key_scale + j));
    }
    score = V::Mul(score, scale);
    if constexpr (kSoftcap) score = V::Mul(cap, Tanh<V>(score));
    if constexpr (kExtras) {
      if (extras.bias != nullptr) score = V::Add(score, V::Load(extras.bias + j));
      if (extras.read_bias != nullptr) score = V::Add(score, V::Load(extras.read_bias + j));
      score = Read(j, score, V::Set(-std::numeric_limits<float>::infinity()));
    }
    return score;
  }
  // `value` in columns that take part.
  [[gnu::always_inline]] F Read(int j, F value, F otherwise) const {
    if constexpr (kExtras) {
      if (extras.read != nullptr) {
        const uint64_t word = extras.read[j / kPanelWidth] >> (j % kPanelWidth);
        return V::WhereBits(static_cast<uint32_t>(word), value, otherwise);
      }
    }
    return value;
  }
};

}  // namespace kvgauge
