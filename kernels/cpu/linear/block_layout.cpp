// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear/block_layout.h"

#include <algorithm>
#include <cstring>

namespace kvgauge {
namespace {

constexpr uint32_t kSigned = 0x80808080u;  // makes signed bytes positive

using Bytes = uint8_t __attribute__((vector_size(16)));
using Pairs = uint16_t __attribute__((vector_size(16)));
using Quads = uint32_t __attribute__((vector_size(16)));

template <class Vector>
Vector At(const uint8_t* from) {
  Vector v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

uint32_t WordAt(const uint8_t* from) {
  uint32_t word;
  std::memcpy(&word, from, 4);
  return word;
}

// The scales and least values of a q4_k block, a byte for each 32 k: those of SixBitsAt, all at
// once.
struct SixBitWords {
  uint32_t scales[2], least[2];

  explicit SixBitWords(const uint8_t* packed) {
    constexpr uint32_t kSix = 0x3f3f3f3fu, kFour = 0x0f0f0f0fu, kTwo = 0x03030303u;
    const uint32_t a = WordAt(packed), b = WordAt(packed + 4), c = WordAt(packed + 8);
    scales[0] = a & kSix;
    least[0] = b & kSix;
    scales[1] = (c & kFour) | (a >> 6 & kTwo) << 4;
    least[1] = (c >> 4 & kFour) | (b >> 6 & kTwo) << 4;
  }
};

// A block of each of four columns of one group, and where it goes in a block of all columns.
struct FourColumns {
  const uint8_t* in[4];
  uint8_t* block;
  int64_t column;  // the first one

  // Half `index` of a block, from byte `from` of each.
  void Half(int64_t index, int64_t from) const {
    for (int c = 0; c < 4; ++c) {
      std::memcpy(block + index * kHalvesBytes + (column + c) * 2, in[c] + from, 2);
    }
  }
  // Where word `index` goes of a list of `words` that begins at byte `at` for the first group.
  uint8_t* Place(int64_t at, int64_t words, int64_t index) const {
    const int64_t group = column / kGroupColumns, lane = column % kGroupColumns;
    return block + at + (group * words + index) * kWordBytes + lane * 4;
  }
  // Words [index, index + count) of such a list, from byte `from` of each; count: a multiple of 4.
  void Words(int64_t at, int64_t words, int64_t index, int64_t count, int64_t from,
             uint32_t flip = 0) const {
    uint8_t* to = Place(at, words, index);
    for (int64_t i = 0; i < count; i += 4, from += 16) {
      const auto a = At<Quads>(in[0] + from), b = At<Quads>(in[1] + from);
      const auto c = At<Quads>(in[2] + from), d = At<Quads>(in[3] + from);
      const Quads ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5) ^ flip;
      const Quads ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7) ^ flip;
      const Quads cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5) ^ flip;
      const Quads cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7) ^ flip;
      const Quads out[4] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                            __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                            __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                            __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
      for (const Quads& word : out) {
        std::memcpy(to, &word, sizeof(word));
        to += kWordBytes;
      }
    }
  }
};

void PutQ4K(const FourColumns& to) {
  constexpr BlockLayout kLayout = LayoutOf(BlockFormat::kQ4K);
  constexpr int64_t kScalesAt = 2 * kHalvesBytes, kLeastAt = kScalesAt + kGroups * 2 * kWordBytes;
  to.Half(0, 0);
  to.Half(1, 2);
  for (int c = 0; c < 4; ++c) {
    const SixBitWords six(to.in[c] + 4);
    for (int64_t word = 0; word < 2; ++word) {
      std::memcpy(to.Place(kScalesAt, 2, word) + 4 * c, &six.scales[word], 4);
      std::memcpy(to.Place(kLeastAt, 2, word) + 4 * c, &six.least[word], 4);
    }
  }
  for (int64_t run = 0; run < 4; ++run) {
    const int64_t at = kLayout.codes_at + run * kGroups * kLayout.run_words * kWordBytes;
    to.Words(at, 8, 0, 8, 16 + run * 32);
  }
}

void PutQ6K(const FourColumns& to) {
  constexpr BlockLayout kLayout = LayoutOf(BlockFormat::kQ6K);
  to.Half(0, 208);
  to.Words(kHalvesBytes, 4, 0, 4, 192, kSigned);
  for (int64_t run = 0; run < 2; ++run) {
    const int64_t at = kLayout.codes_at + run * kGroups * kLayout.run_words * kWordBytes;
    to.Words(at, 24, 0, 8, 128 + run * 32);
    to.Words(at, 24, 8, 16, run * 64);
  }
}

