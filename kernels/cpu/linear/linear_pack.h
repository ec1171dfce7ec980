// SPDX-License-Identifier: Apache-2.0
// Brings rows of a weight matrix into panel order (panel.h).
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.h"
#include "cpu/linear/linear_kernels.h"
#include "kernels/weight_blocks.h"

namespace kvgauge {

// A row of a weight matrix, at any byte address. Null: a row of zeros.
struct PackRow {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::optional<BlockFormat> format = std::nullopt;  // set: in blocks, whatever the type says
};

// The format that all of 64 rows have, those of zeros aside; none: the panel is one of floats.
std::optional<BlockFormat> FormOfPanel(const PackRow* rows);

// Elements of k that a panel of dtype `store` holds: k, or the next even number for bf16.
constexpr int64_t PaddedK(int64_t k, DType store) { return store == DType::kBF16 ? k + k % 2 : k; }
constexpr int64_t PanelBytes(int64_t k, DType store) {
  return PaddedK(k, store) * 64 * (store == DType::kF32 ? 4 : 2);
}

// Reads count <= kConvertChunk elements at any byte address as f32.
inline constexpr int64_t kConvertChunk = 256;
void LoadAsF32(const LinearKernels& kernels, const void* from, DType dtype, int64_t count,
               float* to);

// rows[64], each of k elements, rounded to `store`; to: PanelBytes(k, store), 64-byte aligned.
// False where some number, as it is stored, may not be finite. next: null, or the 64 rows that are
// packed after these; they are brought near meanwhile.
bool PackPanel(const LinearKernels& kernels, const PackRow* rows, const PackRow* next, int64_t k,
               DType store, void* to);

// What becomes of a panel whose rows are all in blocks of one format.
enum class BlockUse { kKeep, kKeepByColumn, kFloats };
// The same of such a panel, in blocks (block_layout.h), BlockPanelBytes, or as PackPanel leaves it.
bool PackBlocks(const LinearKernels& kernels, const PackRow* rows, const PackRow* next, int64_t k,
                BlockUse use, DType store, void* to);

// f32 rows that lie row_stride elements apart, the first `count` of 64: for products whose right
// operand is not kept.
void PackPanelF32(const LinearKernels& kernels, const float* rows, int64_t row_stride,
                  int64_t count, int64_t k, float* to);

}  // namespace kvgauge
