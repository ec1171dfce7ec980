// SPDX-License-Identifier: Apache-2.0
// Binary PPM (P6) and PGM (P5) of 8 bits: what tests and generators write.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/strings.h"
#include "images/encode.h"
#include "src/decoders.h"

namespace kvgauge {
namespace {

struct PpmHeader {
  ImageSize size;
  int channels = 3;
  std::string_view pixels;
};

// The next number of the header; comments run from # to the end of their line.
Result<int64_t> NextNumber(std::string_view& rest, std::string_view what) {
  const auto is_blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!rest.empty() && (is_blank(rest.front()) || rest.front() == '#')) {
    rest.remove_prefix(rest.front() == '#' ? std::min(rest.find('\n'), rest.size()) : 1);
  }
  int64_t number = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || number < 0) {
    return BadInput(StrCat("the PPM is corrupt: its header has no ", what));
  }
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  return number;
}

Result<PpmHeader> ReadPpmHeader(std::string_view bytes, const ImageLimits& limits) {
  PpmHeader header;
  header.channels = bytes[1] == '6' ? 3 : 1;
  std::string_view rest = bytes.substr(2);
  KVG_ASSIGN(const int64_t width, NextNumber(rest, "width"));
  KVG_ASSIGN(const int64_t height, NextNumber(rest, "height"));
  KVG_ASSIGN(const int64_t most, NextNumber(rest, "largest value"));
  if (most != 255) {
    return BadInput(StrCat("the PPM's largest value is ", most, "; only 255 is read"));
  }
  KVG_TRY(CheckImageSize(width, height, limits));
  header.size = {static_cast<int32_t>(width), static_cast<int32_t>(height)};
  header.pixels = rest.empty() ? rest : rest.substr(1);  // one blank ends the header
  const auto wanted = static_cast<size_t>(width * height * header.channels);
  if (header.pixels.size() < wanted) {
    return BadInput(
        StrCat("the PPM is truncated: ", header.pixels.size(), " of ", wanted, " bytes of pixels"));
  }
  return header;
}

Result<ImageSize> PpmSize(std::string_view bytes, const ImageLimits& limits) {
  KVG_ASSIGN(const PpmHeader header, ReadPpmHeader(bytes, limits));
  return header.size;
}

Result<Image> DecodePpm(std::string_view bytes, const ImageLimits& limits) {
  KVG_ASSIGN(const PpmHeader header, ReadPpmHeader(bytes, limits));
  Image image = Image::OfSize(header.size.width, header.size.height);
  if (header.channels == 3) {
    std::memcpy(image.rgb.data(), header.pixels.data(), image.rgb.size());
  } else {
    for (size_t i = 0; i < image.rgb.size(); ++i) {
      image.rgb[i] = static_cast<uint8_t>(header.pixels[i / 3]);
    }
  }
  return image;
}

}  // namespace

const ImageDecoder kPpmDecoder = {.size = PpmSize, .decode = DecodePpm};

std::string EncodePpm(const Image& image) {
  std::string file = StrCat("P6\n", image.width, " ", image.height, "\n255\n");
  file.append(image.rgb.begin(), image.rgb.end());
  return file;
}

}  // namespace kvgauge