void PutBlocks(BlockFormat format, const FourColumns& to) {
  switch (format) {
    case BlockFormat::kQ80:
      to.Half(0, 0);
      return to.Words(kHalvesBytes, 8, 0, 8, 2, kSigned);
    case BlockFormat::kQ40:
      to.Half(0, 0);
      return to.Words(kHalvesBytes, 4, 0, 4, 2);
    case BlockFormat::kQ4K:
      return PutQ4K(to);
    case BlockFormat::kQ6K:
      return PutQ6K(to);
  }
}

constexpr uint8_t kZeroBlocks[256] = {};  // a block of any format, of scale 0

// Elements of a and b in turn: the first halves of both, then the second ones.
struct InTurn {
  Bytes low, high;

  InTurn(Bytes a, Bytes b)
      : low(__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)),
        high(__builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                     31)) {}
  void Store(uint8_t* to) const {
    std::memcpy(to, &low, sizeof(low));
    std::memcpy(to + sizeof(low), &high, sizeof(high));
  }
};

// A column of a group, [column] of 16; in: one block of 256 k.
void PutQ4KColumn(const uint8_t* in, uint8_t* group, int64_t column) {
  constexpr int64_t kScalesAt = 4 * kGroupColumns, kLeastAt = kScalesAt + 8 * kGroupColumns;
  constexpr int64_t kUnitsAt = kLeastAt + 8 * kGroupColumns;
  std::memcpy(group + column * 2, in, 2);
  std::memcpy(group + kGroupColumns * 2 + column * 2, in + 2, 2);
  const SixBitWords six(in + 4);
  for (int64_t i = 0; i < 8; ++i) {
    const auto byte = [&](const uint32_t* words) {
      return static_cast<uint8_t>(words[i / 4] >> (8 * (i % 4)));
    };
    group[kScalesAt + i * kGroupColumns + column] = byte(six.scales);
    group[kLeastAt + i * kGroupColumns + column] = byte(six.least);
  }
  for (int64_t unit = 0; unit < 2; ++unit) {
    uint8_t* const to =
        group + kUnitsAt + (unit * kGroupColumns + column) * UnitBytes(BlockFormat::kQ4K);
    const uint8_t* const codes = in + 16 + unit * 64;  // of 64 k, then of the next 64
    for (int64_t i = 0; i < 32; i += 16) {
      InTurn(At<Bytes>(codes + i), At<Bytes>(codes + 32 + i)).Store(to + 2 * i);
    }
  }
}

void PutQ6KColumn(const uint8_t* in, uint8_t* group, int64_t column) {
  constexpr int64_t kScales = 16, kScalesAt = 2 * kGroupColumns;
  constexpr int64_t kUnitsAt = kScalesAt + kScales * kGroupColumns, kLanes = 16;
  std::memcpy(group + column * 2, in + 208, 2);
  for (int64_t i = 0; i < kScales; ++i) group[kScalesAt + i * kGroupColumns + column] = in[192 + i];
  for (int64_t unit = 0; unit < 2; ++unit) {
    uint8_t* const to =
        group + kUnitsAt + (unit * kGroupColumns + column) * UnitBytes(BlockFormat::kQ6K);
    const uint8_t *const low = in + unit * 64, *const high = in + 128 + unit * 32;
    const auto code = [&](int64_t i) {  // quarters of 32 share the places of their bits
      const int quarter = static_cast<int>(i / 32);
      const uint32_t bits = low[i % 64], above = high[i % 32];
      return (bits >> (quarter / 2 * 4) & 15) | (above >> (quarter * 2) & 3) << 4;
    };
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      uint32_t word = 0, half = 0;
      for (int i = 0; i < kSixBitCodes; ++i) {
        (i < kSixBitsInWords ? word : half) |= code(i * kLanes + lane) << SixBitsFrom(i);
      }
      word |= half >> 16 << 30;
      std::memcpy(to + lane * 4, &word, 4);
      std::memcpy(to + kLanes * 4 + lane * 2, &half, 2);
    }
  }
}

