// SPDX-License-Identifier: Apache-2.0
// What a sequence has beside its cache: the states of layers that keep no keys and values. Copies
// share their memory until one of them goes on.
#pragma once

#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/cache/blocks.h"

namespace kvgauge {

class SequenceStates {
 public:
  // `numbers`: of each.
  SequenceStates(std::vector<int64_t> numbers, BlockPool& pool)
      : numbers_(std::move(numbers)), pool_(&pool), blocks_(pool) {}

  int64_t count() const { return static_cast<int64_t>(numbers_.size()); }
  int64_t size_bytes() const {
    return std::accumulate(numbers_.begin(), numbers_.end(), int64_t{0}) * SizeOf(DType::kF32);
  }
  // As allocated: the numbers, and what their blocks have beyond these.
  void AddBytes(int64_t index, KvBytes& bytes) const;
  // All states in memory of their own, zeros where there was none. An error changes no number.
  Status Own();
  // Its numbers as f32. Precondition: Own was called since the last copy.
  Tensor View(int64_t index) const;
  // Whether a pass has written some of them and is not through.
  void SetMidway(bool midway) { midway_ = midway; }
  bool midway() const { return midway_; }

  void Serialize(std::string& out) const;
  // From untrusted bytes, which are taken from the front.
  Status Deserialize(std::string_view& in);

 private:
  int64_t block_bytes(int64_t index) const {
    return numbers_[static_cast<size_t>(index)] * SizeOf(DType::kF32);
  }

  std::vector<int64_t> numbers_;
  BlockPool* pool_;
  BlockList blocks_;  // one for each, or none before the first row
  bool midway_ = false;
};

}  // namespace kvgauge
