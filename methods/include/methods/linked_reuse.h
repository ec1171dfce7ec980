// SPDX-License-Identifier: Apache-2.0
// Reuse stages for models that were trained to find tokens of their own between texts. These tokens
// are always computed over all that stands before them, so that texts that were read by themselves
// come together there.
#pragma once

#include <cstdint>
#include <vector>

#include "methods/reuse.h"

namespace kvgauge {

// Its texts are kChunks, and it has no checked layer. A prompt of one text gets no such tokens.
class LinkedReuse : public Reuse {
 public:
  // What stands behind a text, before the next one or before the question. Text 0 begins the
  // prompt. Precondition: 1 < texts <= most_texts().
  virtual std::vector<int32_t> Behind(int64_t text, int64_t texts) const = 0;
  // The most texts that the model has tokens for, the prompt's beginning included: 2 or more.
  virtual int64_t most_texts() const = 0;
  // The largest of the ids that Behind gives.
  virtual int32_t largest_id() const = 0;
};

}  // namespace kvgauge
