// SPDX-License-Identifier: Apache-2.0
#include "src/vision/attention.h"

namespace kvgauge {

SegmentAttention::SegmentAttention(std::span<const RowRange> segments, const AttentionShape& shape,
                                   Ops& ops)
    : shape_(shape), ops_(ops) {
  const auto pages_of = [](int64_t rows) { return (rows + kKvPageEntries - 1) / kKvPageEntries; };
  int64_t pages = 0;  // of one head; each segment begins one, so that its sums know no neighbours
  for (const RowRange& segment : segments) pages += pages_of(segment.rows);
  const int64_t heads = shape_.kv_heads;
  const int64_t key_bytes = ops_.attention->KeyPageBytes(shape_.format);
  const int64_t value_bytes = ops_.attention->ValuePageBytes(shape_.format);
  keys_ = ops_.memory->Allocate(heads * pages * key_bytes);
  values_ = ops_.memory->Allocate(heads * pages * value_bytes);
  for (int64_t h = 0; h < heads; ++h) {
    std::vector<void*>& key_pages = key_pages_.emplace_back();
    std::vector<void*>& value_pages = value_pages_.emplace_back();
    for (int64_t p = 0; p < pages; ++p) {
      key_pages.push_back(static_cast<char*>(keys_.data()) + (h * pages + p) * key_bytes);
      value_pages.push_back(static_cast<char*>(values_.data()) + (h * pages + p) * value_bytes);
    }
  }

  int64_t page = 0, written_page = 0;
  RowRange together;
  for (const RowRange& segment : segments) {
    if (together.rows % kKvPageEntries != 0) {
      together = {};
    }
    if (together.rows == 0) {
      together.first = segment.first;
      written_page = page;
      writes_.emplace_back();
    }
    together.rows += segment.rows;
    writes_.back().rows = together;
    if (writes_.back().heads.empty()) {
      for (size_t h = 0; h < static_cast<size_t>(heads); ++h) {
        writes_.back().heads.push_back(
            {key_pages_[h].data() + written_page, value_pages_[h].data() + written_page, 0});
      }
    }
    for (size_t h = 0; h < static_cast<size_t>(heads); ++h) {
      KvSegment& stored = stored_.emplace_back();
      stored.key_pages = key_pages_[h].data() + page;
      stored.value_pages = value_pages_[h].data() + page;
      stored.length = segment.rows;
    }
    page += pages_of(segment.rows);
  }
  for (const KvSegment& stored : stored_) heads_.push_back({&stored, 1});
  for (size_t i = 0; i < segments.size(); ++i) {
    AttentionItem& item = items_.emplace_back();
    item.first_row = segments[i].first;
    item.rows = segments[i].rows;
    item.first_position = kSeesAll;
    item.heads =
        std::span(heads_).subspan(i * static_cast<size_t>(heads), static_cast<size_t>(heads));
  }
}

void SegmentAttention::Run(const Tensor& q, const Tensor& k, const Tensor& v, Tensor out,
                           const Tensor& log_sum_exp) {
  for (const Write& write : writes_) {
    const int64_t begin = write.rows.first, end = begin + write.rows.rows;
    ops_.attention->WriteKv(shape_.format, k.Slice(begin, end), v.Slice(begin, end), write.heads);
  }
  ops_.attention->Attend(shape_, items_, q, out, {.log_sum_exp = log_sum_exp, .entropy = {}});
}

void SegmentAttention::Received(size_t segment, bool from_first, const Tensor& q,
                                const Tensor& log_sum_exp, Tensor out) {
  AttentionItem item = items_[segment];
  if (from_first) {
    item.rows = 1;
    ops_.attention->WindowProbabilities(shape_, item, q, log_sum_exp,
                                        out.Reshape({out.shape[0], 1, out.shape[1]}));
    return;
  }
  ColumnRequest all;
  all.rows = item.rows;
  ops_.attention->ReduceColumns(shape_, item, q, log_sum_exp, all, out);
  ops_.rows->Affine(out, 1.0f / static_cast<float>(item.rows), 0, out);
}

}  // namespace kvgauge
