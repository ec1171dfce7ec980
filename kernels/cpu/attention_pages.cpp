// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention_pages.h"

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

// The strip [entries][64] of rounded keys becomes columns of the panel. T is one element, or a
// bf16 pair.
template <class T>
void Transpose(const T* strip, int entries, int strip_width, int steps, T* panel) {
  for (int s = 0; s < steps; ++s) {
    for (int e = 0; e < entries; ++e) panel[s * kPanelWidth + e] = strip[e * strip_width + s];
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
      Transpose(reinterpret_cast<const uint32_t*>(strip), entries, kStrip / 2, (dims + 1) / 2,
                reinterpret_cast<uint32_t*>(panel) + begin);
    } else if (layout.dtype == DType::kF16) {
      Transpose(reinterpret_cast<const uint16_t*>(strip), entries, kStrip, dims,
                reinterpret_cast<uint16_t*>(panel) + begin);
    } else {
      Transpose(reinterpret_cast<const float*>(strip), entries, kStrip, dims,
                reinterpret_cast<float*>(panel) + begin);
    }
  }
}

void WriteValues(const AttentionKernels& kernels, const PageLayout& layout, const float* values,
                 int64_t stride, int begin, int end, void* page) {
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
      uint16_t row[kPanelWidth];
      kernels.to_bf16(in, dims, row);
      auto* pairs = reinterpret_cast<uint16_t*>(panel) + int64_t{e / 2} * width * 2 + e % 2;
      for (int d = 0; d < dims; ++d) pairs[2 * d] = row[d];
    }
  }
}

void ReadKeys(const PageLayout& layout, const void* page, int begin, int end, float* keys,
              int64_t stride) {
  for (int e = begin; e < end; ++e) {
    for (int d = 0; d < layout.key_dim; ++d) {
      keys[(e - begin) * stride + d] = Decode(layout.dtype, page, KeyIndex(layout.dtype, e, d));
    }
  }
}

void ReadValues(const PageLayout& layout, const void* page, int begin, int end, float* values,
                int64_t stride) {
  for (int e = begin; e < end; ++e) {
    for (int d = 0; d < layout.value_dim; ++d) {
      const int g = d / kPanelWidth;
      const int64_t index = ValueIndex(layout.dtype, e, d % kPanelWidth, layout.PanelDims(g));
      values[(e - begin) * stride + d] =
          Decode(layout.dtype, static_cast<const char*>(page) + layout.PanelOffset(g), index);
    }
  }
}

}  // namespace kvgauge
