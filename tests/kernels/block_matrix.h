// SPDX-License-Identifier: Apache-2.0
// Random matrices in blocks of few bits, and products with them.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "core/rounding.h"
#include "kernels/block_products.h"
#include "support/compare.h"

namespace kvgauge {

inline constexpr BlockFormat kFormats[] = {BlockFormat::kQ80, BlockFormat::kQ40, BlockFormat::kQ4K,
                                           BlockFormat::kQ6K};

// Where a block has its halves.
inline std::vector<int64_t> HalvesOf(BlockFormat format) {
  if (format == BlockFormat::kQ4K) return {0, 2};
  return {format == BlockFormat::kQ6K ? 208 : 0};
}

// Rows of random codes and scales at an odd address, some scales 0, negative or subnormal.
struct BlockMatrix {
  BlockMatrix(BlockFormat format, int64_t n, int64_t k, uint64_t seed) : columns(k) {
    const BlockShape& shape = BlockShapeOf(format);
    const int64_t row_blocks = k / shape.elements, row_bytes = row_blocks * shape.bytes;
    bytes.resize(static_cast<size_t>(n * row_bytes + 1));
    Rng rng(seed, 3);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.NextBelow(256));
    const float size = format == BlockFormat::kQ80 || format == BlockFormat::kQ40 ? 1e-2f : 1e-3f;
    for (int64_t i = 0; i < n * row_blocks; ++i) {
      for (const int64_t at : HalvesOf(format)) {
        const uint64_t kind = rng.NextBelow(16);
        const float scale = kind == 0   ? 0.0f
                            : kind == 1 ? 3e-7f
                                        : size * static_cast<float>(rng.NextGaussian());
        const uint16_t half = F32ToF16(scale);
        std::memcpy(bytes.data() + 1 + i * shape.bytes + at, &half, 2);
      }
    }
    rows.format = format;
    values.resize(static_cast<size_t>(n * k));
    for (int64_t row = 0; row < n; ++row) {
      rows.blocks.push_back(bytes.data() + 1 + row * row_bytes);
      for (int64_t i = 0; i < row_blocks; ++i) {
        ReadBlock(format, rows.blocks.back() + i * shape.bytes,
                  values.data() + row * k + i * shape.elements);
      }
    }
  }
  Tensor Values() const {
    return View(values, {static_cast<int64_t>(values.size()) / columns, columns});
  }

  int64_t columns;
  std::vector<uint8_t> bytes;
  StoredRows rows;
  std::vector<float> values;  // dequantised, [n, k]
};

inline std::vector<float> Times(LinearOps& ops, std::span<const float> x, int64_t m,
                                const PackedMatrix& w) {
  std::vector<float> out(static_cast<size_t>(m * w.out_features()), kNan);
  ops.MatMul(View(x, {m, w.in_features()}), w, {}, MatMulMode::kSet,
             View(out, {m, w.out_features()}));
  return out;
}

}  // namespace kvgauge
