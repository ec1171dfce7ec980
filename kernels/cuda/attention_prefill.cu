// SPDX-License-Identifier: Apache-2.0
// Attention of many rows over 16-bit float pages: a block of four warps owns a tile of rows and
// walks all entries that any of them sees. Pages are copied to shared memory while the one before
// is multiplied; each warp takes all entries of a page for its own rows, so that nothing but the
// pages is shared. Sums are those of attention_view.h.
#include "cuda/attention_prefill.h"

namespace kvgauge::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStages = 2;

KVG_DEVICE void CopyPage(const void* page, int64_t bytes, unsigned char* to) {
  const auto* const from = static_cast<const unsigned char*>(page);
  for (int64_t i = Thread() * 16; i < bytes; i += kThreads * 16) CopyAsync16(to + i, from + i);
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
      float scale[2];
      WeighTile<tiles, blocks>(m, scores, span, scale);
      ScaleDown<tiles, blocks>(m, scale, span);
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
      SharedBytes(kManyTiles, key_dim, value_dim) <= MostSharedBytes()) {
    return kManyTiles;
  }
  const bool fits = value_dim <= 8 * kFewBlocks &&
                    SharedBytes(kFewTiles, key_dim, value_dim) <= MostSharedBytes();
  return fits ? kFewTiles : 0;
}

int RowsOfBlock(DType dtype, int key_dim, int value_dim) {
  return kWarps * 16 * TilesFor(dtype, key_dim, value_dim);
}

void Attend(const AttendCall& call, const AttendTables& tables, DType dtype, const PrefillJob* jobs,
            int64_t count, const RowResults& results, Stream stream) {
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

}  // namespace

const PrefillWay kPortablePrefill = {RowsOfBlock, Attend};

}  // namespace kvgauge::cuda
