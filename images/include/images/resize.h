// SPDX-License-Identifier: Apache-2.0
// Geometry of pictures, bit for bit as Pillow 12 computes it: filters on 8-bit channels, weights in
// fixed point, one pass an axis with 8-bit numbers in between.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/image.h"
#include "core/result.h"

namespace kvgauge {

enum class ResizeFilter { kNearest, kBilinear, kBicubic, kLanczos, kBox, kHamming };

std::string_view NameOf(ResizeFilter filter);
// Pillow's numbers, which preprocessor_config.json files hold as "resample": 0 nearest, 1 Lanczos,
// 2 bilinear, 3 bicubic, 4 box, 5 Hamming.
Result<ResizeFilter> ResizeFilterOf(int pillow_number);

// Which axis is resized first. The second pass reads numbers that the first has rounded, so the
// orders differ by up to some 20 levels.
enum class PassOrder {
  kHorizontalFirst,  // Pillow up to 12, and every published result
  kPillow13,         // vertical first where much more height than width goes
};

// Precondition: image, width and height are not empty.
Image Resize(const Image& image, int32_t width, int32_t height, ResizeFilter filter,
             PassOrder order = PassOrder::kHorizontalFirst);

// The rectangle [left, left + width) x [top, top + height); black where it leaves the image.
Image Crop(const Image& image, int32_t left, int32_t top, int32_t width, int32_t height);

// A canvas of `colour` with the image at (left, top). Precondition: it fits.
Image Pad(const Image& image, int32_t left, int32_t top, int32_t width, int32_t height,
          std::array<uint8_t, 3> colour);

}  // namespace kvgauge
