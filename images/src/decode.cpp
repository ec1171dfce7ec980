// SPDX-License-Identifier: Apache-2.0
#include "images/decode.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/strings.h"
#include "src/decoders.h"

namespace kvgauge {
namespace {

using std::string_view_literals::operator""sv;

bool LooksLikeText(std::string_view bytes) {
  const std::string_view head = bytes.substr(0, 256);
  return !head.empty() && std::all_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 || byte == '\n' || byte == '\r' || byte == '\t';
  });
}

Result<const ImageDecoder*> DecoderOf(std::string_view bytes) {
  if (bytes.empty()) return BadInput("the picture is empty (0 bytes)");
  const ImageFormat format = SniffImageFormat(bytes);
  switch (format) {
    case ImageFormat::kJpeg:
      return &kJpegDecoder;
    case ImageFormat::kPng:
      return &kPngDecoder;
    case ImageFormat::kWebP:
      return &kWebPDecoder;
    case ImageFormat::kGif:
      return &kGifDecoder;
    case ImageFormat::kPpm:
      return &kPpmDecoder;
    case ImageFormat::kBmp:
    case ImageFormat::kTiff:
    case ImageFormat::kHeif:
      return BadInput(StrCat("the picture is ", NameOf(format),
                             ", which is not read; convert it to JPEG, PNG or WebP"));
    case ImageFormat::kText:
      return BadInput(StrCat("the file holds text, not a picture (", Quoted(bytes.substr(0, 40)),
                             "); a failed download often looks like this"));
    case ImageFormat::kUnknown:
      break;
  }
  return BadInput(
      "the first bytes belong to no known picture; JPEG, PNG, WebP, GIF and PPM are read");
}

}  // namespace

std::string_view NameOf(ImageFormat format) {
  switch (format) {
    case ImageFormat::kUnknown:
      return "unknown";
    case ImageFormat::kJpeg:
      return "JPEG";
    case ImageFormat::kPng:
      return "PNG";
    case ImageFormat::kWebP:
      return "WebP";
    case ImageFormat::kGif:
      return "GIF";
    case ImageFormat::kPpm:
      return "PPM";
    case ImageFormat::kBmp:
      return "BMP";
    case ImageFormat::kTiff:
      return "TIFF";
    case ImageFormat::kHeif:
      return "HEIF or AVIF";
    case ImageFormat::kText:
      return "text";
  }
  return "unknown";
}

ImageFormat SniffImageFormat(std::string_view bytes) {
  constexpr std::array<std::pair<std::string_view, ImageFormat>, 9> kMarks = {{
      {"\xff\xd8\xff"sv, ImageFormat::kJpeg},
      {"\x89PNG\r\n\x1a\n"sv, ImageFormat::kPng},
      {"GIF87a"sv, ImageFormat::kGif},
      {"GIF89a"sv, ImageFormat::kGif},
      {"P6"sv, ImageFormat::kPpm},
      {"P5"sv, ImageFormat::kPpm},
      {"BM"sv, ImageFormat::kBmp},
      {"II*\0"sv, ImageFormat::kTiff},
      {"MM\0*"sv, ImageFormat::kTiff},
  }};
  for (const auto& [mark, format] : kMarks) {
    if (bytes.starts_with(mark)) return format;
  }
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP")) return ImageFormat::kWebP;
  if (bytes.size() >= 12 && bytes.substr(4, 4) == "ftyp") return ImageFormat::kHeif;
  return LooksLikeText(bytes) ? ImageFormat::kText : ImageFormat::kUnknown;
}

Status CheckImageSize(int64_t width, int64_t height, const ImageLimits& limits) {
  const std::string size = StrCat(width, " x ", height, " pixels");
  if (width <= 0 || height <= 0)
    return BadInput(StrCat("the header says ", size, ": nothing to see"));
  if (width > limits.side || height > limits.side) {
    return BadInput(
        StrCat("the header says ", size, "; no side may exceed ", WithCommas(limits.side)));
  }
  if (width * height > limits.pixels) {
    return BadInput(StrCat("the header says ", size, "; at most ", WithCommas(limits.pixels),
                           " pixels are decoded"));
  }
  return {};
}

Result<ImageSize> ReadImageSize(std::string_view bytes, std::string_view name,
                                const ImageLimits& limits) {
  const auto decoder = DecoderOf(bytes);
  if (!decoder.ok()) return decoder.error().Wrap(name);
  Result<ImageSize> size = (*decoder)->size(bytes, limits);
  if (!size.ok()) return size.error().Wrap(name);
  return size;
}

Result<Image> DecodeImage(std::string_view bytes, std::string_view name,
                          const ImageLimits& limits) {
  const auto decoder = DecoderOf(bytes);
  if (!decoder.ok()) return decoder.error().Wrap(name);
  Result<Image> image = (*decoder)->decode(bytes, limits);
  if (!image.ok()) return image.error().Wrap(name);
  return image;
}

Result<std::vector<Image>> DecodeGifFrames(std::string_view bytes, std::string_view name,
                                           const ImageLimits& limits) {
  if (SniffImageFormat(bytes) != ImageFormat::kGif) {
    return BadInput(StrCat("the picture is no GIF (", NameOf(SniffImageFormat(bytes)), ")"))
        .Wrap(name);
  }
  Result<std::vector<Image>> frames = DecodeGif(bytes, limits, limits.frames);
  if (!frames.ok()) return frames.error().Wrap(name);
  return frames;
}

}  // namespace kvgauge
