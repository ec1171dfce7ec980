// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear/linear_pack.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace kvgauge {
namespace {

constexpr int64_t kColumns = 64;
// Words of 32 bits (one f32, or two 16-bit values) of each row that are transposed at once: 64 rows
// of them fit L1.
constexpr int64_t kChunkWords = 64;
// Rows are a multiple of 4 KiB apart in most models; the staged copy is not, or all 64 rows would
// compete for the same cache sets.
constexpr int64_t kStageWords = kChunkWords + 4;

using Words = uint32_t __attribute__((vector_size(16)));

Words LoadWords(const uint32_t* p) {
  Words v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
void StoreWords(uint32_t* p, Words v) { std::memcpy(p, &v, sizeof(v)); }

// to[word][64] = stage[64][word], words a multiple of 4 (the stage is padded).
void Transpose(const uint32_t* stage, int64_t words, uint32_t* to) {
  for (int64_t w = 0; w < words; w += 4) {
    for (int64_t c = 0; c < kColumns; c += 4) {
      const uint32_t* from = stage + c * kStageWords + w;
      const Words a = LoadWords(from), b = LoadWords(from + kStageWords);
      const Words d = LoadWords(from + 2 * kStageWords), e = LoadWords(from + 3 * kStageWords);
      const Words ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
      const Words ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const Words de_low = __builtin_shufflevector(d, e, 0, 4, 1, 5);
      const Words de_high = __builtin_shufflevector(d, e, 2, 6, 3, 7);
      uint32_t* out = to + w * kColumns + c;
      StoreWords(out, __builtin_shufflevector(ab_low, de_low, 0, 1, 4, 5));
      StoreWords(out + kColumns, __builtin_shufflevector(ab_low, de_low, 2, 3, 6, 7));
      StoreWords(out + 2 * kColumns, __builtin_shufflevector(ab_high, de_high, 0, 1, 4, 5));
      StoreWords(out + 3 * kColumns, __builtin_shufflevector(ab_high, de_high, 2, 3, 6, 7));
    }
  }
}

// Rows of pairs [2][64] from pairs [64][2]; little-endian: the even value is the low half.
void SplitPairs(const uint32_t* pairs, int64_t words, int64_t k, uint16_t* to) {
  for (int64_t w = 0; w < words; ++w) {
    const uint32_t* from = pairs + w * kColumns;
    uint16_t* even = to + 2 * w * kColumns;
    for (int64_t c = 0; c < kColumns; ++c) even[c] = static_cast<uint16_t>(from[c]);
    if (2 * w + 1 == k) return;
    uint16_t* odd = even + kColumns;
    for (int64_t c = 0; c < kColumns; ++c) odd[c] = static_cast<uint16_t>(from[c] >> 16);
  }
}

void PrefetchBytes(const char* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 0);
}

void StageValues(const LinearKernels& kernels, const float* values, int64_t count, DType store,
                 void* to) {
  if (store == DType::kF32) {
    std::memcpy(to, values, static_cast<size_t>(count) * sizeof(float));
  } else if (store == DType::kF16) {
    kernels.f32_to_f16(values, count, static_cast<uint16_t*>(to));
  } else {
    kernels.f32_to_bf16(values, count, static_cast<uint16_t*>(to));
  }
}

// The same elements of a row in blocks, for panels whose rows are not all stored alike.
void StageBlocks(const LinearKernels& kernels, const PackRow& row, int64_t first, int64_t count,
                 DType store, void* to) {
  const BlockShape& shape = BlockShapeOf(*row.format);
  float values[kConvertChunk];
  float numbers[kMostBlockElements];
  for (int64_t i = 0; i < count;) {
    const int64_t block = (first + i) / shape.elements, skip = (first + i) % shape.elements;
    const int64_t some = std::min(shape.elements - skip, count - i);
    ReadBlock(*row.format, static_cast<const uint8_t*>(row.data) + block * shape.bytes, numbers);
    std::memcpy(values + i, numbers + skip, static_cast<size_t>(some) * sizeof(float));
    i += some;
  }
  StageValues(kernels, values, count, store, to);
}

// Elements [first, first + count) of a row, rounded to `store`, into a stage row.
void StageRow(const LinearKernels& kernels, const PackRow& row, int64_t first, int64_t count,
              DType store, void* to) {
  if (row.format) {
    StageBlocks(kernels, row, first, count, store, to);
    return;
  }
  const int64_t size = row.dtype == DType::kF32 ? 4 : 2;
  const char* from = static_cast<const char*>(row.data) + first * size;
  PrefetchBytes(from + count * size, count * size);
  if (row.dtype == store) {
    std::memcpy(to, from, static_cast<size_t>(count * size));
    return;
  }
  float values[kConvertChunk];
  LoadAsF32(kernels, from, row.dtype, count, values);
  StageValues(kernels, values, count, store, to);
}

}  // namespace

