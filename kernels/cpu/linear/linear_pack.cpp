// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear/linear_pack.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "cpu/linear/block_layout.h"

namespace kvgauge {
namespace {

constexpr int64_t kColumns = kPackRows;

// The bits of numbers that are not finite have the whole exponent.
constexpr uint32_t kExponentF32 = 0x7f800000u;
constexpr uint16_t ExponentOf(DType dtype) { return dtype == DType::kF16 ? 0x7c00u : 0x7f80u; }

using Halves = uint16_t __attribute__((vector_size(16)));
using Singles = uint32_t __attribute__((vector_size(16)));

// Copies numbers from any address; false where one is not finite.
template <class Vector, class Bits>
bool CopyFinite(const char* from, int64_t count, Bits exponent, void* to) {
  constexpr int64_t kLanes = sizeof(Vector) / sizeof(Bits);
  Vector found = {};
  int64_t i = 0;
  const auto step = [&](int64_t numbers) {
    Vector v = {};
    const auto bytes = static_cast<size_t>(numbers) * sizeof(Bits);
    std::memcpy(&v, from + i * int64_t{sizeof(Bits)}, bytes);
    found |= Vector((v & exponent) == exponent);
    std::memcpy(static_cast<char*>(to) + i * int64_t{sizeof(Bits)}, &v, bytes);
  };
  for (; i + kLanes <= count; i += kLanes) step(kLanes);
  if (i < count) step(count - i);
  Bits all = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) all |= found[lane];
  return all == 0;
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

int64_t BytesOf(const PackRow& row, int64_t elements) {
  if (row.format) {
    const BlockShape& shape = BlockShapeOf(*row.format);
    return elements / shape.elements * shape.bytes;
  }
  return elements * (row.dtype == DType::kF32 ? 4 : 2);
}

// Elements of a row that is packed soon. Rows lie apart, so that the processor does not guess.
void Prefetch(const PackRow& row, int64_t first, int64_t count) {
  if (row.data == nullptr) return;
  const char* const from = static_cast<const char*>(row.data) + BytesOf(row, first);
  const int64_t bytes = BytesOf(row, count);
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
}

// Copies whole lines to where they are not read soon, past the caches.
void CopyPast(const uint8_t* from, int64_t bytes, uint8_t* to) {
#ifdef __SSE2__
  for (int64_t i = 0; i < bytes; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
  _mm_sfence();
#else
  std::memcpy(to, from, static_cast<size_t>(bytes));
#endif
}

// Packs the first words of rows that need no conversion, where a stage would only be a copy. The
// number of elements that it has packed.
int64_t PackRows(const LinearKernels& kernels, const PackRow* rows, const PackRow* next, int64_t k,
                 DType store, void* to, bool* finite) {
  if (kernels.transpose_rows == nullptr || store == DType::kF16) return 0;
  const char *from[kColumns], *soon[kColumns];
  for (int64_t c = 0; c < kColumns; ++c) {
    if (rows[c].data == nullptr || rows[c].format || rows[c].dtype != store) return 0;
    from[c] = static_cast<const char*>(rows[c].data);
    const bool alike = next != nullptr && next[c].data != nullptr && next[c].dtype == store;
    soon[c] = alike ? static_cast<const char*>(next[c].data) : from[c];
  }
  const int64_t per_word = store == DType::kF32 ? 1 : 2, words = k / per_word / 16 * 16;
  *finite = kernels.transpose_rows(from, next == nullptr ? nullptr : soon, words, store,
                                   static_cast<uint32_t*>(to));
  return words * per_word;
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

// The same elements of a row in blocks, for panels whose rows are not all stored alike. False where
// some may not be finite.
bool StageBlocks(const LinearKernels& kernels, const PackRow& row, int64_t first, int64_t count,
                 DType store, void* to) {
  const BlockShape& shape = BlockShapeOf(*row.format);
  float values[kConvertChunk];
  const auto* const blocks = static_cast<const uint8_t*>(row.data);
  float numbers[kMostBlockElements];
  bool finite = true;
  for (int64_t i = 0; i < count;) {
    const int64_t block = (first + i) / shape.elements, skip = (first + i) % shape.elements;
    const int64_t some = std::min(shape.elements - skip, count - i);
    ReadBlock(*row.format, blocks + block * shape.bytes, numbers);
    finite &= SurelyFinite(*row.format, blocks + block * shape.bytes, 1, store);
    std::memcpy(values + i, numbers + skip, static_cast<size_t>(some) * sizeof(float));
    i += some;
  }
  StageValues(kernels, values, count, store, to);
  return finite;
}

// Elements [first, first + count) of a row, rounded to `store`, into a stage row. False where some
// of them, as they are stored, may not be finite.
bool StageRow(const LinearKernels& kernels, const PackRow& row, int64_t first, int64_t count,
              DType store, void* to) {
  if (row.format) return StageBlocks(kernels, row, first, count, store, to);
  const int64_t size = row.dtype == DType::kF32 ? 4 : 2;
  const char* from = static_cast<const char*>(row.data) + first * size;
  if (row.dtype == store && size == 4) return CopyFinite<Singles>(from, count, kExponentF32, to);
  if (row.dtype == store) return CopyFinite<Halves>(from, count, ExponentOf(store), to);
  float values[kConvertChunk];
  LoadAsF32(kernels, from, row.dtype, count, values);
  StageValues(kernels, values, count, store, to);
  return CopyFinite<Singles>(reinterpret_cast<const char*>(values), count, kExponentF32, values);
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

bool PackPanel(const LinearKernels& kernels, const PackRow* rows, const PackRow* next, int64_t k,
               DType store, void* to) {
  alignas(64) uint32_t stage[kColumns * kStageWords] = {};
  alignas(64) uint32_t pairs[kColumns * kChunkWords];
  bool finite = true;
  const int64_t per_word = store == DType::kF32 ? 1 : 2;
  const int64_t chunk = kChunkWords * per_word;
  const int64_t packed = PackRows(kernels, rows, next, k, store, to, &finite);
  for (int64_t first = packed; first < k; first += chunk) {
    const int64_t count = std::min(chunk, k - first);
    const int64_t words = (count + per_word - 1) / per_word;
    // The value that completes the last pair of an odd k; earlier chunks left something there.
    if (count % per_word != 0) std::memset(stage, 0, sizeof(stage));
    for (int64_t c = 0; c < kColumns; ++c) {
      if (rows[c].data != nullptr) {
        finite &= StageRow(kernels, rows[c], first, count, store, stage + c * kStageWords);
      }
      if (next != nullptr) Prefetch(next[c], first, count);
    }
    if (store != DType::kF16) {
      auto* out = static_cast<uint32_t*>(to) + first / per_word * kColumns;
      const int64_t quads = words / 4 * 4;
      kernels.transpose(stage, quads, out);
      if (quads < words) {
        kernels.transpose(stage + quads, 4, pairs);
        std::memcpy(out + quads * kColumns, pairs,
                    static_cast<size_t>((words - quads) * kColumns) * sizeof(uint32_t));
      }
    } else {
      kernels.transpose(stage, (words + 3) / 4 * 4, pairs);
      SplitPairs(pairs, words, count, static_cast<uint16_t*>(to) + first * kColumns);
    }
  }
  return finite;
}

bool PackBlocks(const LinearKernels& kernels, const PackRow* rows, const PackRow* next, int64_t k,
                BlockUse use, DType store, void* to) {
  const BlockFormat format = *FormOfPanel(rows);
  const BlockShape& shape = BlockShapeOf(format);
  const auto floats_of =
      kernels.floats_of_blocks[static_cast<int>(format)][static_cast<int>(store)];
  const uint8_t* blocks[kColumns];
  for (int64_t c = 0; c < kColumns; ++c) blocks[c] = static_cast<const uint8_t*>(rows[c].data);
  auto* const panel = static_cast<uint8_t*>(to);
  bool finite = true;
  // Enough of a row at a time that its lines are used whole, and little enough that what is written
  // stays near.
  constexpr int64_t kPartK = 256;
  alignas(64) uint8_t part[kColumns * (kPartK + kPartK / 8)],
      floats[PanelBytes(kPartK, DType::kF32)];
  for (int64_t first = 0; first < k; first += kPartK) {
    const int64_t count = std::min(kPartK, k - first);
    for (int64_t c = 0; c < kColumns; ++c) {
      if (blocks[c] != nullptr) {
        finite &= SurelyFinite(format, blocks[c], count / shape.elements, store);
      }
      if (next != nullptr) Prefetch(next[c], first, count);
    }
    if (use == BlockUse::kKeepByColumn) {
      PackBlocksByColumn(format, blocks, count, part);
    } else {
      PackBlockPanel(format, blocks, count, part);
    }
    if (use == BlockUse::kFloats) {
      floats_of(part, count, floats);
      CopyPast(floats, PanelBytes(count, store), panel + PanelBytes(first, store));
    } else {
      CopyPast(part, BlockPanelBytes(format, count), panel + BlockPanelBytes(format, first));
    }
    for (const uint8_t*& row : blocks) {
      if (row != nullptr) row += count / shape.elements * shape.bytes;
    }
  }
  return finite;
}

void PackPanelF32(const LinearKernels& kernels, const float* rows, int64_t row_stride,
                  int64_t count, int64_t k, float* to) {
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
    kernels.transpose(stage, quads, out);
    if (quads < words) {
      kernels.transpose(stage + quads, 4, last);
      std::memcpy(out + quads * kColumns, last,
                  static_cast<size_t>((words - quads) * kColumns) * sizeof(uint32_t));
    }
  }
}

}  // namespace kvgauge
