// SPDX-License-Identifier: Apache-2.0
// A preprocessor_config.json that is accepted makes pixels of any small picture.
#include <algorithm>

#include "core/check.h"
#include "core/json.h"
#include "images/preprocess.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvgauge;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Json> config = ParseJson(text, "fuzz");
  if (!config.ok()) return 0;
  const Result<Preprocessor> preprocessor = ReadPreprocessor(*config, "fuzz");
  if (!preprocessor.ok()) {
    KVG_CHECK(preprocessor.error().message.starts_with("fuzz"), "a message without its origin");
    return 0;
  }
  // Large canvases are right and slow; the search is for faults in the geometry.
  const Preprocessor& p = *preprocessor;
  const int32_t most = std::max({p.height, p.width, p.shortest_edge, p.longest_edge, p.crop_height,
                                 p.crop_width, p.patch * p.merge, p.most_tiles * 8});
  if (most > 256 || p.most_pixels > 1 << 18 || p.frames > 8) return 0;
  for (const auto& [height, width] : p.canvases) {
    if (std::max(height, width) > 1024) return 0;
  }
  Image image =
      Image::OfSize(1 + static_cast<int32_t>(size % 37), 1 + static_cast<int32_t>(size % 53));
  const Result<PixelValues> pixels = Preprocess(p, image, 1 + static_cast<int64_t>(size % 2));
  KVG_CHECK(!pixels.ok() || !pixels->values.empty(), "some pixels");
  return 0;
}
