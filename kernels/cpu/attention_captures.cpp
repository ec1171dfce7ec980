// SPDX-License-Identifier: Apache-2.0
// What attention reports beside its output: probabilities of a few rows, and reductions over rows
// of each entry's probability, both recomputed from the stored log-sum-exp.
#include "cpu/attention_schedule.h"

namespace kvgauge::attention_schedule {

void CpuAttention::DoWindowProbabilities(const AttentionShape& shape, const AttentionItem& item,
                                         const Tensor& q, const Tensor& log_sum_exp, Tensor out) {
  const Call call(shape, kernels_);
  Prepare(call);
  const int64_t columns = out.shape[2];
  const int64_t spans = (columns + kSpan - 1) / kSpan;
  const int64_t runs = (item.rows + call.max_positions - 1) / call.max_positions;
  const int64_t count = shape.kv_heads * runs * spans;
  const int workers = Workers(out.Numel() * call.layout.key_steps);
#pragma omp parallel for schedule(dynamic, 1) num_threads(workers) if (workers > 1)
  for (int64_t u = 0; u < count; ++u) {
    const int64_t span = u % spans;
    Block block = {};
    block.item = &item;
    block.kv_head = static_cast<int>(u / spans / runs);
    block.list = &item.heads[block.kv_head];
    block.first = u / spans % runs * call.max_positions;
    block.count = std::min<int64_t>(call.max_positions, item.rows - block.first);
    block.sight = {item.FirstPosition(*block.list) + block.first, shape.window};
    block.entries = block.sight.Union(0, block.count);
    const bool any = block.entries.begin < (span + 1) * kSpan && block.entries.end > span * kSpan;
    const Scratch scratch = ScratchOfThread(call);
    if (any) {
      PackBlock(call, block, q, scratch.queries);
      ScoreSpan(call, block, span, scratch);
    }
    const int64_t begin = span * kSpan, end = std::min(columns, begin + kSpan);
    for (int64_t i = 0; i < block.count; ++i) {
      const Range seen = block.sight.Entries(i);
      ProbabilityArgs args = {};
      args.begin = static_cast<int>(std::clamp<int64_t>(seen.begin - begin, 0, end - begin));
      args.end = static_cast<int>(std::clamp<int64_t>(seen.end - begin, 0, end - begin));
      args.last = (args.end + kVectorFloats - 1) / kVectorFloats * kVectorFloats;
      args.first = args.begin / kVectorFloats * kVectorFloats;
      args.scale = shape.scale;
      args.softcap = shape.softcap;
      for (int g = 0; g < call.group; ++g) {
        const int64_t head = int64_t{block.kv_head} * call.group + g;
        float* row = out.f32() + head * out.stride[0] + (block.first + i) * out.stride[1] + begin;
        if (args.begin >= args.end) {
          std::fill_n(row, end - begin, 0.0f);
          continue;
        }
        float* scores = scratch.scores + (i * call.group + g) * kSpan;
        args.scores = args.out = scores;
        args.log_sum_exp =
            log_sum_exp.f32()[head * log_sum_exp.stride[0] + item.first_row + block.first + i];
        kernels_.probabilities(args);
        std::fill_n(row, args.begin, 0.0f);
        std::copy(scores + args.begin, scores + args.end, row + args.begin);
        std::fill(row + args.end, row + (end - begin), 0.0f);
      }
    }
  }
}

// Key-stationary: a unit owns one page for one query head and streams the rows that see it.
void CpuAttention::DoReduceColumns(const AttentionShape& shape, const AttentionItem& item,
                                   const Tensor& q, const Tensor& log_sum_exp,
                                   const ColumnRequest& request, Tensor out) {
  const Call call(shape, kernels_);
  Prepare(call);
  const PageLayout& layout = call.layout;
  const int64_t columns = out.shape[1];
  const int64_t pages = (columns + kEntries - 1) / kEntries;
  const int64_t row_bytes = int64_t{layout.key_steps} * call.QueryBytes();
  // The queries of one KV head's group, rounded once: [group][rows].
  const int64_t packed_bytes = call.group * request.rows * row_bytes;
  if (packed_queries_.size_bytes() < packed_bytes) packed_queries_ = HostBuffer(packed_bytes);
  char* queries = static_cast<char*>(packed_queries_.data());
  const float* weights = request.row_weights.empty() ? nullptr : request.row_weights.f32();

  const int workers = Workers(out.Numel() * request.rows * layout.key_steps);
#pragma omp parallel num_threads(workers) if (workers > 1)
  {
    const Scratch scratch = ScratchOfThread(call);
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const KvList& list = item.heads[h];
      const Sight sight = {item.FirstPosition(list) + request.first_row, shape.window};
#pragma omp for schedule(static)
      for (int64_t r = 0; r < request.rows; ++r) {
        const float* row = q.f32() + (item.first_row + request.first_row + r) * q.stride[0];
        for (int g = 0; g < call.group; ++g) {
          PackQueries(call, row + (h * call.group + g) * q.stride[1], 0, 1,
                      queries + (g * request.rows + r) * row_bytes);
        }
      }
      // Early pages are seen by most rows, so ascending order is longest first.
#pragma omp for schedule(dynamic, 1)
      for (int64_t u = 0; u < pages * call.group; ++u) {
        const int64_t p = u / call.group, g = u % call.group, head = h * call.group + g;
        alignas(64) float sums[kEntries] = {};
        const Range seeing = sight.Rows(p * kEntries, (p + 1) * kEntries, request.rows);
        const void* panel = nullptr;
        DType dtype = layout.dtype;
        if (!seeing.empty()) {
          panel = list.key_pages[p];
          if (dtype != DType::kF32 && !call.bf16_rows && seeing.end - seeing.begin >= kExpandRows) {
            kernels_.expand[static_cast<int>(dtype)](panel, layout.key_steps, kPanelWidth,
                                                     scratch.page);
            panel = scratch.page;
            dtype = DType::kF32;
          }
        }
        for (int64_t r = seeing.begin; r < seeing.end; r += kColumnRows) {
          const int count = static_cast<int>(std::min(kColumnRows, seeing.end - r));
          kernels_.product[static_cast<int>(dtype)](
              {queries + (g * request.rows + r) * row_bytes, layout.key_steps, count, panel, panel,
               layout.key_steps, kPanelWidth, scratch.scores, kPanelWidth, false});
          ColumnRow rows[kColumnRows];
          for (int i = 0; i < count; ++i) {
            const Range seen = sight.Entries(r + i);
            rows[i].log_sum_exp = log_sum_exp.f32()[head * log_sum_exp.stride[0] + item.first_row +
                                                    request.first_row + r + i];
            rows[i].weight = weights == nullptr ? 1.0f : weights[r + i];
            rows[i].begin =
                static_cast<int>(std::clamp<int64_t>(seen.begin - p * kEntries, 0, kEntries));
            rows[i].end =
                static_cast<int>(std::clamp<int64_t>(seen.end - p * kEntries, 0, kEntries));
          }
          kernels_.reduce_columns({scratch.scores, rows, count, shape.scale, shape.softcap,
                                   request.threshold, request.kind, sums});
        }
        const int64_t begin = p * kEntries, end = std::min(columns, begin + kEntries);
        std::copy(sums, sums + (end - begin), out.f32() + head * out.stride[0] + begin);
      }
    }
  }
}

}  // namespace kvgauge::attention_schedule
