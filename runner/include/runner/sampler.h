// SPDX-License-Identifier: Apache-2.0
// Draws the next token from logits. Model::BestTokens gives the likeliest one.
#pragma once

#include <cstdint>
#include <span>

#include "core/rng.h"

namespace kvgauge {

struct SamplingOptions {
  float temperature = 0.0f;  // 0: greedy
  float top_p = 1.0f;        // nucleus: the smallest set of likeliest tokens reaching this mass
  uint64_t seed = 0;

  bool greedy() const { return temperature <= 0.0f; }
};

class Sampler {
 public:
  // `stream` distinguishes sequences that share a seed. Ids from `valid_vocab` on are padding rows
  // of the head and are never chosen; 0 means all are valid.
  Sampler(const SamplingOptions& options, uint64_t stream, int64_t valid_vocab);

  // Precondition: not greedy.
  int32_t Next(std::span<const float> logits);

 private:
  SamplingOptions options_;
  int64_t valid_vocab_;
  Rng rng_;
};

}  // namespace kvgauge
