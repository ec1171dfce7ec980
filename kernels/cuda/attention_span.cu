// SPDX-License-Identifier: Apache-2.0
// Attention of few rows: a block takes one span of one segment for all query heads of a KV head, so
// that every key and value is read once; a second kernel merges the spans of each row in order.
//
// 16-bit pages lie as tensor cores take them. Where a block meets nothing else they come to shared
// memory while earlier ones are multiplied; otherwise they go from memory to registers. Codes are
// expanded into shared memory as such pages, all else as f32, a part of a page at a time.
#include <algorithm>

#include "cuda/attention_codes.h"
#include "cuda/attention_kernels.h"

namespace kvgauge::cuda {
namespace {

constexpr int kMostWarps = 16;

struct SpanArrays {
  const SpanUnit* units;
  int64_t first_unit;
  RowState* states;  // of a block's own unit, in TakeSpan
  float* values;
  int value_stride;
  SharedPlan shared;
};

// `blocks`: of 8 dims of values, that a warp sums.
template <DType type, int tiles, int blocks>
struct SpanSums {
  float values[tiles][blocks][4] = {};
  float max[tiles][2];
  float sum[tiles][2] = {}, weighted[tiles][2] = {};  // of this warp's sixteenth
};

// Values that are expanded: sums of `count` blocks of 8 dims from block `first` on. Reached by all
// threads.
template <int tiles, int blocks>
KVG_DEVICE void AddNumbers(const SegmentView& segment, int page, int first, int count,
                           const float* weights32, float* room, float (&sums)[tiles][blocks][4]) {
  constexpr int kRows = tiles * 16;
  const int dim = segment.stored.value_dim, width = (dim + 7) / 8 * 8, row = Lane() / 4;
  for (int begin = 0; begin < kPageEntries; begin += kValueEntries) {
    SyncBlock();
    ExpandValues(segment, page, begin, dim, width, room);
    SyncBlock();
#pragma unroll 1
    for (int e = 0; e < kValueEntries; ++e) {
      const float* const w = weights32 + (begin + e) * kRows + row;
#pragma unroll
      for (int b = 0; b < blocks; ++b) {
        if (b >= count) continue;
        const Float2 v =
            *reinterpret_cast<const Float2*>(room + e * width + (first + b) * 8 + Lane() % 4 * 2);
#pragma unroll
        for (int m = 0; m < tiles; ++m) {
          float(&s)[4] = sums[m][b];
          const float near = w[m * 16], far = w[m * 16 + 8];
          s[0] = Fma(near, v.x, s[0]);
          s[1] = Fma(near, v.y, s[1]);
          s[2] = Fma(far, v.x, s[2]);
          s[3] = Fma(far, v.y, s[3]);
        }
      }
    }
  }
}

// How a page's values are multiplied.
enum class ValuePath { kNumbers, kAsTheyLie, kCodes };

// `values`: a 16-bit page, of keys where values lie in them.
template <DType type, bool plain, int tiles, int blocks>
KVG_DEVICE void AddPage(const SegmentView& segment, int page, ValuePath path, const void* values,
                        const Uint4* weights16, const float* weights32, float* room,
                        SpanSums<type, tiles, blocks>& sums) {
  const int warps = BlockThreads() / kWarp;
  const int dim = segment.stored.value_dim, all_blocks = (dim + 7) / 8;
  // Values in keys are taken 16 dims at a time.
  const int mine = (all_blocks + 2 * warps - 1) / (2 * warps) * 2;
  const int first = WarpIndex() * mine, count = Least(mine, all_blocks - first);
  if constexpr (type != DType::kF32) {
    if (path != ValuePath::kNumbers) {
      constexpr int kParts = kSixteenths * kWeightParts<type>;
#pragma unroll
      for (int b = 0; b < blocks; b += 2) {
        if (b >= count) continue;
        ValueBlock near, far;
        if (segment.values_in_keys) {
          LoadValuesFromKeys(values, segment.stored.KeyChunks(), (first + b) / 2, near, far);
        } else {
          near = LoadValues(values, first + b);
          if (b + 1 < count) far = LoadValues(values, first + b + 1);
        }
#pragma unroll
        for (int m = 0; m < tiles; ++m) {
          const Uint4* const weights = weights16 + m * kParts * kWarp + Lane();
          AddValues<type>(weights, kWarp, near, sums.values[m][b]);
          if (b + 1 < count) AddValues<type>(weights, kWarp, far, sums.values[m][b + 1]);
        }
      }
      return;
    }
  }
  if constexpr (!plain) {
    AddNumbers(segment, page, first, count, weights32, room, sums.values);
  }
}

// The running maximum of every row moves on to what this page adds, weights are left for AddPage.
template <DType type, bool plain, int tiles, int blocks>
KVG_DEVICE void WeighPage(const AttendCall& call, const SegmentView& segment, int page,
                          ValuePath path, float (&scores)[tiles][2][4], float* maxima,
                          Uint4* weights16, float* weights32, SpanSums<type, tiles, blocks>& sums) {
  constexpr int kRows = tiles * 16;
  const int sixteenth = WarpIndex() % kSixteenths, first_tile = WarpIndex() / kSixteenths;
  const int tile_step = BlockThreads() / kWarp / kSixteenths, row = Lane() / 4;
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
    if (m % tile_step != first_tile) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float max = QuadMax(Most(Most(scores[m][0][2 * h], scores[m][0][2 * h + 1]),
                                     Most(scores[m][1][2 * h], scores[m][1][2 * h + 1])));
      if (Lane() % 4 == 0) maxima[sixteenth * kRows + m * 16 + h * 8 + row] = max;
    }
  }
  SyncBlock();
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
    const bool mine = m % tile_step == first_tile;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float max = sums.max[m][h];
#pragma unroll
      for (int s = 0; s < kSixteenths; ++s) {
        max = Most(max, maxima[s * kRows + m * 16 + h * 8 + row]);
      }
      const Rebase rebase = RebaseTo(sums.max[m][h], max);
      sums.max[m][h] = max;
#pragma unroll
      for (int b = 0; b < blocks; ++b) {
        sums.values[m][b][2 * h] = sums.values[m][b][2 * h] * rebase.scale;
        sums.values[m][b][2 * h + 1] = sums.values[m][b][2 * h + 1] * rebase.scale;
      }
      if (!mine) continue;
      float(&near)[4] = scores[m][0];
      float(&far)[4] = scores[m][1];
      if (call.entropy) {
        Weigh<true>(rebase, near[2 * h], near[2 * h + 1], far[2 * h], far[2 * h + 1],
                    sums.sum[m][h], sums.weighted[m][h]);
      } else {
        Weigh<false>(rebase, near[2 * h], near[2 * h + 1], far[2 * h], far[2 * h + 1],
                     sums.sum[m][h], sums.weighted[m][h]);
      }
    }
    if (!mine) continue;
    ScaleByValues(segment, page, sixteenth, scores[m]);
    if (path != ValuePath::kNumbers) {
      if constexpr (type != DType::kF32) {
        constexpr int kParts = kWeightParts<type>;
        Uint4 packed[kParts];
        PackWeights<type>(scores[m], packed);
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          weights16[((m * kSixteenths + sixteenth) * kParts + part) * kWarp + Lane()] =
              packed[part];
        }
      }
      continue;
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int slot = sixteenth * 16 + n * 8 + Lane() % 4 * 2 + i % 2;
        weights32[slot * kRows + m * 16 + i / 2 * 8 + row] = scores[m][n][i];
      }
    }
  }
  SyncBlock();
}

