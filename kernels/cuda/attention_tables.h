// SPDX-License-Identifier: Apache-2.0
// Turns items, which are host structures with host lists of pages, into tables that kernels read.
#pragma once

#include <vector>

#include "cuda/attention_view.h"
#include "cuda/call_tables.h"
#include "kernels/attention.h"

namespace kvgauge::cuda {

AttendCall CallOf(const AttentionShape& shape, const Tensor& q);

// Views of the segments of heads, in order.
class SegmentTables {
 public:
  explicit SegmentTables(const AttentionShape& shape) : shape_(shape) {}

  // Room that Fill will need for a head.
  int64_t SizeBytes(const KvHead& head) const;
  // Puts a head's lists; returns the index of its first segment.
  int Fill(const KvHead& head, Tables& tables);

  const std::vector<SegmentView>& views() const { return views_; }

 private:
  SideView SideOf(const KvSegment& segment, KvSide side, Tables& tables);

  const AttentionShape& shape_;
  std::vector<SegmentView> views_;
};

// What views ask of a block's shared memory.
struct SharedNeeds {
  bool keys16 = false, values16 = false;  // pages that are multiplied as they lie
  int expanded_dims = 0;                  // most dims of expanded keys; 0: none
  bool rebuilt = false;                   // keys that are made of latents page by page
  int value_dim = 0;                      // most dims of values as stored
  bool values32 = false;                  // expanded values
  int64_t code_key_bytes = 0;             // pages of codes that are expanded to 16 bits
  int64_t code_value_bytes = 0;
  int latent_values = 0;                  // most dims of latents of values
  int64_t page_bytes = 0;                 // most of a page as it lies, both sides

  void Add(const AttentionShape& shape, const SegmentView& view);
  // Nothing but 16-bit pages that are multiplied as they lie.
  bool plain() const {
    return expanded_dims == 0 && !values32 && code_key_bytes == 0 && code_value_bytes == 0;
  }
};
SharedPlan SpanShared(const AttentionShape& shape, const SharedNeeds& needs, int row_tiles);
SharedPlan CaptureShared(const AttentionShape& shape, const SharedNeeds& needs, int row_tiles);

}  // namespace kvgauge::cuda
