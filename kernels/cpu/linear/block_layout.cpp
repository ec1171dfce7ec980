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

}  // namespace

void PackBlockPanel(BlockFormat format, const uint8_t* const* rows, int64_t k, uint8_t* to) {
  static constexpr uint8_t kZeros[256] = {};  // a block of any format, of scale 0
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
        PutBlock(format, row == nullptr ? kZeros : from + i * row_bytes,
                 {to + (first + i) * layout.block_bytes, column});
      }
    }
  }
}

}  // namespace kvgauge
