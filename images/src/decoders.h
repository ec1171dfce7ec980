// SPDX-License-Identifier: Apache-2.0
// One decoder a format. Each reads the size first, holds it against the limits, then allocates.
#pragma once

#include <string_view>
#include <vector>

#include "images/decode.h"

namespace kvgauge {

// Sides and pixels within the limits and above zero.
Status CheckImageSize(int64_t width, int64_t height, const ImageLimits& limits);

// A decoder's two questions. Messages lack the picture's name, which DecodeImage puts in front.
struct ImageDecoder {
  Result<ImageSize> (*size)(std::string_view bytes, const ImageLimits& limits);
  Result<Image> (*decode)(std::string_view bytes, const ImageLimits& limits);
};

extern const ImageDecoder kJpegDecoder;
extern const ImageDecoder kPngDecoder;
extern const ImageDecoder kWebPDecoder;
extern const ImageDecoder kGifDecoder;
extern const ImageDecoder kPpmDecoder;

Result<std::vector<Image>> DecodeGif(std::string_view bytes, const ImageLimits& limits,
                                     int32_t most_frames);

}  // namespace kvgauge
