// SPDX-License-Identifier: Apache-2.0
// Weights in blocks of few bits that share scales, as GGUF files have them: the types whose blocks
// a product can read as they are. The formulas are here once, for readers of files and for the slow
// twins of products.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/tensor.h"

namespace kvgauge {

enum class BlockFormat { kQ80, kQ40, kQ4K, kQ6K };
inline constexpr int kBlockFormats = 4;
inline constexpr int64_t kMostBlockElements = 256;

struct BlockShape {
  std::string_view name;  // "q4_k", as in files
  int64_t elements;       // of a block
  int64_t bytes;          // of a block
};
const BlockShape& BlockShapeOf(BlockFormat format);

// Writes the numbers of one block, those of the reference dequantisation to the bit.
void ReadBlock(BlockFormat format, const uint8_t* block, float* out);

// What the numbers of a block are made of: scale * code - least, where 16 numbers share a scale at
// least, and 32 a least value.
struct BlockCodes {
  int codes[kMostBlockElements];  // their middle taken out
  float scale[kMostBlockElements / 16];
  float least[kMostBlockElements / 32];  // 0 where a format has none
};
void ReadBlockCodes(BlockFormat format, const uint8_t* block, BlockCodes& out);

// The scale and the least value of 32 elements of a q4_k block, six bits each in 12 bytes.
struct SixBitPair {
  int scale, least;
};
SixBitPair SixBitsAt(const uint8_t* packed, int part);

// Whether every number of `count` blocks, rounded to `store`, is surely finite. Looks at scales
// alone, so that a few rows that are finite may be doubted, of f16 only.
bool SurelyFinite(BlockFormat format, const uint8_t* blocks, int64_t count, DType store);

// Rows of a weight matrix in host memory: floats, or blocks of few bits. Not owned.
struct StoredRows {
  Tensor floats;                            // [n, k] of any float dtype; without a format
  std::optional<BlockFormat> format;        // of `blocks`
  std::vector<const uint8_t*> blocks = {};  // [n], each of k / elements blocks, at any address

  int64_t rows() const { return format ? static_cast<int64_t>(blocks.size()) : floats.shape[0]; }
};

}  // namespace kvgauge
