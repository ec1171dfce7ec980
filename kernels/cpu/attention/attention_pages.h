// SPDX-License-Identifier: Apache-2.0
// How the cpu backend lays out the entries of a KV page (panels: see attention_kernels.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/attention/attention_kernels.h"

namespace kvgauge {

struct PageLayout {
  DType dtype;
  int element_bytes;
  int key_dim, value_dim;
  int key_steps;    // key_dim; even in bf16
  int value_width;  // value_dim rounded up to 16
  bool by_entry;    // entries are rows, [64][key_steps] and [64][value_width], not panels

  explicit PageLayout(const KvFormat& format)
      : dtype(format.dtype),
        element_bytes(static_cast<int>(SizeOf(format.dtype))),
        key_dim(static_cast<int>(format.key_dim)),
        value_dim(static_cast<int>(format.value_dim)),
        key_steps(format.dtype == DType::kBF16 ? (key_dim + 1) / 2 * 2 : key_dim),
        value_width((value_dim + kVectorFloats - 1) / kVectorFloats * kVectorFloats),
        by_entry(format.by_entry) {}

  int64_t KeyBytes() const { return int64_t{kPanelWidth} * key_steps * element_bytes; }
  int64_t ValueBytes() const { return int64_t{kKvPageEntries} * value_width * element_bytes; }
  // An entry's row, by_entry.
  int64_t KeyRowBytes() const { return int64_t{key_steps} * element_bytes; }
  int64_t ValueRowBytes() const { return int64_t{value_width} * element_bytes; }

  // Value panels of a page: panel g holds dims [64 g, 64 g + PanelDims(g)).
  int ValuePanels() const { return (value_width + kPanelWidth - 1) / kPanelWidth; }
  int PanelDims(int g) const { return std::min(kPanelWidth, value_width - g * kPanelWidth); }
  int64_t PanelOffset(int g) const {
    return int64_t{g} * kPanelWidth * kKvPageEntries * element_bytes;
  }
};

// f32 to the page's type, n values; out: uint16_t or float.
void RoundValues(const AttentionKernels& kernels, DType dtype, const float* in, int64_t n,
                 void* out);

// Entries [begin, end) of one page. keys / values point at the first entry's dims.
void WriteKeys(const AttentionKernels& kernels, const PageLayout& layout, const float* keys,
               int64_t stride, int begin, int end, void* page);
void WriteValues(const AttentionKernels& kernels, const PageLayout& layout, const float* values,
                 int64_t stride, int begin, int end, void* page);
void ReadKeys(const AttentionKernels& kernels, const PageLayout& layout, const void* page,
              int begin, int end, float* keys, int64_t stride);
void ReadValues(const AttentionKernels& kernels, const PageLayout& layout, const void* page,
                int begin, int end, float* values, int64_t stride);

// Entries `slots` of one page, `count` of them, become those from `to` on of another; or of the
// same one, where slots ascend and none moves up.
void CopyKeys(const PageLayout& layout, const void* source, const uint8_t* slots, int count,
              void* target, int to);
void CopyValues(const PageLayout& layout, const void* source, const uint8_t* slots, int count,
                void* target, int to);

// The rows of a page of values by_entry become panels.
void PanelsOfValueRows(const PageLayout& layout, const void* page, void* panels);

}  // namespace kvgauge
