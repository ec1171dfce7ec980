// SPDX-License-Identifier: Apache-2.0
// GIF: a canvas that frames of indexed pixels are painted on. Written here because the format is
// small and its usual library has no limits.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/strings.h"
#include "src/decoders.h"

namespace kvgauge {
namespace {

using Palette = std::array<uint8_t, size_t{3} * 256>;

class GifBytes {
 public:
  explicit GifBytes(std::string_view bytes) : rest_(bytes) {}

  size_t left() const { return rest_.size(); }
  Result<std::string_view> Take(size_t count) {
    if (count > rest_.size()) return BadInput("the GIF is truncated");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  Result<int> Byte() {
    KVG_ASSIGN(const std::string_view byte, Take(1));
    return static_cast<unsigned char>(byte[0]);
  }
  Result<int> Word() {
    KVG_ASSIGN(const std::string_view word, Take(2));
    return static_cast<unsigned char>(word[0]) | static_cast<unsigned char>(word[1]) << 8;
  }
  // Sub-blocks up to the empty one, joined.
  Result<std::string> Blocks() {
    std::string all;
    for (;;) {
      KVG_ASSIGN(const int count, Byte());
      if (count == 0) return all;
      KVG_ASSIGN(const std::string_view block, Take(static_cast<size_t>(count)));
      all += block;
    }
  }
  Result<Palette> Colours(int bits) {
    Palette palette = {};
    KVG_ASSIGN(const std::string_view table, Take(size_t{3} << bits));
    std::memcpy(palette.data(), table.data(), table.size());
    return palette;
  }

 private:
  std::string_view rest_;
};

// Exactly `wanted` indices out of LZW codes of growing width.
Result<std::vector<uint8_t>> Unpack(std::string_view packed, int least_bits, size_t wanted) {
  constexpr int kMostCodes = 4096;
  if (least_bits < 1 || least_bits > 8) {
    return BadInput(StrCat("the GIF is corrupt: its codes begin with ", least_bits, " bits"));
  }
  const int clear = 1 << least_bits, stop = clear + 1;
  // A code is its prefix's string and one more index.
  std::array<uint16_t, kMostCodes> prefix = {};
  std::array<uint8_t, kMostCodes> last = {}, first = {};
  for (int code = 0; code < clear; ++code) {
    last[static_cast<size_t>(code)] = first[static_cast<size_t>(code)] = static_cast<uint8_t>(code);
  }
  std::vector<uint8_t> out;
  out.reserve(wanted);
  int bits = least_bits + 1, next = clear + 2, previous = -1;
  uint32_t window = 0;
  int held = 0;
  std::array<uint8_t, kMostCodes> reversed;
  for (size_t at = 0; out.size() < wanted;) {
    while (held < bits && at < packed.size()) {
      window |= static_cast<uint32_t>(static_cast<unsigned char>(packed[at++])) << held;
      held += 8;
    }
    if (held < bits) return BadInput("the GIF is corrupt: a frame has too few pixels");
    const int code = static_cast<int>(window & ((1u << bits) - 1));
    window >>= bits;
    held -= bits;
    if (code == clear) {
      bits = least_bits + 1;
      next = clear + 2;
      previous = -1;
      continue;
    }
    if (code == stop) return BadInput("the GIF is corrupt: a frame has too few pixels");
    const bool is_new = code == next && previous >= 0;
    if (code >= next && !is_new) return BadInput("the GIF is corrupt: a code was never defined");
    // The one code that may be used before it is defined ends as its prefix begins.
    int walk = is_new ? previous : code;
    size_t length = 0;
    if (is_new) reversed[length++] = first[static_cast<size_t>(previous)];
    while (walk >= clear) {
      reversed[length++] = last[static_cast<size_t>(walk)];
      walk = prefix[static_cast<size_t>(walk)];
    }
    reversed[length++] = static_cast<uint8_t>(walk);
    while (length > 0 && out.size() < wanted) out.push_back(reversed[--length]);
    if (previous >= 0 && next < kMostCodes) {
      const auto entry = static_cast<size_t>(next++);
      prefix[entry] = static_cast<uint16_t>(previous);
      last[entry] = static_cast<uint8_t>(walk);
      first[entry] = first[static_cast<size_t>(previous)];
      if (next == 1 << bits && bits < 12) ++bits;
    }
    previous = code;
  }
  return out;
}

struct GifFrame {
  int left = 0, top = 0, width = 0, height = 0;
  int disposal = 0;      // what happens to it before the next: 2 goes back to black, 3 to what was
  int transparent = -1;  // the index that paints nothing
  bool interlaced = false;
  Palette palette = {};
  std::vector<uint8_t> indices;
};

// `opaque`: pixels of the transparent index too take their colour.
void Paint(const GifFrame& frame, bool opaque, Image& canvas) {
  size_t at = 0;
  const auto paint_row = [&](int y) {
    uint8_t* row = canvas.Row(frame.top + y) + 3 * static_cast<size_t>(frame.left);
    for (int x = 0; x < frame.width; ++x, row += 3) {
      const uint8_t index = frame.indices[at++];
      if (opaque || index != frame.transparent)
        std::memcpy(row, frame.palette.data() + 3 * size_t{index}, 3);
    }
  };
  if (!frame.interlaced) {
    for (int y = 0; y < frame.height; ++y) paint_row(y);
    return;
  }
  constexpr int kPasses[4][2] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  for (const auto& [first, step] : kPasses) {
    for (int y = first; y < frame.height; y += step) paint_row(y);
  }
}

class GifReader {
 public:
  GifReader(std::string_view bytes, const ImageLimits& limits) : bytes_(bytes), limits_(limits) {}

