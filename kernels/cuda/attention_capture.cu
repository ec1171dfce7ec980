// SPDX-License-Identifier: Apache-2.0
// What is captured of attention beside its result: a second pass in which a block owns a page and
// walks the rows that see it. The n x n matrix never exists, nothing is added atomically, and rows
// are folded in ascending order.
#include "cuda/attention_capture.h"
#include "cuda/attention_codes.h"

namespace kvgauge::cuda {
namespace {

constexpr int kThreads = kSixteenths * kWarp;
constexpr int kSinkThreads = 128;

// What a finished score gives; less than 0 stands for what a row does not see.
KVG_DEVICE float Probability(float score, float log_sum_exp) {
  return score == kNothing ? -1.0f : PowerOfTwo(score - log_sum_exp * kLog2E);
}

struct CaptureShared {
  Uint4* queries16;
  float* queries32;
  float* room;
  ExpandedPages expanded;
};
KVG_DEVICE CaptureShared SharedOf(unsigned char* shared, const SharedPlan& plan) {
  return {reinterpret_cast<Uint4*>(shared + plan.q16), reinterpret_cast<float*>(shared + plan.q32),
          reinterpret_cast<float*>(shared + plan.tile), PagesOf(shared, plan)};
}

// The page's scores for a tile of rows, its codes being expanded. Reached by all threads.
template <DType type, int tiles>
KVG_DEVICE void TileScores(const AttendCall& call, const SegmentView& segment, const RowTile& tile,
                           bool all_seen, int page, const CaptureShared& shared,
                           float (&scores)[tiles][2][4]) {
  SyncBlock();
  if constexpr (type != DType::kF32) {
    if (!KeysAsNumbers<type>(segment, page)) {
      PackQueries<type, tiles>(call, tile, shared.queries16);
    }
  }
  if (KeysAsNumbers<type>(segment, page)) {
    ExpandQueries<type, tiles>(call, segment, tile, shared.queries32);
  }
  SyncBlock();
  ScorePage<type>(call, segment, tile, all_seen, page, nullptr, shared.queries16, shared.queries32,
                  shared.room, shared.expanded, scores);
}

template <DType type, int tiles>
KVG_KERNEL(kThreads)
WindowKernel(AttendCall call, const SegmentView* segments, const CapturePage* pages,
             SharedPlan plan, WindowRequest request) {
  KVG_DYNAMIC_SHARED(unsigned char, memory);
  const CapturePage job = pages[BlockX()];
  const SegmentView& segment = segments[job.segment];
  RowTile tile = request.rows;
  tile.head0 = job.kv_head * tile.group;
  tile.index0 = job.index0;
  tile.r0 = static_cast<int>(BlockY()) * tiles * 16;
  tile.count = Least(tiles * 16, request.rows.count - tile.r0);
  const PageSight sight = SightOf(call, segment, tile, tiles * 16, job.page);
  if (!sight.any) return;
  const CaptureShared shared = SharedOf(memory, plan);
  ExpandPage<type>(segment, job.page, KeysAsCodes(segment, job.page), false, shared.expanded);
  float scores[tiles][2][4];
  TileScores<type, tiles>(call, segment, tile, sight.all, job.page, shared, scores);
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int r = m * 16 + i % 4 / 2 * 8 + Lane() / 4;
      const int slot = WarpIndex() * 16 + i / 4 * 8 + Lane() % 4 * 2 + i % 2;
      const int entry = job.page * kPageEntries + slot;
      if (r >= tile.count || entry >= segment.length) continue;
      const int64_t row = tile.item_row(r), head = tile.head(r);
      const float p = Probability(
          scores[m][i / 4][i % 4],
          request.log_sum_exp[head * request.log_sum_exp_stride + tile.first_row + row]);
      if (p < 0.0f) continue;
      request.out[head * request.head_stride + row * request.row_stride + segment.first + entry] =
          p;
    }
  }
}

KVG_KERNEL(256) FillKernel(float* out, int64_t head_stride, int64_t row_stride, int64_t columns) {
  const int64_t i = BlockX() * 256 + Thread();
  if (i < columns) out[BlockZ() * head_stride + BlockY() * row_stride + i] = 0.0f;
}

