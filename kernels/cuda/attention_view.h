// SPDX-License-Identifier: Apache-2.0
// What attention's kernels are told. Pointers are device memory.
//
// The order of a row's sums, which every kernel that attends keeps, so that a row has the same bits
// whichever of them takes it:
// - Scores of a page: f32 sums over the key's dims, in tensor core steps of 16 where keys are
// 16-bit
//   pages, one by one in all other cases. They are kept in units of log 2.
// - A span is walked page by page with a running maximum. What was summed is scaled by exp2(old -
//   new maximum), then the page is added. The softmax sum is kept apart for each lane of a quad and
//   each 16 entries of a page (see mma.h), and joined at the end of the span: quads as a butterfly,
//   then the four sixteenths in order.
// - Pages of codes that rows in fixed point meet come first in a segment. Such a page's scores and
//   values are sums of integers, and so in any order. It gives a RowState of its own; those of a
//   span are added in order, relative to the largest score of all, and count as a span of their own
//   beside the rest of it.
// - Spans are merged in order, as RowState says.
// A page that a row does not see changes none of these, so it may be walked or left out.
#pragma once

#include <cstdint>

#include "cuda/codec_view.h"
#include "cuda/page_layout.h"

namespace kvgauge::cuda {

inline constexpr int kSpanEntries = 512;
inline constexpr int kSpanPages = kSpanEntries / kPageEntries;

struct MatrixView {
  const float* data;
  int64_t stride;
};

// One side of a segment.
struct SideView {
  void* const* pages;      // float pages
  const CodedPage* coded;  // of the first entries
  const CodecView* codec;
  int coded_entries;
  bool fixed;        // rows in fixed point can meet these codes (attention_fixed.cu)
  int dim;           // of entries as stored
  MatrixView basis;  // null: entries are no latents
};

struct SegmentView {
  SideView keys, values;
  PageLayout stored;
  int length;  // slots
  int skip;    // of them, before its entry 0
  int first;   // its slot 0, counted among the head's entries
  bool values_in_keys;
  bool numbers;       // keys are expanded to f32: rotated, or latents
  bool narrow_codes;  // codes are expanded to 16-bit pages (attention_codes.h), else to f32, in
                      // parts
  int fixed_pages;    // so many, from the first on, are met by rows in fixed point, both sides
  const float* bias;
  const float* key_scale;
  const float* value_scale;
  const int32_t* rotation;
  const int32_t* positions;
  const uint64_t* const* read;    // [group]
  const float* const* read_bias;  // [group] of [length]
};

// Rows that a block takes together: row r is query row first_row + (r0 + r) / group of head head0 +
// (r0 + r) % group, and sees entries up to index0 + (r0 + r) / group, and ahead[(r0 + r) / group]
// more where that is not null.
struct RowTile {
  int64_t first_row;
  int index0, token0;  // token0: position for segments that have positions
  int r0, count, group;
  int head0, mask_head0;  // mask_head0: of the KV head's query heads
  const int32_t* ahead;

  KVG_BOTH int item_row(int r) const { return (r0 + r) / group; }
  KVG_BOTH int head(int r) const { return head0 + (r0 + r) % group; }
};

struct AttendCall {
  const float* q;
  int64_t q_stride, q_head_stride;
  int key_dim, value_dim;
  float factor;  // score in log 2 = factor * dot, or what the cap is taken of
  float cap;     // 0: none; in log 2
  int window;    // 0: none
  bool chunked;  // the window is a chunk
  int rope_pairs;
  bool rope_half;
  MatrixView cos, sin;
  bool entropy;
};

// How many positions a row at that position sees, its own included.
KVG_BOTH inline int ReachOf(int window, bool chunked, int position) {
  return chunked ? position % window + 1 : window;
}

// A partial softmax of one row. Weighted values lie elsewhere.
struct RowState {
  float max;       // -inf: saw nothing
  float sum;       // of exp2(score - max)
  float weighted;  // of exp2(score - max) * (score - max)
  float unused;
};

// Shared memory of a block of FixedSpans, in bytes.
struct FixedPlan {
  int states, values;  // of 8 pages and 8 rows; the queries lie before them
  int value_stride;    // floats
  int total;
};

inline constexpr int kKeyParts = 2;  // pages of 16 bits that one page of keys is expanded to

// Where a block's shared arrays begin, in bytes.
struct SharedPlan {
  int q16, q32, weights16, weights32, maxima, tile;
  int keys, key_ranges, values, value_ranges;  // of narrow codes; 0: none
  int stages, stage_count, stage_bytes;        // of pages that are on their way; fewer than 2: none
  int total;
};

}  // namespace kvgauge::cuda