std::optional<BlockFormat> FormOfPanel(const PackRow* rows) {
  const PackRow& first = rows[0];
  for (int64_t c = 1; c < kColumns; ++c) {
    if (rows[c].data != nullptr && rows[c].format != first.format) return std::nullopt;
  }
  return first.format;
}

void LoadAsF32(const LinearKernels& kernels, const void* from, DType dtype, int64_t count,
               float* to) {
  KVG_CHECK(count <= kConvertChunk, "chunk too long");
  if (dtype == DType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  uint16_t bits[kConvertChunk];
  std::memcpy(bits, from, static_cast<size_t>(count) * sizeof(uint16_t));
  if (dtype == DType::kF16) {
    kernels.f16_to_f32(bits, count, to);
  } else {
    kernels.bf16_to_f32(bits, count, to);
  }
}

void PackPanel(const LinearKernels& kernels, const PackRow* rows, int64_t k, DType store,
               void* to) {
  alignas(64) uint32_t stage[kColumns * kStageWords] = {};
  alignas(64) uint32_t pairs[kColumns * (kChunkWords)];
  const int64_t per_word = store == DType::kF32 ? 1 : 2;
  const int64_t chunk = kChunkWords * per_word;
  for (int64_t first = 0; first < k; first += chunk) {
    const int64_t count = std::min(chunk, k - first);
    const int64_t words = (count + per_word - 1) / per_word;
    // The value that completes the last pair of an odd k; earlier chunks left something there.
    if (count % per_word != 0) std::memset(stage, 0, sizeof(stage));
    for (int64_t c = 0; c < kColumns; ++c) {
      if (rows[c].data != nullptr) {
        StageRow(kernels, rows[c], first, count, store, stage + c * kStageWords);
      }
    }
    if (store != DType::kF16) {
      auto* out = static_cast<uint32_t*>(to) + first / per_word * kColumns;
      const int64_t quads = words / 4 * 4;
      Transpose(stage, quads, out);
      if (quads < words) {
        Transpose(stage + quads, 4, pairs);
        std::memcpy(out + quads * kColumns, pairs,
                    static_cast<size_t>((words - quads) * kColumns) * sizeof(uint32_t));
      }
    } else {
      Transpose(stage, (words + 3) / 4 * 4, pairs);
      SplitPairs(pairs, words, count, static_cast<uint16_t*>(to) + first * kColumns);
    }
  }
}

void PackPanelF32(const float* rows, int64_t row_stride, int64_t count, int64_t k, float* to) {
  alignas(64) uint32_t stage[kColumns * kStageWords] = {};
  alignas(64) uint32_t last[kColumns * 4];
  for (int64_t first = 0; first < k; first += kChunkWords) {
    const int64_t words = std::min(kChunkWords, k - first);
    for (int64_t c = 0; c < count; ++c) {
      std::memcpy(stage + c * kStageWords, rows + c * row_stride + first,
                  static_cast<size_t>(words) * sizeof(float));
    }
    auto* out = reinterpret_cast<uint32_t*>(to) + first * kColumns;
    const int64_t quads = words / 4 * 4;
    Transpose(stage, quads, out);
    if (quads < words) {
      Transpose(stage + quads, 4, last);
      std::memcpy(out + quads * kColumns, last,
                  static_cast<size_t>((words - quads) * kColumns) * sizeof(uint32_t));
    }
  }
}

}  // namespace kvgauge
