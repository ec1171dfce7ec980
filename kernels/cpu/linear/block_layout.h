// SPDX-License-Identifier: Apache-2.0
// Panels of 64 columns whose weights stay in blocks of few bits (weight_blocks.h).
//
// The bytes are those of the file in another order: 16 columns lie beside each other, so that one
// load of 64 bytes gives each of them four bytes of codes that follow each other along k ("a
// word"). Words of the file are moved whole; only signed bytes get 128 added, so that they are
// positive. Columns are in groups of 16, of which a panel has four.
//
//   q8_0  of 32 k:  d f16[64]; group: 8 words, four codes each
//   q4_0  of 32 k:  d f16[64]; group: 4 words; word j: elements 4j.. low, 16 + 4j.. high
//   q4_k  of 256 k: d f16[64], m f16[64]; group: 2 words of scales; group: 2 words of least values
//                   (a byte for each 32 k); four runs of 64 k, of each group 8 words;
//                   word j: elements 4j.. low, 32 + 4j.. high
//   q6_k  of 256 k: d f16[64]; group: 4 words of scales (a byte for each 16 k); two runs of 128 k,
//                   of each group 8 words of high bits, then 16 of low ones: word j of the former
//                   has elements 4j.., 32 + 4j.., 64 + 4j.., 96 + 4j.. in two bits each, the lowest
//                   first; word j of the latter elements 4j.. low and 64 + 4j.. high
//
// Two levels of scales take a byte each here and six bits in a q4_k file, so that a panel of these
// is 3% larger than its rows.
//
// Codes may lie by column instead: then those of one column and 128 k ("a unit") are 64 bytes of
// four-bit codes, those of k, 32 + k, 64 + k and 96 + k in the 16 bits of k, the first ones lowest;
// or 128 bytes of eight-bit codes, those of k, 16 + k, 32 + k and 48 + k in the 32 bits of k, from
// bit 15 on around the end; or 96 bytes of six-bit codes: 16 words, of which word i has those of i,
// 16 + i, .., 64 + i, the first ones lowest, and 16 halves, of which half i has those of 80 + i and
// 96 + i and the low four bits of that of 112 + i, whose others are the highest two of word i. The
// bytes of a panel are as many.
//
//   q8_0, q4_0  of 128 k: group: d f16[4][16], of each 32 k; 16 columns of a unit
//   q4_k        of 256 k: group: d f16[16], m f16[16]; scales u8[8][16] and least values u8[8][16],
//                         of each 32 k; 16 columns of the first unit, then those of the second
//   q6_k        of 256 k: group: d f16[16]; scales i8[16][16], of each 16 k; columns as above
#pragma once

#include <cstdint>

#include "kernels/weight_blocks.h"

namespace kvgauge {

inline constexpr int64_t kBlockColumns = 64;  // of a panel
inline constexpr int64_t kGroupColumns = 16;
inline constexpr int64_t kGroups = kBlockColumns / kGroupColumns;
inline constexpr int64_t kWordBytes = kGroupColumns * 4;    // one word of a group
inline constexpr int64_t kHalvesBytes = kBlockColumns * 2;  // an f16 of each column
// Products take a panel in steps of this many k: the runs of q6_k.
inline constexpr int64_t kBlockStepK = 128;

struct BlockLayout {
  int64_t block_k;      // of a block
  int64_t block_bytes;  // of a block of all columns
  int64_t codes_at;     // bytes before the codes
  int64_t run_k;        // k whose codes lie together
  int64_t run_words;    // of a group in a run
};

constexpr BlockLayout LayoutOf(BlockFormat format) {
  switch (format) {
    case BlockFormat::kQ80:
      return {32, kHalvesBytes + kGroups * 8 * kWordBytes, kHalvesBytes, 32, 8};
    case BlockFormat::kQ40:
      return {32, kHalvesBytes + kGroups * 4 * kWordBytes, kHalvesBytes, 32, 4};
    case BlockFormat::kQ4K:
      return {256, 2 * kHalvesBytes + kGroups * 36 * kWordBytes,
              2 * kHalvesBytes + kGroups * 4 * kWordBytes, 64, 8};
    case BlockFormat::kQ6K:
      break;
  }
  return {256, kHalvesBytes + kGroups * 52 * kWordBytes, kHalvesBytes + kGroups * 4 * kWordBytes,
          128, 24};
}

inline constexpr int64_t kUnitK = 128;
constexpr int64_t UnitBytes(BlockFormat format) {  // of one column
  if (format == BlockFormat::kQ6K) return 96;
  return format == BlockFormat::kQ80 ? 128 : 64;
}
// Codes of six bits of a lane, so many of them in its word, and the lowest bit of each.
inline constexpr int kSixBitCodes = 8, kSixBitsInWords = 5;
constexpr int SixBitsFrom(int code) {
  return 6 * (code < kSixBitsInWords ? code : code - kSixBitsInWords);
}
inline constexpr int kByteFrom = 15;  // the lowest bit of the first of four codes of eight bits
// Whether panels of rows of `k` elements may lie by column.
constexpr bool LiesByColumn(int64_t k) { return k % kUnitK == 0; }

constexpr int64_t BlockPanelBytes(BlockFormat format, int64_t k) {
  const BlockLayout layout = LayoutOf(format);
  return k / layout.block_k * layout.block_bytes;
}

// rows[64], each of k elements in blocks at any address, or null: zeros. to: BlockPanelBytes,
// 64-byte aligned.
void PackBlockPanel(BlockFormat format, const uint8_t* const* rows, int64_t k, uint8_t* to);
// The same, by column. Precondition: LiesByColumn.
void PackBlocksByColumn(BlockFormat format, const uint8_t* const* rows, int64_t k, uint8_t* to);

}  // namespace kvgauge