// The same of four blocks of 32 k, `block_bytes` apart; put(codes, block_bytes, to) moves their
// codes.
template <class Put>
void PutFourBlocks(BlockFormat format, const uint8_t* in, int64_t block_bytes, uint8_t* group,
                   int64_t column, const Put& put) {
  for (int64_t s = 0; s < 4; ++s) {
    std::memcpy(group + (s * kGroupColumns + column) * 2, in + s * block_bytes, 2);
  }
  put(in + 2, block_bytes, group + 4 * 2 * kGroupColumns + column * UnitBytes(format));
}

void PutQ40Codes(const uint8_t* in, int64_t block_bytes, uint8_t* to) {
  Bytes low[2], high[2];  // of 64 k: elements 0-15 of two blocks, and their elements 16-31
  for (int64_t half = 0; half < 2; ++half) {
    const Bytes first = At<Bytes>(in + 2 * half * block_bytes);
    const Bytes second = At<Bytes>(in + (2 * half + 1) * block_bytes);
    low[half] = (first & 15) | (second << 4);
    high[half] = (first >> 4) | (second & 0xf0);
  }
  InTurn(low[0], low[1]).Store(to);
  InTurn(high[0], high[1]).Store(to + 32);
}

// Words of 64 k take the codes of two blocks.
void PutQ80Codes(const uint8_t* in, int64_t block_bytes, uint8_t* to) {
  for (int64_t half = 0; half < 2; ++half, in += 2 * block_bytes, to += 64) {
    const uint8_t* const next = in + block_bytes;
    const InTurn first(At<Bytes>(in), At<Bytes>(in + 16)),
        second(At<Bytes>(next), At<Bytes>(next + 16));
    const auto put = [&](Bytes a, Bytes b, uint8_t* at) {
      const auto front = reinterpret_cast<Pairs>(a), back = reinterpret_cast<Pairs>(b);
      const auto low = __builtin_shufflevector(front, back, 0, 8, 1, 9, 2, 10, 3, 11);
      const auto high = __builtin_shufflevector(front, back, 4, 12, 5, 13, 6, 14, 7, 15);
      for (const Pairs& four : {low, high}) {
        Quads words = reinterpret_cast<Quads>(four) ^ kSigned;
        words = words << kByteFrom | words >> (32 - kByteFrom);
        std::memcpy(at, &words, sizeof(words));
        at += sizeof(words);
      }
    };
    put(first.low, second.low, to);
    put(first.high, second.high, to + 32);
  }
}

}  // namespace

void PackBlocksByColumn(BlockFormat format, const uint8_t* const* rows, int64_t k, uint8_t* to) {
  const BlockLayout layout = LayoutOf(format);
  const int64_t step = std::max(layout.block_k, kUnitK), per_step = step / layout.block_k;
  const int64_t step_bytes = per_step * layout.block_bytes, group_bytes = step_bytes / kGroups;
  const int64_t row_bytes = BlockShapeOf(format).bytes;
  for (int64_t i = 0; i < k / step; ++i) {
    for (int64_t column = 0; column < kBlockColumns; ++column) {
      uint8_t* const group = to + i * step_bytes + column / kGroupColumns * group_bytes;
      const uint8_t* const row = rows[column];
      const uint8_t* const in = row == nullptr ? kZeroBlocks : row + i * per_step * row_bytes;
      if (format == BlockFormat::kQ4K) {
        PutQ4KColumn(in, group, column % kGroupColumns);
      } else if (format == BlockFormat::kQ6K) {
        PutQ6KColumn(in, group, column % kGroupColumns);
      } else {
        PutFourBlocks(format, in, row == nullptr ? 0 : row_bytes, group, column % kGroupColumns,
                      format == BlockFormat::kQ40 ? PutQ40Codes : PutQ80Codes);
      }
    }
  }
}

void PackBlockPanel(BlockFormat format, const uint8_t* const* rows, int64_t k, uint8_t* to) {
  const BlockLayout layout = LayoutOf(format);
  const int64_t row_bytes = BlockShapeOf(format).bytes, blocks = k / layout.block_k;
  for (int64_t column = 0; column < kBlockColumns; column += 4) {
    for (int64_t i = 0; i < blocks; ++i) {
      FourColumns four = {.in = {}, .block = to + i * layout.block_bytes, .column = column};
      for (int c = 0; c < 4; ++c) {
        const uint8_t* const row = rows[column + c];
        four.in[c] = row == nullptr ? kZeroBlocks : row + i * row_bytes;
      }
      PutBlocks(format, four);
    }
  }
}

}  // namespace kvgauge