// Sums of the sixteenths become those of the span; the state is stored.
template <DType type, int tiles, int blocks>
KVG_DEVICE void StoreStates(const RowTile& tile, float* parts, const SpanArrays& arrays,
                            const SpanSums<type, tiles, blocks>& sums) {
  constexpr int kRows = tiles * 16;
  const int sixteenth = WarpIndex() % kSixteenths, first_tile = WarpIndex() / kSixteenths;
  const int tile_step = BlockThreads() / kWarp / kSixteenths, row = Lane() / 4;
  RowState* const states = arrays.states;
  SyncBlock();
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
    if (m % tile_step != first_tile) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = QuadSum(sums.sum[m][h]), weighted = QuadSum(sums.weighted[m][h]);
      if (Lane() % 4 != 0) continue;
      const int r = m * 16 + h * 8 + row;
      parts[sixteenth * kRows + r] = sum;
      parts[(kSixteenths + sixteenth) * kRows + r] = weighted;
      if (sixteenth == 0) states[r].max = sums.max[m][h];
    }
  }
  SyncBlock();
  for (int r = Thread(); r < tile.count; r += BlockThreads()) {
    const auto joined = [&](const float* of) {
      return ((of[r] + of[kRows + r]) + of[2 * kRows + r]) + of[3 * kRows + r];
    };
    states[r].sum = joined(parts);
    states[r].weighted = joined(parts + kSixteenths * kRows);
  }
}

