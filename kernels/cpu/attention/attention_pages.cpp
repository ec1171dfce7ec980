// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention/attention_pages.h"

#include <bit>
#include <cstring>

namespace kvgauge {
namespace {

constexpr int kStrip = 64;  // dims converted at a time, so that scratch stays on the stack

// Where a value element lies inside its panel of `width` dims.
int64_t ValueIndex(DType dtype, int entry, int dim, int width) {
  if (dtype != DType::kBF16) return int64_t{entry} * width + dim;
  return (int64_t{entry / 2} * width + dim) * 2 + entry % 2;
}
int64_t KeyIndex(DType dtype, int entry, int dim) {
  if (dtype != DType::kBF16) return int64_t{dim} * kPanelWidth + entry;
  return (int64_t{dim / 2} * kPanelWidth + entry) * 2 + dim % 2;
}

float Decode(DType dtype, const void* base, int64_t index) {
  if (dtype == DType::kF32) return static_cast<const float*>(base)[index];
  const uint16_t bits = static_cast<const uint16_t*>(base)[index];
  return dtype == DType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
}

// From this many entries of a page on, the page is widened whole.
constexpr int kWholePage = 8;

// A panel [steps][width] as f32: itself, or widened into `strip`.
const float* Widened(const AttentionKernels& kernels, DType dtype, const void* panel, int steps,
                     int width, float* strip) {
  if (dtype == DType::kF32) return static_cast<const float*>(panel);
  kernels.expand[static_cast<int>(dtype)](panel, steps, width, strip);
  return strip;
}

// Four rows of four elements of 4 bytes become columns.
template <class T>
void TransposeBlock(const T* in, int64_t in_stride, T* out, int64_t out_stride) {
  using Four = uint32_t __attribute__((vector_size(16)));
  Four a, b, c, d;
  std::memcpy(&a, in, sizeof a);
  std::memcpy(&b, in + in_stride, sizeof b);
  std::memcpy(&c, in + 2 * in_stride, sizeof c);
  std::memcpy(&d, in + 3 * in_stride, sizeof d);
  const Four ac = __builtin_shufflevector(a, c, 0, 4, 1, 5);
  const Four bd = __builtin_shufflevector(b, d, 0, 4, 1, 5);
  const Four ac_high = __builtin_shufflevector(a, c, 2, 6, 3, 7);
  const Four bd_high = __builtin_shufflevector(b, d, 2, 6, 3, 7);
  const Four columns[4] = {__builtin_shufflevector(ac, bd, 0, 4, 1, 5),
                           __builtin_shufflevector(ac, bd, 2, 6, 3, 7),
                           __builtin_shufflevector(ac_high, bd_high, 0, 4, 1, 5),
                           __builtin_shufflevector(ac_high, bd_high, 2, 6, 3, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(out + i * out_stride, &columns[i], sizeof columns[i]);
}

// Two rows of bf16 values become a pair of steps.
void PairRows(const uint16_t* first, const uint16_t* second, int width, uint16_t* pairs) {
  using Eight = uint16_t __attribute__((vector_size(16)));
  for (int d = 0; d < width; d += 8, first += 8, second += 8, pairs += 16) {
    Eight a, b;
    std::memcpy(&a, first, sizeof a);
    std::memcpy(&b, second, sizeof b);
    const Eight low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    const Eight high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    std::memcpy(pairs, &low, sizeof low);
    std::memcpy(pairs + 8, &high, sizeof high);
  }
}

// A row of elements as f32.
void WidenRow(const AttentionKernels& kernels, DType dtype, const void* row, int count,
              float* out) {
  if (dtype == DType::kBF16) {
    const auto* bits = static_cast<const uint16_t*>(row);
    for (int d = 0; d < count; ++d) out[d] = Bf16ToF32(bits[d]);
    return;
  }
  int whole = 0;
  if (dtype == DType::kF16) {
    whole = count / kVectorFloats * kVectorFloats;
    if (whole > 0) kernels.expand[static_cast<int>(dtype)](row, 1, whole, out);
  }
  for (int d = whole; d < count; ++d) out[d] = Decode(dtype, row, d);
}

// One of the two bf16 entries of a row of pairs as f32: the low halves, or the high ones.
void WidenHalves(const uint32_t* pairs, bool high, int count, float* out) {
  const uint32_t mask = high ? 0xffff0000u : 0xffffffffu;
  const int shift = high ? 0 : 16;
#pragma omp simd
  for (int d = 0; d < count; ++d) out[d] = std::bit_cast<float>((pairs[d] & mask) << shift);
}

// in [rows][columns] -> out [columns][rows]. T is one element, or a bf16 pair.
template <class T>
void Transpose(const T* in, int64_t in_stride, int rows, int columns, T* out, int64_t out_stride) {
  const int whole_rows = sizeof(T) == 4 ? rows / 4 * 4 : 0;
  const int whole_columns = sizeof(T) == 4 ? columns / 4 * 4 : 0;
  for (int r = 0; r < whole_rows; r += 4) {
    for (int c = 0; c < whole_columns; c += 4) {
      TransposeBlock(in + r * in_stride + c, in_stride, out + c * out_stride + r, out_stride);
    }
  }
  for (int c = 0; c < columns; ++c) {
    for (int r = c < whole_columns ? whole_rows : 0; r < rows; ++r) {
      out[c * out_stride + r] = in[r * in_stride + c];
    }
  }
}

}  // namespace

void RoundValues(const AttentionKernels& kernels, DType dtype, const float* in, int64_t n,
                 void* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, in, sizeof(float) * static_cast<size_t>(n));
  } else if (dtype == DType::kF16) {
    kernels.to_f16(in, n, static_cast<uint16_t*>(out));
  } else {
    kernels.to_bf16(in, n, static_cast<uint16_t*>(out));
  }
}

void WriteKeys(const AttentionKernels& kernels, const PageLayout& layout, const float* keys,
               int64_t stride, int begin, int end, void* page) {
  if (layout.by_entry) {
    for (int e = begin; e < end; ++e) {
      RoundValues(kernels, layout.dtype, keys + (e - begin) * stride, layout.key_dim,
                  static_cast<char*>(page) + e * layout.KeyRowBytes());
    }
    return;
  }
  alignas(64) char strip[kKvPageEntries * kStrip * sizeof(float)];
  const int size = layout.element_bytes, entries = end - begin;
  for (int dim = 0; dim < layout.key_dim; dim += kStrip) {
    const int dims = std::min(kStrip, layout.key_dim - dim);
    for (int e = 0; e < entries; ++e) {
      char* row = strip + e * kStrip * size;
      RoundValues(kernels, layout.dtype, keys + e * stride + dim, dims, row);
      if (dims % 2 == 1) std::memset(row + dims * size, 0, static_cast<size_t>(size));
    }
    char* panel = static_cast<char*>(page) + int64_t{dim} * kPanelWidth * size;
    if (layout.dtype == DType::kBF16) {
      Transpose(reinterpret_cast<const uint32_t*>(strip), kStrip / 2, entries, (dims + 1) / 2,
                reinterpret_cast<uint32_t*>(panel) + begin, kPanelWidth);
    } else if (layout.dtype == DType::kF16) {
      Transpose(reinterpret_cast<const uint16_t*>(strip), kStrip, entries, dims,
                reinterpret_cast<uint16_t*>(panel) + begin, kPanelWidth);
    } else {
      Transpose(reinterpret_cast<const float*>(strip), kStrip, entries, dims,
                reinterpret_cast<float*>(panel) + begin, kPanelWidth);
    }
  }
}

void WriteValues(const AttentionKernels& kernels, const PageLayout& layout, const float* values,
                 int64_t stride, int begin, int end, void* page) {
  for (int e = begin; layout.by_entry && e < end; ++e) {
    RoundValues(kernels, layout.dtype, values + (e - begin) * stride, layout.value_dim,
                static_cast<char*>(page) + e * layout.ValueRowBytes());
  }
  if (layout.by_entry) return;
  for (int g = 0; g < layout.ValuePanels(); ++g) {
    const int width = layout.PanelDims(g), dim = g * kPanelWidth;
    const int dims = std::min(width, layout.value_dim - dim);
    char* panel = static_cast<char*>(page) + layout.PanelOffset(g);
    for (int e = begin; e < end; ++e) {
      const float* in = values + (e - begin) * stride + dim;
      if (layout.dtype != DType::kBF16) {
        RoundValues(kernels, layout.dtype, in, dims, panel + e * width * layout.element_bytes);
        continue;
      }
      uint16_t row[kPanelWidth] = {}, second[kPanelWidth] = {};
      kernels.to_bf16(in, dims, row);
      auto* pairs = reinterpret_cast<uint16_t*>(panel) + int64_t{e / 2} * width * 2 + e % 2;
      if (e % 2 == 0 && e + 1 < end) {
        kernels.to_bf16(in + stride, dims, second);
        PairRows(row, second, width, pairs);
        ++e;
        continue;
      }
      for (int d = 0; d < dims; ++d) pairs[2 * d] = row[d];
    }
  }
}

void ReadKeys(const AttentionKernels& kernels, const PageLayout& layout, const void* page,
              int begin, int end, float* keys, int64_t stride) {
  if (layout.by_entry) {
    for (int e = begin; e < end; ++e) {
      WidenRow(kernels, layout.dtype, static_cast<const char*>(page) + e * layout.KeyRowBytes(),
               layout.key_dim, keys + (e - begin) * stride);
    }
    return;
  }
  if (end - begin < kWholePage) {
    for (int e = begin; e < end; ++e) {
      if (layout.dtype == DType::kBF16) {
        const auto* pairs = static_cast<const uint16_t*>(page) + 2 * e;
        for (int d = 0; d < layout.key_dim; ++d) {
          keys[(e - begin) * stride + d] = Bf16ToF32(pairs[d / 2 * kPanelWidth * 2 + d % 2]);
        }
        continue;
      }
      for (int d = 0; d < layout.key_dim; ++d) {
        keys[(e - begin) * stride + d] = Decode(layout.dtype, page, KeyIndex(layout.dtype, e, d));
      }
    }
    return;
  }
  alignas(64) float strip[kStrip * kPanelWidth];
  for (int dim = 0; dim < layout.key_dim; dim += kStrip) {
    const int steps = std::min(kStrip, layout.key_steps - dim);
    const int dims = std::min(kStrip, layout.key_dim - dim);
    const char* panel =
        static_cast<const char*>(page) + int64_t{dim} * kPanelWidth * layout.element_bytes;
    const float* wide = Widened(kernels, layout.dtype, panel, steps, kPanelWidth, strip);
    Transpose(wide + begin, kPanelWidth, dims, end - begin, keys + dim, stride);
  }
}

void ReadValues(const AttentionKernels& kernels, const PageLayout& layout, const void* page,
                int begin, int end, float* values, int64_t stride) {
  if (layout.by_entry) {
    for (int e = begin; e < end; ++e) {
      WidenRow(kernels, layout.dtype, static_cast<const char*>(page) + e * layout.ValueRowBytes(),
               layout.value_dim, values + (e - begin) * stride);
    }
    return;
  }
  alignas(64) float strip[kKvPageEntries * kPanelWidth];
  for (int g = 0; g < layout.ValuePanels(); ++g) {
    const int width = layout.PanelDims(g), dim = g * kPanelWidth;
    const int dims = std::min(width, layout.value_dim - dim);
    const char* panel = static_cast<const char*>(page) + layout.PanelOffset(g);
    if (end - begin < kWholePage) {
      for (int e = begin; e < end; ++e) {
        if (layout.dtype == DType::kBF16) {
          const auto* pairs = reinterpret_cast<const uint32_t*>(panel) + int64_t{e / 2} * width;
          WidenHalves(pairs, e % 2 == 1, dims, values + (e - begin) * stride + dim);
          continue;
        }
        for (int d = 0; d < dims; ++d) {
          values[(e - begin) * stride + dim + d] =
              Decode(layout.dtype, panel, ValueIndex(layout.dtype, e, d, width));
        }
      }
      continue;
    }
    const float* wide =
        Widened(kernels, layout.dtype, panel, static_cast<int>(kKvPageEntries), width, strip);
    for (int e = begin; e < end; ++e) {
      std::copy_n(wide + e * width, dims, values + (e - begin) * stride + dim);
    }
  }
}

namespace {

// Slots that follow one another, from the first on.
int RunLength(const uint8_t* slots, int count) {
  int run = 1;
  while (run < count && slots[run] == slots[0] + run) ++run;
  return run;
}

// Rows of a page by_entry.
void CopyRows(const void* source, int64_t row_bytes, const uint8_t* slots, int count, void* target,
              int to) {
  const auto* in = static_cast<const char*>(source);
  auto* out = static_cast<char*>(target) + to * row_bytes;
  for (int done = 0; done < count;) {
    const int run = RunLength(slots + done, count - done);
    std::memmove(out + done * row_bytes, in + slots[done] * row_bytes,
                 static_cast<size_t>(run * row_bytes));
    done += run;
  }
}

template <class Unit>
void CopyKeyRows(const Unit* in, const uint8_t* slots, int count, int rows, Unit* out) {
  int runs = 0;
  for (int done = 0; done < count; ++runs) done += RunLength(slots + done, count - done);
  // Row by row, so that both pages are walked as they lie.
  constexpr int kLongRun = 8;
  if (runs * kLongRun > count) {
    for (int r = 0; r < rows; ++r, in += kPanelWidth, out += kPanelWidth) {
      for (int i = 0; i < count; ++i) out[i] = in[slots[i]];
    }
    return;
  }
  for (int done = 0; done < count;) {
    const int run = RunLength(slots + done, count - done);
    for (int r = 0; r < rows; ++r) {
      std::memmove(out + r * kPanelWidth + done, in + r * kPanelWidth + slots[done],
                   static_cast<size_t>(run) * sizeof(Unit));
    }
    done += run;
  }
}

// A panel of pairs [32][width] holds entry e in the low (e even) or high halves of row e / 2.
// Halves of two rows become a row. In place each target lies at or before what it is made from.
void JoinHalves(const uint32_t* first, int first_shift, const uint32_t* second, int second_shift,
                int width, uint32_t* out) {
#pragma omp simd
  for (int d = 0; d < width; ++d) {
    out[d] = (first[d] >> first_shift & 0xffff) | second[d] >> second_shift << 16;
  }
}

void CopyValuePairs(const uint32_t* in, const uint8_t* slots, int count, int width, uint32_t* out,
                    int to) {
  const auto row = [&](int i) { return in + int64_t{slots[i] / 2} * width; };
  const auto shift = [&](int i) { return slots[i] % 2 * 16; };
  int i = 0;
  if (to % 2 == 1) {
    uint32_t* y = out + int64_t{to / 2} * width;
    JoinHalves(y, 0, row(0), shift(0), width, y);
    i = 1;
  }
  while (i + 1 < count) {
    uint32_t* y = out + int64_t{(to + i) / 2} * width;
    const int run = shift(i) == 0 ? RunLength(slots + i, count - i) / 2 * 2 : 0;
    if (run > 0) {
      std::memmove(y, row(i), static_cast<size_t>(run / 2 * width) * sizeof(uint32_t));
      i += run;
    } else {
      JoinHalves(row(i), shift(i), row(i + 1), shift(i + 1), width, y);
      i += 2;
    }
  }
  if (i == count) return;
  uint32_t* y = out + int64_t{(to + i) / 2} * width;
  JoinHalves(row(i), shift(i), y, 16, width, y);
}

}  // namespace

void CopyKeys(const PageLayout& layout, const void* source, const uint8_t* slots, int count,
              void* target, int to) {
  if (layout.by_entry) {
    return CopyRows(source, layout.KeyRowBytes(), slots, count, target, to);
  }
  if (layout.dtype == DType::kF16) {
    CopyKeyRows(static_cast<const uint16_t*>(source), slots, count, layout.key_steps,
                static_cast<uint16_t*>(target) + to);
    return;
  }
  // A bf16 pair of dims moves as one 32-bit number.
  const int rows = layout.dtype == DType::kBF16 ? layout.key_steps / 2 : layout.key_steps;
  CopyKeyRows(static_cast<const uint32_t*>(source), slots, count, rows,
              static_cast<uint32_t*>(target) + to);
}

void CopyValues(const PageLayout& layout, const void* source, const uint8_t* slots, int count,
                void* target, int to) {
  if (layout.by_entry) {
    return CopyRows(source, layout.ValueRowBytes(), slots, count, target, to);
  }
  for (int g = 0; g < layout.ValuePanels(); ++g) {
    const int width = layout.PanelDims(g);
    const char* in = static_cast<const char*>(source) + layout.PanelOffset(g);
    char* out = static_cast<char*>(target) + layout.PanelOffset(g);
    if (layout.dtype == DType::kBF16) {
      CopyValuePairs(reinterpret_cast<const uint32_t*>(in), slots, count, width,
                     reinterpret_cast<uint32_t*>(out), to);
      continue;
    }
    const int bytes = width * layout.element_bytes;
    CopyRows(in, bytes, slots, count, out, to);
  }
}

void PanelsOfValueRows(const PageLayout& layout, const void* page, void* panels) {
  const int64_t row_bytes = layout.ValueRowBytes();
  const auto* rows = static_cast<const char*>(page);
  for (int g = 0; g < layout.ValuePanels(); ++g) {
    char* panel = static_cast<char*>(panels) + layout.PanelOffset(g);
    const char* in = rows + int64_t{g} * kPanelWidth * layout.element_bytes;
    const int width = layout.PanelDims(g);
    const auto bytes = static_cast<size_t>(width) * static_cast<size_t>(layout.element_bytes);
    for (int e = 0; e < kKvPageEntries; ++e, in += row_bytes, panel += bytes) {
      if (layout.dtype != DType::kBF16) {
        std::memcpy(panel, in, bytes);
      } else if (e % 2 == 0) {
        PairRows(reinterpret_cast<const uint16_t*>(in),
                 reinterpret_cast<const uint16_t*>(in + row_bytes), width,
                 reinterpret_cast<uint16_t*>(panel));
      }
    }
  }
}

}  // namespace kvgauge