KVG_DEVICE float Fold(ColumnReduction kind, float threshold, float column, float p, float weight) {
  switch (kind) {
    case ColumnReduction::kSum:
      return column + weight * p;
    case ColumnReduction::kSumSquares:
      return column + weight * p * p;
    case ColumnReduction::kMax:
      return Most(column, weight * p);
    default:
      return column + (p >= threshold ? weight : 0.0f);
  }
}

template <DType type, int tiles>
KVG_KERNEL(kThreads)
ColumnsKernel(AttendCall call, const SegmentView* segments, const CapturePage* pages,
              SharedPlan plan, ColumnsRequest request) {
  KVG_DYNAMIC_SHARED(unsigned char, memory);
  constexpr int kRows = tiles * 16;
  auto* const probabilities = reinterpret_cast<float*>(memory + plan.weights32);  // [row][64]
  const CapturePage job = pages[BlockX()];
  const SegmentView& segment = segments[job.segment];
  const int g = static_cast<int>(BlockY());
  // One query head: its rows follow each other.
  RowTile tile = request.rows;
  tile.head0 = job.kv_head * request.group + g;
  tile.mask_head0 = g;
  tile.index0 = job.index0 + request.first_row;
  tile.token0 += request.first_row;
  tile.first_row += request.first_row;
  if (tile.ahead != nullptr) tile.ahead += request.first_row;
  const CaptureShared shared = SharedOf(memory, plan);
  ExpandPage<type>(segment, job.page, KeysAsCodes(segment, job.page), false, shared.expanded);
  const float* const log_sum_exp =
      request.log_sum_exp + tile.head0 * request.log_sum_exp_stride + tile.first_row;
  // Rows that come before the page see nothing of it, unless rows see ahead.
  const int unseeing =
      tile.ahead != nullptr ? 0 : segment.first + job.page * kPageEntries - tile.index0;
  float column = 0.0f;
  for (int begin = Most(unseeing, 0) / kRows * kRows; begin < request.row_count; begin += kRows) {
    tile.r0 = begin;
    tile.count = Least(kRows, request.row_count - begin);
    const PageSight sight = SightOf(call, segment, tile, kRows, job.page);
    if (!sight.any) continue;
    float scores[tiles][2][4];
    TileScores<type, tiles>(call, segment, tile, sight.all, job.page, shared, scores);
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int r = m * 16 + i % 4 / 2 * 8 + Lane() / 4;
        const int slot = WarpIndex() * 16 + i / 4 * 8 + Lane() % 4 * 2 + i % 2;
        if (r >= tile.count) continue;
        probabilities[r * kPageEntries + slot] =
            Probability(scores[m][i / 4][i % 4], log_sum_exp[begin + r]);
      }
    }
    SyncBlock();
    if (Thread() < kPageEntries) {
      for (int r = 0; r < tile.count; ++r) {
        const float p = probabilities[r * kPageEntries + Thread()];
        const float weight = request.weights == nullptr ? 1.0f : request.weights[begin + r];
        if (p >= 0.0f) column = Fold(request.kind, request.threshold, column, p, weight);
      }
    }
  }
  const int entry = job.page * kPageEntries + Thread();
  if (Thread() < kPageEntries && entry >= segment.skip && entry < segment.length) {
    request.out[tile.head0 * request.head_stride + segment.first + entry] = column;
  }
}

constexpr int kFew = 1, kMany = 4;