template <DType type, int tiles, int blocks>
KVG_DEVICE void StoreValues(const SegmentView& segment, const RowTile& tile, int value_dim,
                            float* room, const SpanArrays& arrays,
                            const SpanSums<type, tiles, blocks>& sums) {
  const int warps = BlockThreads() / kWarp, dim = segment.stored.value_dim;
  const int all_blocks = (dim + 7) / 8, mine = (all_blocks + 2 * warps - 1) / (2 * warps) * 2;
  const int first = WarpIndex() * mine, count = Least(mine, all_blocks - first);
  const MatrixView& basis = segment.values.basis;
  float* const values = arrays.values;
  float* const to = basis.data == nullptr ? values : room;
  const int stride = basis.data == nullptr ? arrays.value_stride : all_blocks * 8;
  SyncBlock();
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      if (b >= count) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = m * 16 + h * 8 + Lane() / 4;
        if (r >= tile.count) continue;
        *reinterpret_cast<Float2*>(to + static_cast<int64_t>(r) * stride + (first + b) * 8 +
                                   Lane() % 4 * 2) = {sums.values[m][b][2 * h],
                                                      sums.values[m][b][2 * h + 1]};
      }
    }
  }
  if (basis.data == nullptr) return;
  SyncBlock();
  for (int i = Thread(); i < tile.count * value_dim; i += BlockThreads()) {
    const int r = i / value_dim, d = i % value_dim;
    float sum = 0.0f;
    for (int l = 0; l < dim; ++l) {
      sum = Fma(basis.data[d * basis.stride + l], room[r * stride + l], sum);
    }
    values[static_cast<int64_t>(r) * arrays.value_stride + d] = sum;
  }
}

// A page comes from memory while the one before it is multiplied.
KVG_DEVICE void PrefetchSide(const SideView& side, int page, int64_t float_bytes) {
  constexpr int64_t kLine = 128;
  const bool coded = page * kPageEntries < side.coded_entries;
  const auto* const from =
      static_cast<const unsigned char*>(coded ? side.coded[page].codes : side.pages[page]);
  const int64_t bytes = coded ? CodedPageBytes(*side.codec) : float_bytes;
  for (int64_t i = Thread() * kLine; i < bytes; i += BlockThreads() * kLine) Prefetch(from + i);
}
KVG_DEVICE_CALL void PrefetchPage(const SegmentView& segment, int page) {
  PrefetchSide(segment.keys, page, segment.stored.KeyBytes());
  if (!segment.values_in_keys) PrefetchSide(segment.values, page, segment.stored.ValueBytes());
}

// A block's arrays.
struct SpanMemory {
  Uint4 *queries16, *weights16;
  float *queries32, *weights32, *maxima, *room;
};
KVG_DEVICE SpanMemory MemoryOf(unsigned char* shared, const SharedPlan& plan) {
  const auto floats = [shared](int begin) { return reinterpret_cast<float*>(shared + begin); };
  return {reinterpret_cast<Uint4*>(shared + plan.q16),
          reinterpret_cast<Uint4*>(shared + plan.weights16),
          floats(plan.q32),
          floats(plan.weights32),
          floats(plan.maxima),
          floats(plan.tile)};
}

