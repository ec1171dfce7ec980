// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear/block_layout.h"

#include <algorithm>
#include <bit>
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
  for (int word = 0; word < 2; ++word) {
    uint32_t scales = 0, least = 0;
    for (int i = 0; i < 4; ++i) {
      const SixBitPair six = SixBitsAt(in + 4, word * 4 + i);
      scales |= static_cast<uint32_t>(six.scale) << (8 * i);
      least |= static_cast<uint32_t>(six.least) << (8 * i);
    }
    to.Word(kScalesAt, 2, word, scales);
    to.Word(kLeastAt, 2, word, least);
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

// A column of a group, [column] of 16; in: one block of 256 k.
void PutQ4KColumn(const uint8_t* in, uint8_t* group, int64_t column) {
  constexpr int64_t kScalesAt = 4 * kGroupColumns, kLeastAt = kScalesAt + 8 * kGroupColumns;
  constexpr int64_t kUnitsAt = kLeastAt + 8 * kGroupColumns;
  std::memcpy(group + column * 2, in, 2);
  std::memcpy(group + kGroupColumns * 2 + column * 2, in + 2, 2);
  for (int i = 0; i < 8; ++i) {
    const SixBitPair six = SixBitsAt(in + 4, i);
    group[kScalesAt + i * kGroupColumns + column] = static_cast<uint8_t>(six.scale);
    group[kLeastAt + i * kGroupColumns + column] = static_cast<uint8_t>(six.least);
  }
  for (int64_t unit = 0; unit < 2; ++unit) {
    uint8_t* const to =
        group + kUnitsAt + (unit * kGroupColumns + column) * UnitBytes(BlockFormat::kQ4K);
    const uint8_t* const codes = in + 16 + unit * 64;  // of 64 k, then of the next 64
    for (int64_t i = 0; i < 32; ++i) {
      to[2 * i] = codes[i];
      to[2 * i + 1] = codes[32 + i];
    }
  }
}

// The same of four blocks of 32 k, `block_bytes` apart; `Put(s, in, to)` adds the codes of one.
template <class Put>
void PutFourBlocks(BlockFormat format, const uint8_t* in, int64_t block_bytes, uint8_t* group,
                   int64_t column, const Put& put) {
  uint8_t* const to = group + 4 * 2 * kGroupColumns + column * UnitBytes(format);
  for (int64_t s = 0; s < 4; ++s, in += block_bytes) {
    std::memcpy(group + (s * kGroupColumns + column) * 2, in, 2);
    put(s, in + 2, to);
  }
}

void AddQ40Codes(int64_t s, const uint8_t* in, uint8_t* to) {
  if (s == 0) std::memset(to, 0, 64);
  for (int64_t i = 0; i < 32; ++i) {
    const int code = in[i % 16] >> (i < 16 ? 0 : 4) & 15;
    to[2 * i + s / 2] |= static_cast<uint8_t>(code << (s % 2 * 4));
  }
}

// Words of 64 k take the codes of two blocks.
void AddQ80Codes(int64_t s, const uint8_t* in, uint8_t* to) {
  for (int64_t i = 0; i < 16; ++i) {
    uint8_t* const at = to + (s / 2 * 16 + i) * 4;
    uint32_t word = s % 2 == 0 ? 0 : std::rotr(WordAt(at), kByteFrom);
    for (int64_t b = 0; b < 2; ++b) {
      word |= (in[b * 16 + i] ^ 0x80u) << (8 * (s % 2 * 2 + b));
    }
    word = std::rotl(word, kByteFrom);
    std::memcpy(at, &word, 4);
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
      } else {
        PutFourBlocks(format, in, row == nullptr ? 0 : row_bytes, group, column % kGroupColumns,
                      format == BlockFormat::kQ40 ? AddQ40Codes : AddQ80Codes);
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
