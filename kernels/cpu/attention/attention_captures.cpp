// SPDX-License-Identifier: Apache-2.0
// What attention reports beside its output: probabilities of a few rows, and reductions over rows
// of each entry's probability, both recomputed from the stored log-sum-exp.
#include "cpu/attention/attention_schedule.h"
#include "cpu/split_work.h"

namespace kvgauge::attention_schedule {

void CpuAttention::DoWindowProbabilities(const AttentionShape& shape, const AttentionItem& item,
                                         const Tensor& q, const Tensor& log_sum_exp, Tensor out) {
  if (CpuAttention& mine = Mine(); &mine != this) {
    return mine.DoWindowProbabilities(shape, item, q, log_sum_exp, out);
  }
  const Call call(shape, kernels_, {&item, 1});
  Prepare(call);
  const int64_t columns = out.shape[2];
  // A unit is one span of one segment, for a run of rows.
  struct SpanUnit {
    int kv_head;
    int64_t segment, first, span, column;
  };
  std::vector<SpanUnit> units;
  for (int h = 0; h < static_cast<int>(shape.kv_heads); ++h) {
    const KvHead& head = item.heads[h];
    int64_t column = 0;
    for (int64_t s = 0; s < head.count; ++s) {
      const KvSegment& segment = head.segments[s];
      for (int64_t first = 0; first < item.rows; first += call.max_positions) {
        for (int64_t span = 0; span * kSpan < segment.slots(); ++span) {
          units.push_back({h, s, first, span, column + span * kSpan - segment.skip});
        }
      }
      column += head.segments[s].length;
    }
    for (int64_t r = 0; r < call.group * item.rows && column < columns; ++r) {
      std::fill_n(out.f32() + (h * call.group + r / item.rows) * out.stride[0] +
                      r % item.rows * out.stride[1] + column,
                  columns - column, 0.0f);
    }
  }
  const int64_t count = std::ssize(units);
  const int workers = Workers(out.Numel() * call.layout.key_steps);
  PiecesFor(workers, count, [&](int64_t u) {
    const ProductScope products(kernels_);
    const SpanUnit& unit = units[u];
    Block block;
    block.item = &item;
    block.kv_head = unit.kv_head;
    block.first = unit.first;
    block.count = std::min<int64_t>(call.max_positions, item.rows - block.first);
    const Piece piece =
        PieceOf(call, item, item.heads[unit.kv_head], unit.segment, block.first, block.count);
    const Scratch scratch = ScratchOfThread(call);
    if (piece.entries.begin < (unit.span + 1) * kSpan && piece.entries.end > unit.span * kSpan) {
      PackBlock(call, block, call.bf16_rows && NeedsExactRows(piece), q, scratch);
      if (piece.absorbed) Absorb(call, piece, block.count * call.group, scratch);
      ScoreSpan(call, block, piece, unit.span, nullptr, scratch);
    }
    const int64_t begin = unit.span * kSpan;
    const int64_t end =
        std::min({begin + kSpan, piece.segment->slots(), begin + columns - unit.column});
    if (begin >= end) return;  // columns need not reach entries that no row sees
    // Slots that are skipped have no columns.
    const int64_t skipped = std::clamp<int64_t>(piece.segment->skip - begin, 0, end - begin);
    for (int64_t i = 0; i < block.count; ++i) {
      const Range seen = piece.sight.Entries(i);
      ProbabilityArgs args = {};
      args.begin = static_cast<int>(std::clamp<int64_t>(seen.begin - begin, 0, end - begin));
      args.end = static_cast<int>(std::clamp<int64_t>(seen.end - begin, 0, end - begin));
      args.last = (args.end + kVectorFloats - 1) / kVectorFloats * kVectorFloats;
      args.first = args.begin / kVectorFloats * kVectorFloats;
      args.scale = shape.scale;
      args.softcap = shape.softcap;
      for (int g = 0; g < call.group; ++g) {
        const int64_t head = int64_t{block.kv_head} * call.group + g;
        const float lse =
            log_sum_exp.f32()[head * log_sum_exp.stride[0] + item.first_row + block.first + i];
        float* row =
            out.f32() + head * out.stride[0] + (block.first + i) * out.stride[1] + unit.column;
        if (args.begin >= args.end || lse == kNothing) {
          std::fill(row + skipped, row + (end - begin), 0.0f);
          continue;
        }
        float* scores = scratch.scores + (i * call.group + g) * kSpan;
        args.scores = args.out = scores;
        args.log_sum_exp = lse;
        args.extras = ExtrasOf(piece, begin, kSpan, g, scratch, nullptr);
        kernels_.probabilities(args);
        std::fill(row + skipped, row + args.begin, 0.0f);
        std::copy(scores + args.begin, scores + args.end, row + args.begin);
        std::fill(row + args.end, row + (end - begin), 0.0f);
      }
    }
  });
}

// Key-stationary: a unit owns one page for one query head and streams the rows that see it.
void CpuAttention::DoReduceColumns(const AttentionShape& shape, const AttentionItem& item,
                                   const Tensor& q, const Tensor& log_sum_exp,
                                   const ColumnRequest& request, Tensor out) {
  if (CpuAttention& mine = Mine(); &mine != this) {
    return mine.DoReduceColumns(shape, item, q, log_sum_exp, request, out);
  }
  const Call call(shape, kernels_, {&item, 1});
  Prepare(call);
  const PageLayout& layout = call.layout;
  const int64_t columns = out.shape[1];
  const int64_t row_bytes = int64_t{layout.key_steps} * call.QueryBytes();
  // The queries of one KV head's group, rounded once: [group][rows]; bf16 ones also as f32, where
  // segments need them.
  const int64_t packed_bytes = call.group * request.rows * row_bytes;
  const int64_t exact_bytes = call.exact_rows ? 2 * packed_bytes : 0;
  if (packed_queries_.size_bytes() < packed_bytes + exact_bytes) {
    packed_queries_ = HostBuffer(packed_bytes + exact_bytes);
  }
  char* queries = static_cast<char*>(packed_queries_.data());
  char* exact = queries + packed_bytes;
  const int64_t exact_row_bytes = layout.key_steps * int64_t{sizeof(float)};

  struct PageUnit {
    int64_t piece, page, column;
  };
  std::vector<PageUnit> units;
  std::vector<int64_t> first_unit = {0};  // of each KV head
  pieces_.clear();
  for (const KvHead& head : item.heads) {
    int64_t column = 0;
    for (int64_t s = 0; s < head.count; ++s) {
      pieces_.push_back(PieceOf(call, item, head, s, request.first_row, request.rows));
      const KvSegment& segment = head.segments[s];
      for (int64_t p = 0; p * kEntries < segment.slots(); ++p) {
        units.push_back({std::ssize(pieces_) - 1, p, column + p * kEntries - segment.skip});
      }
      column += head.segments[s].length;
    }
    first_unit.push_back(std::ssize(units));
    const int64_t h = std::ssize(first_unit) - 2;
    for (int64_t g = 0; g < call.group && column < columns; ++g) {
      std::fill_n(out.f32() + (h * call.group + g) * out.stride[0] + column, columns - column,
                  0.0f);
    }
  }

  const int workers = Workers(out.Numel() * request.rows * layout.key_steps);
#pragma omp parallel num_threads(workers) if (workers > 1)
  {
    const ProductScope products(kernels_);
    const Scratch scratch = ScratchOfThread(call);
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
#pragma omp for schedule(static)
      for (int64_t r = 0; r < request.rows; ++r) {
        const float* row = q.f32() + (item.first_row + request.first_row + r) * q.stride[0];
        for (int g = 0; g < call.group; ++g) {
          const float* in = row + (h * call.group + g) * q.stride[1];
          const int64_t at = g * request.rows + r;
          PackQueries(call, in, 0, 1, call.bf16_rows, queries + at * row_bytes);
          if (call.exact_rows) PackQueries(call, in, 0, 1, false, exact + at * exact_row_bytes);
        }
      }
      // Early pages are seen by most rows, so ascending order is longest first.
#pragma omp for schedule(dynamic, 1)
      for (int64_t u = first_unit[h] * call.group; u < first_unit[h + 1] * call.group; ++u) {
        const PageUnit& unit = units[u / call.group];
        const int64_t g = u % call.group, head = h * call.group + g;
        const Piece& piece = pieces_[unit.piece];
        const int64_t end = std::min<int64_t>(
            {kEntries, piece.segment->slots() - unit.page * kEntries, columns - unit.column});
        if (end <= 0) continue;  // columns need not reach entries that no row sees
        alignas(64) float sums[kEntries] = {};
        Scratch of_head = scratch;
        of_head.queries = queries + g * request.rows * row_bytes;
        if (call.exact_rows) {
          of_head.exact_queries =
              reinterpret_cast<float*>(exact + g * request.rows * exact_row_bytes);
        }
        ReducePage(
            call, piece, unit.page, static_cast<int>(g), of_head,
            log_sum_exp.f32() + head * log_sum_exp.stride[0] + item.first_row + request.first_row,
            request, sums);
        const int64_t begin = std::max<int64_t>(0, piece.segment->skip - unit.page * kEntries);
        std::copy(sums + begin, sums + end, out.f32() + head * out.stride[0] + unit.column + begin);
      }
    }
  }
}

