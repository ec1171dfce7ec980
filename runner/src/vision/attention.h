// SPDX-License-Identifier: Apache-2.0
// Attention of an encoder: rows of a segment see each other, and no others.
#pragma once

#include <span>
#include <vector>

#include "kernels/ops.h"
#include "src/vision/places.h"

namespace kvgauge {

// Room for the keys and values of all segments of a batch, for every block in turn.
class SegmentAttention {
 public:
  // Segments follow each other without gaps from row 0 on.
  SegmentAttention(std::span<const RowRange> segments, const AttentionShape& shape, Ops& ops);

  // q, k, v: [rows, heads, dim] f32, strided; out: [rows, heads, dim] f32. `log_sum_exp`: [heads,
  // rows] f32 where Received is called afterwards.
  void Run(const Tensor& q, const Tensor& k, const Tensor& v, Tensor out,
           const Tensor& log_sum_exp = {});
  // How much attention each row of a segment got in the last Run: from the segment's first row, or
  // from all of its rows on average. q and log_sum_exp as they were there; out: [heads, rows of the
  // segment] f32.
  void Received(size_t segment, bool from_first, const Tensor& q, const Tensor& log_sum_exp,
                Tensor out);

 private:
  // Segments that are written at once: all but the last fill their pages.
  struct Write {
    RowRange rows;
    std::vector<KvTarget> heads;
  };

  AttentionShape shape_;
  Ops& ops_;
  Buffer keys_, values_;
  std::vector<std::vector<void*>> key_pages_, value_pages_;  // of each head, all segments
  std::vector<KvSegment> stored_;                            // [segments, heads]
  std::vector<KvHead> heads_;                                // the same
  std::vector<AttentionItem> items_;
  std::vector<Write> writes_;
};

}  // namespace kvgauge
