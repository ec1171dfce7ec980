// SPDX-License-Identifier: Apache-2.0
// Levels of a codebook, from the weighted frequencies of numbers.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace kvgauge {

// Weighted numbers in [-1, 1], to the width of a bin.
class LevelHistogram {
 public:
  void Add(double x, double weight);  // clamped to the ends
  // The `count` ascending levels with the least weighted sum of squared distances to the nearest
  // level: the global minimum. Evenly spaced if nothing was added.
  std::vector<float> Best(int64_t count) const;

 private:
  static constexpr int64_t kBins = 1024;
  std::array<double, kBins> weight_ = {}, sum_ = {};  // of weights; of weights times numbers
};

}  // namespace kvgauge