// A warp takes a row of a head: every lane reads the sums before one of them changes them.
KVG_KERNEL(kSinkThreads) SinkKernel(SinkRequest request) {
  const int64_t at = BlockX() * (kSinkThreads / kWarp) + Thread() / kWarp;
  const bool is_row = at < request.rows * request.heads;
  const int64_t i = is_row ? at / request.heads : 0, h = is_row ? at % request.heads : 0;
  const int lane = Thread() % kWarp;
  float* const sum = request.log_sum_exp + h * request.log_sum_exp_stride + i;
  const float before = *sum, sink = request.sinks[h];
  const float top = before > sink ? before : sink;
  const float after = top + Log(Exp(before - top) + Exp(sink - top));
  const float kept = Exp(before - after);
  SyncBlock();
  if (!is_row) return;
  float* const row = request.out.data + i * request.out.stride + h * request.out.head_stride;
  for (int64_t k = lane; k < request.dim; k += kWarp) row[k] *= kept;
  if (lane > 0) return;
  *sum = after;
  if (request.entropy == nullptr) return;
  float* const entropy = request.entropy + h * request.entropy_stride + i;
  const float taken = Exp(sink - after);
  float both = taken > 0 ? taken * (after - sink) : 0.0f;
  if (kept > 0) both += kept * (*entropy + (after - before));
  *entropy = both;
}

}  // namespace

void CaptureWindow(const AttendCall& call, const CaptureShape& shape, const SegmentView* segments,
                   const CapturePage* pages, int64_t count, const WindowRequest& request,
                   Stream stream) {
  const LaunchShape fill = {.grid_x = CeilDiv(request.columns, 256),
                            .grid_y = CeilDiv(request.rows.count, request.rows.group),
                            .grid_z = request.heads,
                            .threads = 256};
  KVG_LAUNCH(FillKernel, fill, stream, request.out, request.head_stride, request.row_stride,
             request.columns);
  const LaunchShape launch = {.grid_x = count,
                              .grid_y = CeilDiv(request.rows.count, shape.row_tiles * 16),
                              .threads = kThreads,
                              .shared_bytes = shape.shared.total};
  const auto run = [&](auto few, auto many) {
    if (shape.row_tiles == kFew) {
      KVG_LAUNCH(few, launch, stream, call, segments, pages, shape.shared, request);
    } else {
      KVG_LAUNCH(many, launch, stream, call, segments, pages, shape.shared, request);
    }
  };
  switch (shape.dtype) {
    case DType::kF16:
      return run(&WindowKernel<DType::kF16, kFew>, &WindowKernel<DType::kF16, kMany>);
    case DType::kBF16:
      return run(&WindowKernel<DType::kBF16, kFew>, &WindowKernel<DType::kBF16, kMany>);
    default:
      return run(&WindowKernel<DType::kF32, kFew>, &WindowKernel<DType::kF32, kMany>);
  }
}

void CaptureColumns(const AttendCall& call, const CaptureShape& shape, const SegmentView* segments,
                    const CapturePage* pages, int64_t count, const ColumnsRequest& request,
                    Stream stream) {
  const LaunchShape fill = {
      .grid_x = CeilDiv(request.columns, 256), .grid_z = request.heads, .threads = 256};
  KVG_LAUNCH(FillKernel, fill, stream, request.out, request.head_stride, int64_t{0},
             request.columns);
  const LaunchShape launch = {.grid_x = count,
                              .grid_y = request.group,
                              .threads = kThreads,
                              .shared_bytes = shape.shared.total};
  const auto run = [&](auto few, auto many) {
    if (shape.row_tiles == kFew) {
      KVG_LAUNCH(few, launch, stream, call, segments, pages, shape.shared, request);
    } else {
      KVG_LAUNCH(many, launch, stream, call, segments, pages, shape.shared, request);
    }
  };
  switch (shape.dtype) {
    case DType::kF16:
      return run(&ColumnsKernel<DType::kF16, kFew>, &ColumnsKernel<DType::kF16, kMany>);
    case DType::kBF16:
      return run(&ColumnsKernel<DType::kBF16, kFew>, &ColumnsKernel<DType::kBF16, kMany>);
    default:
      return run(&ColumnsKernel<DType::kF32, kFew>, &ColumnsKernel<DType::kF32, kMany>);
  }
}

void ShareWithSinks(const SinkRequest& request, Stream stream) {
  const LaunchShape shape = {.grid_x = CeilDiv(request.rows * request.heads, kSinkThreads / kWarp),
                             .threads = kSinkThreads};
  KVG_LAUNCH(SinkKernel, shape, stream, request);
}

}  // namespace kvgauge::cuda