template <DType type, int tiles, int blocks>
KVG_DEVICE void TakePages(const AttendCall& call, const SegmentView& segment, const RowTile& tile,
                          int page_begin, int page_end, const SpanMemory& memory,
                          const ExpandedPages& expanded, SpanSums<type, tiles, blocks>& sums) {
  PageSight next = SightOf(call, segment, tile, tile.count, page_begin);
  for (int page = page_begin; page < page_end; ++page) {
    const PageSight sight = next;
    if (page + 1 < page_end) {
      next = SightOf(call, segment, tile, tile.count, page + 1);
      if (next.any) PrefetchPage(segment, page + 1);
    }
    if (!sight.any) continue;
    const bool value_codes = ValuesAsCodes(segment, page);
    const ValuePath path = ValuesAsTheyLie<type>(segment, page) ? ValuePath::kAsTheyLie
                           : value_codes                        ? ValuePath::kCodes
                                                                : ValuePath::kNumbers;
    ExpandPage<type>(segment, page, KeysAsCodes(segment, page), value_codes, expanded);
    float scores[tiles][2][4];
    ScorePage<type, tiles>(call, segment, tile, sight.all, page, nullptr, memory.queries16,
                           memory.queries32, memory.room, expanded, scores);
    WeighPage<type, false>(call, segment, page, path, scores, memory.maxima, memory.weights16,
                           memory.weights32, sums);
    const void* values = expanded.values;
    if (path == ValuePath::kAsTheyLie) {
      values = segment.values_in_keys ? segment.keys.pages[page] : segment.values.pages[page];
    }
    AddPage<type, false>(segment, page, path, values, memory.weights16, memory.weights32,
                         memory.room, sums);
  }
}

// Pages that lie as they are multiplied, the next ones on their way to `stages`.
template <DType type, int tiles, int blocks>
KVG_DEVICE void TakePlainPages(const AttendCall& call, const SegmentView& segment,
                               const RowTile& tile, int page_begin, int page_end,
                               const SpanMemory& memory, const SharedPlan& plan,
                               unsigned char* stages, SpanSums<type, tiles, blocks>& sums) {
  const auto key_bytes = static_cast<int>(segment.stored.KeyBytes());
  const int value_bytes =
      segment.values_in_keys ? 0 : static_cast<int>(segment.stored.ValueBytes());
  // Bit i: page page_begin + i is seen by some row, by every row.
  uint32_t seen = 0, whole = 0;
  for (int page = page_begin; page < page_end; ++page) {
    const PageSight sight = SightOf(call, segment, tile, tile.count, page);
    seen |= (sight.any ? 1u : 0u) << (page - page_begin);
    whole |= (sight.all ? 1u : 0u) << (page - page_begin);
  }
  uint32_t to_copy = seen;
  const auto copy = [&](int stage) {
    if (to_copy != 0) {
      const int page = page_begin + FindFirst(to_copy) - 1;
      to_copy &= to_copy - 1;
      unsigned char* const to = stages + stage * plan.stage_bytes;
      const auto bring = [&](const void* from, int bytes, unsigned char* at) {
        const auto* const source = static_cast<const unsigned char*>(from);
        for (int i = Thread() * 16; i < bytes; i += BlockThreads() * 16) {
          CopyAsync16(at + i, source + i);
        }
      };
      bring(segment.keys.pages[page], key_bytes, to);
      if (value_bytes > 0) bring(segment.values.pages[page], value_bytes, to + key_bytes);
    }
    CommitCopies();
  };
  const int ahead = plan.stage_count - 1;
  for (int stage = 0; stage < ahead; ++stage) copy(stage);
  for (int stage = 0; seen != 0; stage = stage + 1 < plan.stage_count ? stage + 1 : 0) {
    const int place = FindFirst(seen) - 1, page = page_begin + place;
    seen &= seen - 1;
    if (ahead == 2) {
      WaitCopies<1>();
    } else {
      WaitCopies<0>();
    }
    SyncBlock();
    copy(stage == 0 ? ahead : stage - 1);  // where the page before this one was
    const unsigned char* const keys = stages + stage * plan.stage_bytes;
    float scores[tiles][2][4];
    ScorePage<type, tiles, true>(call, segment, tile, (whole >> place & 1u) != 0, page, keys,
                                 memory.queries16, nullptr, nullptr, {}, scores);
    WeighPage<type, true>(call, segment, page, ValuePath::kAsTheyLie, scores, memory.maxima,
                          memory.weights16, nullptr, sums);
    AddPage<type, true>(segment, page, ValuePath::kAsTheyLie,
                        segment.values_in_keys ? keys : keys + key_bytes, memory.weights16, nullptr,
                        nullptr, sums);
  }
}

