// SPDX-License-Identifier: Apache-2.0
// Turns items, which are host structures with host lists of pages, into tables that kernels read.
#pragma once

#include <vector>

#include "cuda/attention_view.h"
#include "cuda/call_tables.h"
#include "cuda/device/mapped.h"
#include "cuda/page_fetch.h"
#include "kernels/attention.h"

namespace kvgauge::cuda {

AttendCall CallOf(const AttentionShape& shape, const Tensor& q);

// Views of the segments of heads, in order.
class SegmentTables {
 public:
  // `on_host`, if any: pages on the host that the tables name are added there, head by head.
  explicit SegmentTables(const AttentionShape& shape, std::vector<HostPage>* on_host = nullptr)
      : shape_(shape), on_host_(on_host) {}

  // Room that Fill will need for a head.
  int64_t SizeBytes(const KvHead& head) const;
  // Puts a head's lists; returns the index of its first segment.
  int Fill(const KvHead& head, Tables& tables);

  const std::vector<SegmentView>& views() const { return views_; }

 private:
  SideView SideOf(const KvSegment& segment, KvSide side, Tables& tables);
  // `entry`: where a table has the address of page `index`.
  template <class T>
  void AddOnHost(const KvSegment& segment, int64_t index, int64_t size_bytes, T** entry) {
    if (on_host_ == nullptr || !mapped_.Holds(*entry)) return;
    on_host_->push_back({reinterpret_cast<std::byte*>(entry), *entry, size_bytes, segment.read,
                         static_cast<int>(views_.size()), static_cast<int>(index)});
  }

  const AttentionShape& shape_;
  std::vector<HostPage>* on_host_;
  MappedLookup mapped_;
  std::vector<SegmentView> views_;
};

// What views ask of a block's shared memory.
struct SharedNeeds {
  bool keys16 = false, values16 = false;  // pages that are multiplied as they lie
  int expanded_dims = 0;                  // most dims of expanded keys; 0: none
  bool rebuilt = false;                   // keys that are made of latents page by page
  int value_dim = 0;                      // most dims of values as stored
  bool values32 = false;                  // expanded values
  bool narrow_codes = false;              // codes that are expanded to 16-bit pages
  int latent_values = 0;                  // most dims of latents of values
  int64_t page_bytes = 0;                 // most of a page as it lies, both sides

  // first_page: what comes before is met otherwise.
  void Add(const AttentionShape& shape, const SegmentView& view, int first_page = 0);
  // Nothing but 16-bit pages that are multiplied as they lie.
  bool plain() const { return expanded_dims == 0 && !values32 && !narrow_codes; }
};
SharedPlan SpanShared(const AttentionShape& shape, const SharedNeeds& needs, int row_tiles);
SharedPlan CaptureShared(const AttentionShape& shape, const SharedNeeds& needs, int row_tiles);

}  // namespace kvgauge::cuda
