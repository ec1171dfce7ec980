// SPDX-License-Identifier: Apache-2.0
// Levels of a codebook from how often numbers occur and how much each matters.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace kvgauge {

// Weighted numbers in [-1, 1], to the width of a bin.
class LevelHistogram {
 public:
  void Add(double x, double weight);  // beyond the ends counts as an end
  // The `count` levels, ascending, whose nearest is least far from what was added: the least
  // weighted sum of squares there is, not a local one. Nothing added: evenly spaced.
  std::vector<float> Best(int64_t count) const;

 private:
  static constexpr int64_t kBins = 1024;
  std::array<double, kBins> weight_ = {}, sum_ = {};  // of weights; of weights times numbers
};

}  // namespace kvgauge
