// SPDX-License-Identifier: Apache-2.0
#include <webp/decode.h>

#include "core/strings.h"
#include "src/decoders.h"

namespace kvgauge {
namespace {

const uint8_t* Data(std::string_view bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

Result<ImageSize> WebPSize(std::string_view bytes, const ImageLimits& limits) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(Data(bytes), bytes.size(), &features);
  if (status != VP8_STATUS_OK) {
    return BadInput(StrCat("the WebP is corrupt: its header does not parse (status ",
                           static_cast<int>(status), ")"));
  }
  if (features.has_animation != 0) {
    return BadInput("the WebP is animated; give its frames as pictures of their own");
  }
  KVG_TRY(CheckImageSize(features.width, features.height, limits));
  return ImageSize{features.width, features.height};
}

Result<Image> DecodeWebP(std::string_view bytes, const ImageLimits& limits) {
  KVG_ASSIGN(const ImageSize size, WebPSize(bytes, limits));
  Image image = Image::OfSize(size.width, size.height);
  const auto stride = static_cast<int>(image.RowBytes());
  if (WebPDecodeRGBInto(Data(bytes), bytes.size(), image.rgb.data(), image.rgb.size(), stride) ==
      nullptr) {
    return BadInput("the WebP is corrupt or truncated: its pixels do not decode");
  }
  return image;
}

}  // namespace

const ImageDecoder kWebPDecoder = {.size = WebPSize, .decode = DecodeWebP};

}  // namespace kvgauge