  Result<ImageSize> ReadHeader() {
    KVG_TRY(bytes_.Take(6));
    KVG_ASSIGN(const int width, bytes_.Word());
    KVG_ASSIGN(const int height, bytes_.Word());
    KVG_ASSIGN(const int flags, bytes_.Byte());
    KVG_TRY(bytes_.Take(2));
    KVG_TRY(CheckImageSize(width, height, limits_));
    if ((flags & 0x80) != 0) {
      KVG_ASSIGN(palette_, bytes_.Colours((flags & 7) + 1));
    }
    size_ = {width, height};
    return size_;
  }

  // After ReadHeader. At most `most` frames, then no more is read. A single frame drops
  // transparency as other formats do; in an animation it shows what was painted before.
  Result<std::vector<Image>> ReadFrames(int32_t most) {
    std::vector<Image> frames;
    Image canvas = Image::OfSize(size_.width, size_.height);
    while (static_cast<int32_t>(frames.size()) < most) {
      if (bytes_.left() == 0) break;  // the mark of the end is often left out
      KVG_ASSIGN(const int kind, bytes_.Byte());
      if (kind == 0x3b) break;
      if (kind == 0x21) {
        KVG_TRY(ReadExtension());
        continue;
      }
      if (kind != 0x2c) return BadInput(StrCat("the GIF is corrupt: a block of kind ", kind));
      KVG_ASSIGN(const GifFrame frame, ReadFrame());
      const Image before = frame.disposal == 3 ? canvas : Image();
      Paint(frame, most == 1, canvas);
      frames.push_back(canvas);
      if (static_cast<int64_t>(frames.size()) * size_.width * size_.height > limits_.pixels) {
        return BadInput(StrCat("the GIF's frames have more than ", WithCommas(limits_.pixels),
                               " pixels together"));
      }
      Dispose(frame, before, canvas);
    }
    if (frames.empty()) return BadInput("the GIF has no frame");
    return frames;
  }

 private:
  Status ReadExtension() {
    KVG_ASSIGN(const int label, bytes_.Byte());
    KVG_ASSIGN(const std::string body, bytes_.Blocks());
    if (label == 0xf9 && body.size() >= 4) {
      const auto flags = static_cast<unsigned char>(body[0]);
      disposal_ = flags >> 2 & 7;
      transparent_ = (flags & 1) != 0 ? static_cast<unsigned char>(body[3]) : -1;
    }
    return {};
  }

  Result<GifFrame> ReadFrame() {
    GifFrame frame;
    frame.disposal = disposal_;
    frame.transparent = transparent_;
    frame.palette = palette_;
    disposal_ = 0;
    transparent_ = -1;
    KVG_ASSIGN(frame.left, bytes_.Word());
    KVG_ASSIGN(frame.top, bytes_.Word());
    KVG_ASSIGN(frame.width, bytes_.Word());
    KVG_ASSIGN(frame.height, bytes_.Word());
    KVG_ASSIGN(const int flags, bytes_.Byte());
    if (frame.width == 0 || frame.height == 0 || frame.left + frame.width > size_.width ||
        frame.top + frame.height > size_.height) {
      return BadInput("the GIF is corrupt: a frame leaves the canvas");
    }
    frame.interlaced = (flags & 0x40) != 0;
    if ((flags & 0x80) != 0) {
      KVG_ASSIGN(frame.palette, bytes_.Colours((flags & 7) + 1));
    }
    KVG_ASSIGN(const int least_bits, bytes_.Byte());
    KVG_ASSIGN(const std::string packed, bytes_.Blocks());
    KVG_ASSIGN(frame.indices,
               Unpack(packed, least_bits,
                      static_cast<size_t>(frame.width) * static_cast<size_t>(frame.height)));
    return frame;
  }

  static void Dispose(const GifFrame& frame, const Image& before, Image& canvas) {
    if (frame.disposal == 3) canvas = before;
    if (frame.disposal != 2) return;
    for (int y = frame.top; y < frame.top + frame.height; ++y) {
      std::memset(canvas.Row(y) + 3 * static_cast<size_t>(frame.left), 0,
                  3 * static_cast<size_t>(frame.width));
    }
  }

  GifBytes bytes_;
  const ImageLimits limits_;
  ImageSize size_;
  Palette palette_ = {};
  int disposal_ = 0, transparent_ = -1;
};

Result<ImageSize> GifSize(std::string_view bytes, const ImageLimits& limits) {
  return GifReader(bytes, limits).ReadHeader();
}
Result<Image> DecodeFirstFrame(std::string_view bytes, const ImageLimits& limits) {
  KVG_ASSIGN(std::vector<Image> frames, DecodeGif(bytes, limits, 1));
  return std::move(frames.front());
}

}  // namespace

const ImageDecoder kGifDecoder = {.size = GifSize, .decode = DecodeFirstFrame};

Result<std::vector<Image>> DecodeGif(std::string_view bytes, const ImageLimits& limits,
                                     int32_t most_frames) {
  GifReader reader(bytes, limits);
  KVG_TRY(reader.ReadHeader());
  return reader.ReadFrames(most_frames);
}

}  // namespace kvgauge