// One head's rows folded into the 64 sums of one page.
void CpuAttention::ReducePage(const Call& call, const Piece& piece, int64_t page, int group_head,
                              const Scratch& scratch, const float* log_sum_exp,
                              const ColumnRequest& request, float* sums) const {
  const float* weights = request.row_weights.empty() ? nullptr : request.row_weights.f32();
  const int64_t begin = page * kEntries;
  const Range seeing = piece.sight.Rows(begin, begin + kEntries, request.rows);
  if (seeing.empty() || !PageIsRead(call, piece, page)) return;
  ColumnArgs args = {};
  args.scores = scratch.scores;
  args.scale = call.shape.scale;
  args.softcap = call.shape.softcap;
  args.threshold = request.threshold;
  args.kind = request.kind;
  args.columns = sums;
  args.extras = ExtrasOf(piece, begin, kEntries, group_head, scratch, nullptr);
  for (int64_t r = seeing.begin; r < seeing.end; r += kColumnRows) {
    const int count = static_cast<int>(std::min(kColumnRows, seeing.end - r));
    Scratch from_row = scratch;
    from_row.queries += r * call.layout.key_steps * call.QueryBytes();
    if (call.exact_rows) from_row.exact_queries += r * call.layout.key_steps;
    if (piece.absorbed) Absorb(call, piece, count, from_row);
    ScorePage(call, piece, page, {}, 0, count, from_row, scratch.scores, kPanelWidth);
    ColumnRow rows[kColumnRows];
    args.rows = rows;
    args.count = count;
    for (int i = 0; i < count; ++i) {
      const Range seen = piece.sight.Entries(r + i);
      rows[i].log_sum_exp = log_sum_exp[r + i];
      rows[i].weight = weights == nullptr ? 1.0f : weights[r + i];
      rows[i].begin = static_cast<int>(std::clamp<int64_t>(seen.begin - begin, 0, kEntries));
      rows[i].end = static_cast<int>(std::clamp<int64_t>(seen.end - begin, 0, kEntries));
      if (rows[i].log_sum_exp == kNothing) rows[i].begin = rows[i].end = 0;
    }
    kernels_.reduce_columns(args);
  }
}

}  // namespace kvgauge::attention_schedule
