// SPDX-License-Identifier: Apache-2.0
// Encoded pictures to pixels. The pixels are those that Pillow's Image.open(...).convert("RGB")
// gives, bit for bit, since that is what reference implementations feed their models: alpha is
// dropped, not blended; orientation tags and colour profiles are ignored.
//
// Bytes are foreign: sizes are held against the limits before anything is allocated, and whatever
// is wrong with a picture (truncated, corrupt, too large, another format) is an Error that names
// it. Functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/image.h"
#include "core/result.h"

namespace kvgauge {

enum class ImageFormat { kUnknown, kJpeg, kPng, kWebP, kGif, kPpm, kBmp, kTiff, kHeif, kText };

std::string_view NameOf(ImageFormat format);  // "JPEG", "PNG", ...

// The format according to the first bytes; the file's name does not matter.
ImageFormat SniffImageFormat(std::string_view bytes);

struct ImageLimits {
  int64_t pixels = 178'956'970;  // where Pillow warns of a decompression bomb
  int32_t side = 65'500;         // what JPEG can hold
  int32_t scans = 500;           // of a progressive JPEG: each costs a pass over the picture
  int32_t frames = 1'000;        // of an animated GIF
};

struct ImageSize {
  int32_t width = 0, height = 0;
};

// Size of the picture, from its header alone.
Result<ImageSize> ReadImageSize(std::string_view bytes, std::string_view name,
                                const ImageLimits& limits = {});

// JPEG (grey, RGB, CMYK), PNG (not 16-bit grey), WebP (not animated), PPM and PGM (8 bits), GIF
// (its first frame). `name` stands in messages: a path, or where the bytes were found.
Result<Image> DecodeImage(std::string_view bytes, std::string_view name,
                          const ImageLimits& limits = {});

// All frames of an animated GIF, each as the whole canvas that a viewer shows at that time. A GIF
// that is not animated has one. Pixels that no frame has painted are black.
Result<std::vector<Image>> DecodeGifFrames(std::string_view bytes, std::string_view name,
                                           const ImageLimits& limits = {});

}  // namespace kvgauge