// plain: keys and values of all segments are 16-bit pages that are multiplied as they lie, and
// there is room for stages.
template <DType type, int tiles, int blocks, bool plain>
KVG_DEVICE void TakeSpan(const AttendCall& call, const AttendTables& tables, SpanArrays arrays) {
  KVG_DYNAMIC_SHARED(unsigned char, shared);
  const SharedPlan& plan = arrays.shared;
  const SpanMemory memory = MemoryOf(shared, plan);
  const ExpandedPages expanded = PagesOf(shared, plan);

  const SpanUnit unit = arrays.units[BlockX()];
  const int64_t first_row = (unit.place - arrays.first_unit) * tiles * 16;
  arrays.states += first_row;
  arrays.values += first_row * arrays.value_stride;
  const SegmentView& segment = tables.segments[unit.segment];
  const RowTile tile = tables.tiles[unit.tile];
  const int page_begin = Most(unit.span * kSpanPages, segment.fixed_pages);
  const int pages = static_cast<int>(CeilDiv(segment.length, kPageEntries));
  const int page_end = Least((unit.span + 1) * kSpanPages, pages);
  if constexpr (type != DType::kF32) {
    if (!segment.numbers) PackQueries<type, tiles>(call, tile, memory.queries16);
  }
  bool numbers = false;
  if constexpr (!plain) {
    for (int page = page_begin; page < page_end; ++page) {
      numbers = numbers || KeysAsNumbers<type>(segment, page);
    }
  }
  if (numbers) ExpandQueries<type, tiles>(call, segment, tile, memory.queries32);
  SyncBlock();

  SpanSums<type, tiles, blocks> sums;
#pragma unroll
  for (int m = 0; m < tiles; ++m) sums.max[m][0] = sums.max[m][1] = kNothing;
  if constexpr (plain) {
    TakePlainPages<type, tiles, blocks>(call, segment, tile, page_begin, page_end, memory, plan,
                                        shared + plan.stages, sums);
  } else {
    TakePages<type, tiles, blocks>(call, segment, tile, page_begin, page_end, memory, expanded,
                                   sums);
  }
  StoreStates(tile, memory.maxima, arrays, sums);
  StoreValues(segment, tile, call.value_dim, memory.room, arrays, sums);
}

// One row tile to a warp: many of 8 dims each.
constexpr int kFewTiles = 1, kFewBlocks = 8;
// Four: pages that are expanded serve more rows.
constexpr int kManyTiles = 4, kManyBlocks = 4, kManyWarps = 8;

template <DType type, bool plain>
KVG_KERNEL(kMostWarps* kWarp)
FewRowsKernel(AttendCall call, AttendTables tables, SpanArrays arrays) {
  TakeSpan<type, kFewTiles, kFewBlocks, plain>(call, tables, arrays);
}
template <DType type, bool plain>
KVG_KERNEL(kManyWarps* kWarp)
ManyRowsKernel(AttendCall call, AttendTables tables, SpanArrays arrays) {
  TakeSpan<type, kManyTiles, kManyBlocks, plain>(call, tables, arrays);
}

constexpr int kMergeThreads = 128;

