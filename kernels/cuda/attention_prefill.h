// SPDX-License-Identifier: Apache-2.0
// Device functions of the kernels that walk all entries for a tile of rows (attention_prefill.cu,
// attention_warpgroup.cu). They hold everything but the products, so that both have the same sums.
//
// Registers hold the sums of a span. What earlier spans gave is touched once in eight pages and
// lies in the thread's local memory (EarlierSums).
#pragma once

#include "cuda/attention_kernels.h"
#include "cuda/attention_values.h"

namespace kvgauge::cuda {

struct Cursor {
  int segment, page;
};

// The first page from `at` on that some row sees; segment is `end` when there is none.
KVG_DEVICE Cursor NextSeen(const AttendCall& call, const AttendTables& tables, const RowTile& tile,
                           Cursor at, int end) {
  const int most = LastSeen(tile, tile.count - 1);
  for (; at.segment < end; ++at.segment, at.page = 0) {
    const SegmentView& segment = tables.segments[at.segment];
    for (; at.page * kPageEntries < segment.length; ++at.page) {
      if (segment.first + at.page * kPageEntries > most) break;
      if (SightOf(call, segment, tile, tile.count, at.page).any) return at;
    }
  }
  return at;
}

// The rows of one warp over the span that is being read.
template <int tiles, int blocks>
struct SpanSums {
  float sums[tiles][blocks][4] = {};
  float max[tiles][2], sum[tiles][2][kSixteenths] = {};
};

// The same rows over the spans before. volatile keeps them in local memory, where they take no
// registers from the span.
template <int tiles, int blocks>
struct EarlierSums {
  volatile float total[tiles][blocks][4], max[tiles][2], sum[tiles][2];
  bool none = true;  // `total` is undefined until the first span is added
};

template <int tiles, int blocks>
KVG_DEVICE void Begin(SpanSums<tiles, blocks>& span, EarlierSums<tiles, blocks>& earlier) {
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      span.max[m][h] = kNothing;
      earlier.max[m][h] = kNothing;
      earlier.sum[m][h] = 0.0f;
    }
  }
}

// Scores of one tile become weights relative to the maximum so far. What was summed under a smaller
// one is to be scaled down, before the weights' values are added.
template <int tiles, int blocks>
KVG_DEVICE void WeighTile(int m, float (&scores)[kSixteenths][tiles][2][4],
                          SpanSums<tiles, blocks>& span, float (&scale)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float most = kNothing;
#pragma unroll
    for (int s = 0; s < kSixteenths; ++s) {
      most = Most(most, Most(Most(scores[s][m][0][2 * h], scores[s][m][0][2 * h + 1]),
                             Most(scores[s][m][1][2 * h], scores[s][m][1][2 * h + 1])));
    }
    const float now = Most(span.max[m][h], QuadMax(most));
    const Rebase rebase = RebaseTo(span.max[m][h], now);
    span.max[m][h] = now;
    float unused = 0.0f;
#pragma unroll
    for (int s = 0; s < kSixteenths; ++s) {
      Weigh<false>(rebase, scores[s][m][0][2 * h], scores[s][m][0][2 * h + 1],
                   scores[s][m][1][2 * h], scores[s][m][1][2 * h + 1], span.sum[m][h][s], unused);
    }
    scale[h] = rebase.scale;
  }
}
template <int tiles, int blocks>
KVG_DEVICE void ScaleDown(int m, const float (&scale)[2], SpanSums<tiles, blocks>& span) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    // Mostly maxima stay; times 1 changes nothing.
    if (Ballot(scale[h] != 1.0f) == 0) continue;
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      span.sums[m][b][2 * h] = span.sums[m][b][2 * h] * scale[h];
      span.sums[m][b][2 * h + 1] = span.sums[m][b][2 * h + 1] * scale[h];
    }
  }
}

// The span is complete: it joins the earlier ones, and the next begins.
template <int tiles, int blocks>
KVG_DEVICE void EndSpan(SpanSums<tiles, blocks>& span, EarlierSums<tiles, blocks>& earlier) {
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float quads[kSixteenths];
#pragma unroll
      for (int s = 0; s < kSixteenths; ++s) quads[s] = QuadSum(span.sum[m][h][s]);
      const RowState part = {span.max[m][h], ((quads[0] + quads[1]) + quads[2]) + quads[3], 0.0f,
                             0.0f};
      RowState state = {earlier.max[m][h], earlier.sum[m][h], 0.0f, 0.0f};
      const MergeShares shares = Merge(state, part);
      earlier.max[m][h] = state.max;
      earlier.sum[m][h] = state.sum;
#pragma unroll
      for (int b = 0; b < blocks; ++b) {
#pragma unroll
        for (int j = 2 * h; j < 2 * h + 2; ++j) {
          const float before = earlier.none ? 0.0f : earlier.total[m][b][j];
          earlier.total[m][b][j] = Merged(before, span.sums[m][b][j], shares);
          span.sums[m][b][j] = 0.0f;
        }
      }
      span.max[m][h] = kNothing;
#pragma unroll
      for (int s = 0; s < kSixteenths; ++s) span.sum[m][h][s] = 0.0f;
    }
  }
  earlier.none = false;
}

template <int tiles, int blocks>
KVG_DEVICE void WriteRows(const AttendCall& call, const RowTile& tile, int first_row,
                          const EarlierSums<tiles, blocks>& earlier, const RowResults& results) {
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = first_row + m * 16 + h * 8 + Lane() / 4;
      if (r >= tile.count) continue;
      const RowState state = {earlier.max[m][h], earlier.sum[m][h], 0.0f, 0.0f};
      const int64_t row = tile.first_row + tile.item_row(r), head = tile.head(r);
      float* const out = results.out + row * results.stride + head * results.head_stride;
#pragma unroll
      for (int b = 0; b < blocks; ++b) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int d = b * 8 + Lane() % 4 * 2 + j;
          if (d >= call.value_dim) continue;
          out[d] = earlier.none ? 0.0f : Normalized(earlier.total[m][b][2 * h + j], state);
        }
      }
      if (Lane() % 4 == 0 && results.log_sum_exp != nullptr) {
        results.log_sum_exp[head * results.log_sum_exp_stride + row] = LogSumExp(state);
      }
    }
  }
}

}  // namespace kvgauge::cuda
