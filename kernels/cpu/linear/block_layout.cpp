// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear/block_layout.h"

#include <algorithm>
#include <cstring>

namespace kvgauge {
namespace {

// Enough of a row at a time that its lines are used whole, and little enough that what is written
// stays near.
constexpr int64_t kRowStepK = 256;
constexpr uint32_t kSigned = 0x80808080u;  // makes signed bytes positive

// The place of a column in a block.
struct BlockColumn {
  uint8_t* block;
  int64_t column;

  void Half(int64_t at, const uint8_t* from) const {
    std::memcpy(block + at * kHalvesBytes + column * 2, from, 2);
  }
  // Word `index` of a list of `words` that begins at byte `at` for the first group.
  void Word(int64_t at, int64_t words, int64_t index, uint32_t word) const {
    const int64_t group = column / kGroupColumns, lane = column % kGroupColumns;
    std::memcpy(block + at + (group * words + index) * kWordBytes + lane * 4, &word, 4);
  }
};

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

void PutQ80(const uint8_t* in, const BlockColumn& to) {
  to.Half(0, in);
  for (int64_t j = 0; j < 8; ++j) to.Word(kHalvesBytes, 8, j, WordAt(in + 2 + 4 * j) ^ kSigned);
}

void PutQ40(const uint8_t* in, const BlockColumn& to) {
  to.Half(0, in);
  for (int64_t j = 0; j < 4; ++j) to.Word(kHalvesBytes, 4, j, WordAt(in + 2 + 4 * j));
}

void PutQ4K(const uint8_t* in, const BlockColumn& to) {
  constexpr BlockLayout kLayout = LayoutOf(BlockFormat::kQ4K);
  constexpr int64_t kScalesAt = 2 * kHalvesBytes, kLeastAt = kScalesAt + kGroups * 2 * kWordBytes;
  to.Half(0, in);
  to.Half(1, in + 2);
  const SixBitWords six(in + 4);
  for (int64_t word = 0; word < 2; ++word) {
    to.Word(kScalesAt, 2, word, six.scales[word]);
    to.Word(kLeastAt, 2, word, six.least[word]);
  }
  for (int64_t run = 0; run < 4; ++run) {
    const int64_t at = kLayout.codes_at + run * kGroups * kLayout.run_words * kWordBytes;
    for (int64_t j = 0; j < 8; ++j) to.Word(at, 8, j, WordAt(in + 16 + run * 32 + 4 * j));
  }
}

void PutQ6K(const uint8_t* in, const BlockColumn& to) {
  constexpr BlockLayout kLayout = LayoutOf(BlockFormat::kQ6K);
  to.Half(0, in + 208);
  for (int64_t j = 0; j < 4; ++j) to.Word(kHalvesBytes, 4, j, WordAt(in + 192 + 4 * j) ^ kSigned);
  for (int64_t run = 0; run < 2; ++run) {
    const int64_t at = kLayout.codes_at + run * kGroups * kLayout.run_words * kWordBytes;
    for (int64_t j = 0; j < 8; ++j) to.Word(at, 24, j, WordAt(in + 128 + run * 32 + 4 * j));
    for (int64_t j = 0; j < 16; ++j) to.Word(at, 24, 8 + j, WordAt(in + run * 64 + 4 * j));
  }
}

void PutBlock(BlockFormat format, const uint8_t* in, const BlockColumn& to) {
  switch (format) {
    case BlockFormat::kQ80:
      return PutQ80(in, to);
    case BlockFormat::kQ40:
      return PutQ40(in, to);
    case BlockFormat::kQ4K:
      return PutQ4K(in, to);
    case BlockFormat::kQ6K:
      return PutQ6K(in, to);
  }
}

constexpr uint8_t kZeroBlocks[256] = {};  // a block of any format, of scale 0

using Bytes = uint8_t __attribute__((vector_size(16)));
using Pairs = uint16_t __attribute__((vector_size(16)));
using Quads = uint32_t __attribute__((vector_size(16)));

Bytes BytesAt(const uint8_t* from) {
  Bytes v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

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
      InTurn(BytesAt(codes + i), BytesAt(codes + 32 + i)).Store(to + 2 * i);
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
    const Bytes first = BytesAt(in + 2 * half * block_bytes);
    const Bytes second = BytesAt(in + (2 * half + 1) * block_bytes);
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
    const InTurn first(BytesAt(in), BytesAt(in + 16)), second(BytesAt(next), BytesAt(next + 16));
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
  const int64_t step = kRowStepK / layout.block_k;
  for (int64_t first = 0; first < blocks; first += step) {
    const int64_t count = std::min(step, blocks - first);
    for (int64_t column = 0; column < kBlockColumns; ++column) {
      const uint8_t* const row = rows[column];
      const uint8_t* const from = row == nullptr ? nullptr : row + first * row_bytes;
      for (int64_t i = 0; row != nullptr && i < count * row_bytes; i += 64) {
        __builtin_prefetch(from + count * row_bytes + i, 0, 0);
      }
      for (int64_t i = 0; i < count; ++i) {
        PutBlock(format, row == nullptr ? kZeroBlocks : from + i * row_bytes,
                 {to + (first + i) * layout.block_bytes, column});
      }
    }
  }
}

}  // namespace kvgauge
