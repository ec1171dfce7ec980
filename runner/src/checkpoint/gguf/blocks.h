// SPDX-License-Identifier: Apache-2.0
// The element types of GGUF files: numbers in blocks that share scales.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "kernels/weight_blocks.h"

namespace kvgauge {

struct BlockType {
  uint32_t id;            // as in files
  std::string_view name;  // "q4_k"
  int64_t elements;       // of a block
  int64_t bytes;          // of a block
  // Writes the numbers of one block, those of the reference dequantisation to the bit.
  void (*read)(const uint8_t* block, float* out);
  // Set where a product can read the blocks as they are.
  std::optional<BlockFormat> format = std::nullopt;
};

// The type with that number; a type that is not read is an error that names it and begins with
// `where`.
Result<const BlockType*> FindBlockType(uint32_t id, std::string_view where);

// Every type that is read.
std::span<const BlockType> BlockTypes();

// `count` numbers, a whole number of blocks.
inline void ReadBlocks(const BlockType& type, const uint8_t* bytes, int64_t count, float* out) {
  for (int64_t i = 0; i < count / type.elements; ++i) {
    type.read(bytes + i * type.bytes, out + i * type.elements);
  }
}

}  // namespace kvgauge
