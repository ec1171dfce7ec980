// SPDX-License-Identifier: Apache-2.0
// Thin stages for models that have an encoder beside the decoder: the decoder reads the end of a
// prompt alone, and the encoder reads what comes before, in chunks that do not see each other. The
// decoder's layers attend to the rows that the encoder makes, behind their own attention.
//
// The decoder's rows stand next to each other for rotation, as a prompt of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "core/check.h"
#include "methods/thin.h"

namespace kvgauge {

// Rows of a prompt that the encoder reads; the decoder reads those from `end` on. None: both are 0.
struct EncodedRange {
  int64_t begin = 0, end = 0;
};

class EncodingThin : public Thin {
 public:
  std::vector<int64_t> Layers(const ModelShape&) const final { return {0}; }
  bool reads_again() const final { return true; }
  bool closes_up() const final { return true; }
  Tensor Choose(LayerView&) const final {
    KVG_CHECK(false, "such a stage looks at no layer");
    return {};
  }

  // The most tokens of a chunk, where a stage says nothing else: those that models are trained for.
  static constexpr int64_t kChunkTokens = 256;
  virtual int64_t chunk_tokens() const = 0;
  // The decoder reads the last row at least.
  virtual EncodedRange Encoded(int64_t prompt_tokens) const = 0;
};

}  // namespace kvgauge
