// SPDX-License-Identifier: Apache-2.0
// libjpeg reports by calling back; its errors must not return, so they jump. Nothing with a
// destructor lives between setjmp and the calls that may jump.
// clang-format off
#include <cstddef>  // jpeglib.h uses both without including them
#include <cstdio>
#include <jpeglib.h>
// clang-format on

#include <algorithm>
#include <csetjmp>
#include <string>

#include "core/strings.h"
#include "images/encode.h"
#include "src/decoders.h"

namespace kvgauge {
namespace {

struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg hands out its address
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};
// Passes over a progressive picture are counted, since each may be made to cost a full one.
struct JpegProgress {
  jpeg_progress_mgr manager;  // first, as above
  int most_scans;
};

[[noreturn]] void FailJpeg(jpeg_common_struct* info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->message);
  std::longjmp(errors->jump, 1);
}
// Warnings are about corrupt data (a truncated file among them), which must not pass for a picture.
void WarnJpeg(jpeg_common_struct* info, int level) {
  if (level < 0) FailJpeg(info);
}
void WatchJpeg(jpeg_common_struct* info) {
  auto* decoder = reinterpret_cast<jpeg_decompress_struct*>(info);
  if (decoder->input_scan_number > reinterpret_cast<JpegProgress*>(info->progress)->most_scans) {
    auto* errors = reinterpret_cast<JpegErrors*>(info->err);
    std::snprintf(errors->message, sizeof errors->message, "more than %d scans",
                  reinterpret_cast<JpegProgress*>(info->progress)->most_scans);
    std::longjmp(errors->jump, 1);
  }
}
void InitErrors(JpegErrors& errors) {
  jpeg_std_error(&errors.manager);
  errors.manager.error_exit = FailJpeg;
  errors.manager.emit_message = WarnJpeg;
  errors.message[0] = '\0';
}

// Pillow's conversion of what Photoshop and nearly everybody else writes: inverted ink.
void CmykToRgb(const uint8_t* ink, int32_t width, uint8_t* rgb) {
  for (int32_t x = 0; x < width; ++x, ink += 4, rgb += 3) {
    const int light = ink[3];  // 255 - black, as stored
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - ink[c]) * light + 128;
      rgb[c] = static_cast<uint8_t>(std::clamp(light - (((product >> 8) + product) >> 8), 0, 255));
    }
  }
}

class JpegReader {
 public:
  JpegReader(std::string_view bytes, const ImageLimits& limits) : bytes_(bytes), limits_(limits) {
    InitErrors(errors_);
    info_.err = &errors_.manager;
    jpeg_create_decompress(&info_);
    info_.mem->max_memory_to_use = long{1} << 30;
    progress_ = {};
    progress_.manager.progress_monitor = WatchJpeg;
    progress_.most_scans = limits.scans;
    info_.progress = &progress_.manager;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  Result<ImageSize> ReadHeader() {
    if (!HeaderIn()) return Corrupt();
    KVG_TRY(CheckImageSize(info_.image_width, info_.image_height, limits_));
    return ImageSize{static_cast<int32_t>(info_.image_width),
                     static_cast<int32_t>(info_.image_height)};
  }

  // After ReadHeader.
  Result<Image> ReadPixels() {
    Image image = Image::OfSize(static_cast<int32_t>(info_.image_width),
                                static_cast<int32_t>(info_.image_height));
    const bool cmyk = info_.num_components == 4;
    std::vector<uint8_t> ink(cmyk ? size_t{4} * info_.image_width : 0);
    if (!PixelsIn(image, ink.data())) return Corrupt();
    return image;
  }

 private:
  bool HeaderIn() {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes_.data()),
                 static_cast<unsigned long>(bytes_.size()));
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  bool PixelsIn(Image& image, uint8_t* ink) {
    if (setjmp(errors_.jump) != 0) return false;
    info_.out_color_space = ink != nullptr ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      uint8_t* row = image.Row(static_cast<int32_t>(info_.output_scanline));
      JSAMPROW to = ink != nullptr ? ink : row;
      jpeg_read_scanlines(&info_, &to, 1);
      if (ink != nullptr) CmykToRgb(ink, image.width, row);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  Error Corrupt() const { return BadInput(StrCat("the JPEG is corrupt: ", errors_.message)); }

  const std::string_view bytes_;
  const ImageLimits limits_;
  jpeg_decompress_struct info_ = {};
  JpegErrors errors_ = {};
  JpegProgress progress_ = {};
};

Result<ImageSize> JpegSize(std::string_view bytes, const ImageLimits& limits) {
  return JpegReader(bytes, limits).ReadHeader();
}
Result<Image> DecodeJpeg(std::string_view bytes, const ImageLimits& limits) {
  JpegReader reader(bytes, limits);
  KVG_TRY(reader.ReadHeader());
  return reader.ReadPixels();
}

bool WriteJpeg(const Image& image, int quality, jpeg_compress_struct& info, JpegErrors& errors,
               unsigned char** out, unsigned long* size_bytes) {
  if (setjmp(errors.jump) != 0) return false;
  jpeg_mem_dest(&info, out, size_bytes);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<uint8_t*>(image.Row(static_cast<int32_t>(info.next_scanline)));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  return true;
}

}  // namespace

const ImageDecoder kJpegDecoder = {.size = JpegSize, .decode = DecodeJpeg};

Result<std::string> EncodeJpeg(const Image& image, int quality) {
  JpegErrors errors = {};
  InitErrors(errors);
  jpeg_compress_struct info = {};
  info.err = &errors.manager;
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size_bytes = 0;
  const bool written = WriteJpeg(image, quality, info, errors, &out, &size_bytes);
  std::string file;
  if (written) file.assign(reinterpret_cast<const char*>(out), size_bytes);
  jpeg_destroy_compress(&info);
  std::free(out);
  if (!written) return BadInput(StrCat("cannot write a JPEG: ", errors.message));
  return file;
}

}  // namespace kvgauge
