// SPDX-License-Identifier: Apache-2.0
// Attention of many rows over 16-bit float pages: a block of four warps owns a tile of rows and
// walks all entries that any of them sees. Pages are copied to shared memory while the one before
// is multiplied; each warp takes all entries of a page for its own rows, so that nothing but the
// pages is shared. Sums are those of attention_view.h.
//
// Registers hold the sums of a span. What earlier spans gave is touched once in eight pages and
// lies in the thread's local memory (EarlierSums).
#include "cuda/attention_kernels.h"
#include "cuda/attention_values.h"

namespace kvgauge::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStages = 2;

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

KVG_DEVICE void CopyPage(const void* page, int64_t bytes, unsigned char* to) {
  const auto* const from = static_cast<const unsigned char*>(page);
  for (int64_t i = Thread() * 16; i < bytes; i += kThreads * 16) CopyAsync16(to + i, from + i);
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

// scores = queries * keys of a page.
template <DType type, int tiles>
KVG_DEVICE void MultiplyKeys(const Uint4* queries, const Uint4* keys, int chunks,
                             float (&scores)[kSixteenths][tiles][2][4]) {
#pragma unroll
  for (int s = 0; s < kSixteenths; ++s) {
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[s][m][0][i] = scores[s][m][1][i] = 0.0f;
    }
  }
  for (int c = 0; c < chunks; ++c) {
    Uint4 q[tiles];
#pragma unroll
    for (int m = 0; m < tiles; ++m) q[m] = queries[(m * chunks + c) * kWarp];
#pragma unroll
    for (int s = 0; s < kSixteenths; ++s) {
      const Uint4 k = keys[(s * chunks + c) * kWarp];
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        MultiplyAdd<type>(scores[s][m][0], q[m], k.x, k.y);
        MultiplyAdd<type>(scores[s][m][1], q[m], k.z, k.w);
      }
    }
  }
}

// Scores of one tile become weights relative to the maximum so far; what was summed under a
// smaller one is scaled down.
template <int tiles, int blocks>
KVG_DEVICE void WeighTile(int m, float (&scores)[kSixteenths][tiles][2][4],
                          SpanSums<tiles, blocks>& span) {
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
    // Mostly maxima stay; times 1 changes nothing.
    if (Ballot(rebase.scale != 1.0f) != 0) {
#pragma unroll
      for (int b = 0; b < blocks; ++b) {
        span.sums[m][b][2 * h] = span.sums[m][b][2 * h] * rebase.scale;
        span.sums[m][b][2 * h + 1] = span.sums[m][b][2 * h + 1] * rebase.scale;
      }
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

template <DType type, int tiles, int blocks>
KVG_KERNEL(kThreads)
PrefillKernel(AttendCall call, AttendTables tables, const PrefillJob* jobs, RowResults results) {
  KVG_DYNAMIC_SHARED(unsigned char, shared);
  constexpr int kParts = kWeightParts<type>;
  const PrefillJob job = jobs[BlockX()];
  const RowTile tile = tables.tiles[job.tile];
  const int end_segment = job.first_segment + job.segments;
  const int chunks = (call.key_dim + 15) / 16, value_blocks = (call.value_dim + 7) / 8;
  const int key_bytes = chunks * 2048, value_bytes = value_blocks * 1024;
  auto* const queries = reinterpret_cast<Uint4*>(shared);
  unsigned char* const stages = shared + kWarps * tiles * chunks * 512;
  const int stage_bytes = key_bytes + value_bytes;
  const Uint4* const my_queries = queries + WarpIndex() * tiles * chunks * kWarp + Lane();
  const int first_row = WarpIndex() * tiles * 16;

  PackQueries<type, kWarps * tiles>(call, tile, queries);
  const auto copy = [&](const Cursor& at, int stage) {
    const SegmentView& segment = tables.segments[at.segment];
    unsigned char* const to = stages + stage * stage_bytes;
    CopyPage(segment.keys.pages[at.page], key_bytes, to);
    CopyPage(segment.values.pages[at.page], value_bytes, to + key_bytes);
    CommitCopies();
  };

  SpanSums<tiles, blocks> span;
  EarlierSums<tiles, blocks> earlier;
  Begin<tiles, blocks>(span, earlier);
  Cursor at = NextSeen(call, tables, tile, {job.first_segment, 0}, end_segment);
  if (at.segment < end_segment) copy(at, 0);
  for (int stage = 0; at.segment < end_segment; stage ^= 1) {
    const Cursor next = NextSeen(call, tables, tile, {at.segment, at.page + 1}, end_segment);
    const bool more = next.segment < end_segment;
    if (more) {
      copy(next, stage ^ 1);
      WaitCopies<1>();
    } else {
      WaitCopies<0>();
    }
    SyncBlock();
    const SegmentView& segment = tables.segments[at.segment];
    const Uint4* const keys = reinterpret_cast<const Uint4*>(stages + stage * stage_bytes) + Lane();
    const unsigned char* const values = stages + stage * stage_bytes + key_bytes;

    float scores[kSixteenths][tiles][2][4];
    MultiplyKeys<type, tiles>(my_queries, keys, chunks, scores);
    const PageSight sight = SightOf(call, segment, tile, tile.count, at.page);
#pragma unroll
    for (int s = 0; s < kSixteenths; ++s) {
      FinishScores(call, segment, tile, first_row, sight.all, at.page, s, scores[s]);
    }
    Uint4 weights[tiles][kSixteenths][kParts];
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      WeighTile<tiles, blocks>(m, scores, span);
#pragma unroll
      for (int s = 0; s < kSixteenths; ++s) {
        ScaleByValues(segment, at.page, s, scores[s][m]);
        PackWeights<type>(scores[s][m], weights[m][s]);
      }
    }
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      if (b >= value_blocks) continue;
      const ValueBlock v = LoadValues(values, b);
#pragma unroll
      for (int m = 0; m < tiles; ++m) AddValues<type>(&weights[m][0][0], 1, v, span.sums[m][b]);
    }
    SyncBlock();  // the stage is free

    const bool ends = next.segment != at.segment || next.page / kSpanPages != at.page / kSpanPages;
    if (ends) EndSpan<tiles, blocks>(span, earlier);
    at = next;
  }
  WriteRows<tiles, blocks>(call, tile, first_row, earlier, results);
}

