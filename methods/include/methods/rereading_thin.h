// SPDX-License-Identifier: Apache-2.0
// Stages that have the model read rows of a prompt by themselves before they say which go on.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "methods/thin.h"

namespace kvgauge {

class RowReader {
 public:
  virtual ~RowReader() = default;
  // Rows of the prompt, of text and in that order, are read as a prompt of their own, and the
  // tokens of `behind` at its end. For each of all these from `first` on but the last: minus the
  // natural log of the chance that the model gave what stands behind it, [count - 1 - first]. What
  // the call before read is not read again as far as both begin alike, up to `first`.
  virtual Result<std::vector<float>> Surprise(std::span<const int32_t> rows, int64_t first,
                                              std::span<const int32_t> behind) = 0;
  // Another reader of the same prompt, which forgets nothing of what this one reads.
  virtual RowReader& Beside() = 0;
  // The ids of a text, without special tokens. The stage declared Needs::encoder.
  virtual Result<std::vector<int32_t>> Encode(std::string_view text) = 0;
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
  // Whether it uses RowReader::Beside, which holds a cache of its own.
  virtual bool reads_beside() const { return false; }
};

// Refuses positions of their own for the tokens that stay, on a model that does not rotate.
Status CheckOwnPositions(const ModelShape& shape);

// The largest number of those that leave, where about `share` of them stay: what tells more than it
// stays. told: not empty.
float LastToLeave(std::vector<float> told, double share);

}  // namespace kvgauge