// A block merges one row. What follows from the spans' maxima is found for many spans at once; only
// the sums go from span to span.
KVG_KERNEL(kMergeThreads)
MergeKernel(AttendCall call, AttendTables tables, int tile_rows, int value_stride,
            const MergeJob* jobs, int64_t first_unit, const RowState* states, const float* values,
            RowResults results) {
  KVG_SHARED(float, maxima, kMergeThreads);
  KVG_SHARED(MergeStep, steps, kMergeThreads);
  constexpr int kAhead = 16;
  const MergeJob job = jobs[BlockX()];
  const RowTile tile = tables.tiles[job.tile];
  const int r = static_cast<int>(BlockY());
  if (r >= tile.count) return;
  const int64_t begin = (job.first_unit - first_unit) * tile_rows + r;
  const int64_t row = tile.first_row + tile.item_row(r), head = tile.head(r);
  float* const out = results.out + row * results.stride + head * results.head_stride;
  RowState state = {kNothing, 0.0f, 0.0f, 0.0f};
  for (int d0 = 0; d0 < call.value_dim; d0 += kMergeThreads) {
    const int d = d0 + Thread();
    const bool mine = d < call.value_dim;
    state = {kNothing, 0.0f, 0.0f, 0.0f};
    float value = 0.0f;
    for (int u0 = 0; u0 < job.units; u0 += kMergeThreads) {
      const int units = Least(kMergeThreads, job.units - u0);
      const int64_t first = begin + static_cast<int64_t>(u0) * tile_rows;
      const bool has_unit = Thread() < units;
      RowState part = {};
      if (has_unit) part = states[first + static_cast<int64_t>(Thread()) * tile_rows];
      SyncBlock();  // the steps before are done
      if (has_unit) maxima[Thread()] = part.max;
      SyncBlock();
      if (has_unit) {
        float max = state.max;
        for (int u = 0; u < Thread(); ++u) max = Most(max, maxima[u]);
        steps[Thread()] = StepOf(max, part);
      }
      SyncBlock();
      for (int k0 = 0; k0 < units; k0 += kAhead) {
        float part_values[kAhead];
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          const int64_t at = first + static_cast<int64_t>(k0 + k) * tile_rows;
          part_values[k] = mine && k0 + k < units ? values[at * value_stride + d] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          if (k0 + k >= units) continue;
          value = Merged(value, part_values[k], Merge(state, steps[k0 + k]));
        }
      }
    }
    if (mine) out[d] = Normalized(value, state);
  }
  if (Thread() != 0) return;
  if (results.log_sum_exp != nullptr) {
    results.log_sum_exp[head * results.log_sum_exp_stride + row] = LogSumExp(state);
  }
  if (results.entropy != nullptr) {
    results.entropy[head * results.entropy_stride + row] = Entropy(state);
  }
}

}  // namespace

int64_t MostSharedBytes() { return std::min(kMostSharedBytes, BlockSharedBytes()); }

int MostValueDims(int row_tiles, int warps) {
  const int most_warps = row_tiles == kFewTiles ? kMostWarps : kManyWarps;
  return warps > most_warps ? 0 : 8 * warps * (row_tiles == kFewTiles ? kFewBlocks : kManyBlocks);
}

void SpanAttention(const AttendCall& call, const AttendTables& tables, const SpanShape& shape,
                   const SpanUnit* units, int64_t count, int64_t first_unit, RowState* states,
                   float* values, Stream stream) {
  const SpanArrays arrays = {units, first_unit, states, values, shape.value_stride, shape.shared};
  const LaunchShape launch = {
      .grid_x = count, .threads = shape.warps * kWarp, .shared_bytes = shape.shared.total};
  const auto run = [&](auto few, auto many) {
    if (shape.row_tiles == kFewTiles) {
      KVG_LAUNCH(few, launch, stream, call, tables, arrays);
    } else {
      KVG_LAUNCH(many, launch, stream, call, tables, arrays);
    }
  };
  constexpr DType kF16 = DType::kF16, kBF16 = DType::kBF16, kF32 = DType::kF32;
  if (shape.dtype == kF32) return run(&FewRowsKernel<kF32, false>, &ManyRowsKernel<kF32, false>);
  if (shape.dtype == kF16 && shape.plain) {
    return run(&FewRowsKernel<kF16, true>, &ManyRowsKernel<kF16, true>);
  }
  if (shape.dtype == kF16) return run(&FewRowsKernel<kF16, false>, &ManyRowsKernel<kF16, false>);
  if (shape.plain) return run(&FewRowsKernel<kBF16, true>, &ManyRowsKernel<kBF16, true>);
  run(&FewRowsKernel<kBF16, false>, &ManyRowsKernel<kBF16, false>);
}

void MergeSpans(const AttendCall& call, const AttendTables& tables, const SpanShape& shape,
                const MergeJob* jobs, int64_t count, int64_t first_unit, const RowState* states,
                const float* values, const RowResults& results, Stream stream) {
  const int tile_rows = shape.row_tiles * 16;
  const LaunchShape launch = {.grid_x = count, .grid_y = tile_rows, .threads = kMergeThreads};
  KVG_LAUNCH(MergeKernel, launch, stream, call, tables, tile_rows, shape.value_stride, jobs,
             first_unit, states, values, results);
}

}  // namespace kvgauge::cuda