constexpr int kManyTiles = 2, kManyBlocks = 16;  // dims of values up to 128
constexpr int kFewTiles = 1, kFewBlocks = 32;

int64_t SharedBytes(int tiles, int key_dim, int value_dim) {
  const int64_t chunks = (key_dim + 15) / 16, blocks = (value_dim + 7) / 8;
  return kWarps * tiles * chunks * 512 + kStages * (chunks * 2048 + blocks * 1024);
}
int TilesFor(DType dtype, int key_dim, int value_dim) {
  if (dtype == DType::kF32) return 0;
  if (value_dim <= 8 * kManyBlocks &&
      SharedBytes(kManyTiles, key_dim, value_dim) <= kMostSharedBytes) {
    return kManyTiles;
  }
  const bool fits =
      value_dim <= 8 * kFewBlocks && SharedBytes(kFewTiles, key_dim, value_dim) <= kMostSharedBytes;
  return fits ? kFewTiles : 0;
}

}  // namespace

int PrefillRows(DType dtype, int key_dim, int value_dim) {
  return kWarps * 16 * TilesFor(dtype, key_dim, value_dim);
}

void PrefillAttention(const AttendCall& call, const AttendTables& tables, DType dtype,
                      const PrefillJob* jobs, int64_t count, const RowResults& results,
                      Stream stream) {
  const int tiles = TilesFor(dtype, call.key_dim, call.value_dim);
  const LaunchShape launch = {.grid_x = count,
                              .threads = kThreads,
                              .shared_bytes = SharedBytes(tiles, call.key_dim, call.value_dim)};
  const bool many = tiles == kManyTiles;
  if (dtype == DType::kBF16) {
    if (many) {
      KVG_LAUNCH((PrefillKernel<DType::kBF16, kManyTiles, kManyBlocks>), launch, stream, call,
                 tables, jobs, results);
    } else {
      KVG_LAUNCH((PrefillKernel<DType::kBF16, kFewTiles, kFewBlocks>), launch, stream, call, tables,
                 jobs, results);
    }
    return;
  }
  if (many) {
    KVG_LAUNCH((PrefillKernel<DType::kF16, kManyTiles, kManyBlocks>), launch, stream, call, tables,
               jobs, results);
  } else {
    KVG_LAUNCH((PrefillKernel<DType::kF16, kFewTiles, kFewBlocks>), launch, stream, call, tables,
               jobs, results);
  }
}

}  // namespace kvgauge::cuda
