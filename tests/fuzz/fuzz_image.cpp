// SPDX-License-Identifier: Apache-2.0
// Any bytes are a picture within the limits or one error that names them.
#include "core/check.h"
#include "images/decode.h"
#include "images/resize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvgauge;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const ImageLimits limits = {.pixels = 1 << 16, .side = 1024, .scans = 20, .frames = 8};
  const Result<ImageSize> header = ReadImageSize(bytes, "fuzz", limits);
  const Result<Image> image = DecodeImage(bytes, "fuzz", limits);
  if (!image.ok()) {
    KVG_CHECK(image.error().message.starts_with("fuzz"), "a message without its origin");
  } else {
    KVG_CHECK(header.ok() && header->width == image->width && header->height == image->height,
              "the header's size is the picture's");
    KVG_CHECK(image->rgb.size() ==
                  3 * static_cast<size_t>(image->width) * static_cast<size_t>(image->height),
              "three bytes a pixel");
    KVG_CHECK(int64_t{image->width} * image->height <= limits.pixels, "within the limits");
    const Image small =
        Resize(*image, 1 + image->width / 3, 1 + image->height / 2, ResizeFilter::kBicubic);
    KVG_CHECK(small.width == 1 + image->width / 3, "as asked");
  }
  if (SniffImageFormat(bytes) == ImageFormat::kGif) {
    const Result<std::vector<Image>> frames = DecodeGifFrames(bytes, "fuzz", limits);
    KVG_CHECK(!frames.ok() || (!frames->empty() && frames->size() <= 8), "some frames, not many");
  }
  return 0;
}
