// SPDX-License-Identifier: Apache-2.0
// Pixels to files that other programs open.
#pragma once

#include <string>

#include "core/image.h"
#include "core/result.h"

namespace kvgauge {

// `level`: zlib's, 0 (stored) to 9 (smallest).
Result<std::string> EncodePng(const Image& image, int level = 6);
// `quality`: 1 to 100.
Result<std::string> EncodeJpeg(const Image& image, int quality = 75);
std::string EncodePpm(const Image& image);

}  // namespace kvgauge
