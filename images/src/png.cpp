// SPDX-License-Identifier: Apache-2.0
// libpng reports errors by jumping; see jpeg.cpp for what follows from that.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/strings.h"
#include "images/encode.h"
#include "src/decoders.h"

namespace kvgauge {
namespace {

struct PngState {
  std::string_view rest;  // what is still to be read
  char message[160] = "";
};

[[noreturn]] void FailPng(png_structp png, png_const_charp what) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::snprintf(state->message, sizeof state->message, "%s", what);
  png_longjmp(png, 1);
}
void WarnPng(png_structp, png_const_charp) {}  // of chunks that pixels do not depend on
void ReadPng(png_structp png, png_bytep to, size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state->rest.size()) png_error(png, "the file ends too early");
  std::memcpy(to, state->rest.data(), count);
  state->rest.remove_prefix(count);
}

class PngReader {
 public:
  PngReader(std::string_view bytes, const ImageLimits& limits) : limits_(limits) {
    state_.rest = bytes;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state_, FailPng, WarnPng);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  Result<ImageSize> ReadHeader() {
    if (info_ == nullptr) return ResourceError("out of memory");
    if (!HeaderIn()) return Corrupt();
    KVG_TRY(CheckImageSize(width_, height_, limits_));
    if (bit_depth_ == 16 && (colour_ & PNG_COLOR_MASK_COLOR) == 0) {
      return BadInput(
          "the PNG is grey with 16 bits; convert it to 8 bits, as there is no one rule");
    }
    return ImageSize{static_cast<int32_t>(width_), static_cast<int32_t>(height_)};
  }

  // After ReadHeader.
  Result<Image> ReadPixels() {
    Image image = Image::OfSize(static_cast<int32_t>(width_), static_cast<int32_t>(height_));
    std::vector<png_bytep> rows(static_cast<size_t>(image.height));
    for (int32_t y = 0; y < image.height; ++y) rows[static_cast<size_t>(y)] = image.Row(y);
    if (!PixelsIn(rows.data())) return Corrupt();
    return image;
  }

 private:
  bool HeaderIn() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, &state_, ReadPng);
    // Sizes are judged by CheckImageSize, whose messages say more.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(png_, png_alloc_size_t{64} << 20);
    png_set_chunk_cache_max(png_, 1000);
    png_read_info(png_, info_);
    png_get_IHDR(png_, info_, &width_, &height_, &bit_depth_, &colour_, nullptr, nullptr, nullptr);
    return true;
  }

  bool PixelsIn(png_bytep* rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    if (colour_ == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (colour_ == PNG_COLOR_TYPE_GRAY && bit_depth_ < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if ((colour_ & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png_);
    if (bit_depth_ == 16) png_set_strip_16(png_);
    if (bit_depth_ < 8) png_set_packing(png_);
    // Dropped, not blended: what lies under transparent pixels shows, as in the reference.
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != size_t{3} * width_) png_error(png_, "unexpected channels");
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

  Error Corrupt() const { return BadInput(StrCat("the PNG is corrupt: ", state_.message)); }

  const ImageLimits limits_;
  PngState state_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  png_uint_32 width_ = 0, height_ = 0;
  int bit_depth_ = 0, colour_ = 0;
};

Result<ImageSize> PngSize(std::string_view bytes, const ImageLimits& limits) {
  return PngReader(bytes, limits).ReadHeader();
}
Result<Image> DecodePng(std::string_view bytes, const ImageLimits& limits) {
  PngReader reader(bytes, limits);
  KVG_TRY(reader.ReadHeader());
  return reader.ReadPixels();
}

void AppendPng(png_structp png, png_bytep from, size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<char*>(from), count);
}

bool WritePng(png_structp png, png_infop info, const Image& image, int level, std::string& out) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_write_fn(png, &out, AppendPng, nullptr);
  png_set_compression_level(png, level);
  png_set_IHDR(png, info, static_cast<png_uint_32>(image.width),
               static_cast<png_uint_32>(image.height), 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (int32_t y = 0; y < image.height; ++y) png_write_row(png, image.Row(y));
  png_write_end(png, nullptr);
  return true;
}

}  // namespace

const ImageDecoder kPngDecoder = {.size = PngSize, .decode = DecodePng};

Result<std::string> EncodePng(const Image& image, int level) {
  PngState state;
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &state, FailPng, WarnPng);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  const bool written = info != nullptr && WritePng(png, info, image, level, out);
  png_destroy_write_struct(&png, &info);
  if (!written) return BadInput(StrCat("cannot write a PNG: ", state.message));
  return out;
}

}  // namespace kvgauge
