// SPDX-License-Identifier: Apache-2.0
// Stages that have the model read rows of a prompt by themselves before they say which go on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/check.h"
#include "methods/thin.h"

namespace kvgauge {

class RowReader {
 public:
  virtual ~RowReader() = default;
  // Rows of the prompt, ascending and of text, are read as a prompt of their own. For each of them
  // from `first` on but the last: minus the natural log of the chance that the model gave the row
  // behind it. [rows - 1 - first]. What the call before read is not read again as far as both begin
  // alike, up to `first`.
  virtual Result<std::vector<float>> Surprise(std::span<const int32_t> rows, int64_t first) = 0;
};

// Asked behind the first layer; what it leaves is read from there again.
class RereadingThin : public Thin {
 public:
  std::vector<int64_t> Layers(const ModelShape&) const final { return {1}; }
  bool reads_again() const final { return true; }
  Tensor Choose(LayerView&) const final {
    KVG_CHECK(false, "such a stage chooses with a reader");
    return {};
  }
  // As Choose.
  virtual Result<Tensor> ChooseBy(LayerView& view, RowReader& reader) const = 0;
};

}  // namespace kvgauge
