// SPDX-License-Identifier: Apache-2.0
// Pictures as scripts/goldens/make_images draws and hashes them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "core/image.h"
#include "core/sha256.h"

namespace kvgauge {

// Noise on a ramp.
inline Image Drawn(int32_t width, int32_t height, uint32_t seed) {
  Image image = Image::OfSize(width, height);
  for (uint32_t i = 0; i < image.rgb.size(); ++i) {
    uint32_t v = i * 2654435761u + seed * 40503u;
    v ^= v >> 15;
    v *= 2246822519u;
    v ^= v >> 13;
    const auto x = static_cast<int32_t>(i / 3) % width;
    image.rgb[i] =
        static_cast<uint8_t>((v >> 8 & 3) == 0 ? v >> 24 : x * 255 / std::max(width - 1, 1));
  }
  return image;
}

inline std::string HashOf(const Image& image) {
  return Sha256Hex(
      std::string_view(reinterpret_cast<const char*>(image.rgb.data()), image.rgb.size()));
}

}  // namespace kvgauge
