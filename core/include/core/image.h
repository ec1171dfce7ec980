// SPDX-License-Identifier: Apache-2.0
// A picture in memory. It lies in core because rooms that must not see decoders draw pictures
// (datasets) and look at them (runner).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvgauge {

// Rows top down, pixels left to right, three bytes each: red, green, blue.
// Invariant: rgb.size() == 3 * width * height.
struct Image {
  int32_t width = 0, height = 0;
  std::vector<uint8_t> rgb;

  static Image OfSize(int32_t width, int32_t height) {
    return {width, height,
            std::vector<uint8_t>(static_cast<size_t>(width) * static_cast<size_t>(height) * 3)};
  }
  uint8_t* Row(int32_t y) { return rgb.data() + static_cast<size_t>(y) * RowBytes(); }
  const uint8_t* Row(int32_t y) const { return rgb.data() + static_cast<size_t>(y) * RowBytes(); }
  size_t RowBytes() const { return static_cast<size_t>(width) * 3; }

  bool operator==(const Image&) const = default;
};

}  // namespace kvgauge
