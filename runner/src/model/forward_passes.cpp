// SPDX-License-Identifier: Apache-2.0
// Layers that attend to what a later one makes, as LCKV's code has them (arXiv:2405.10637).
//
// A prompt goes through such layers several times. In each pass they see what the pass before left
// in the cache, at first zeros, and the last pass is what counts. A single row goes through once:
// nothing that it sees depends on it.
#include <algorithm>
#include <vector>

#include "methods/tensors.h"
#include "src/model/forward_pass.h"

namespace kvgauge {

void ForwardPass::SeveralPasses(int64_t first, int64_t end, const Tensor& residual) {
  KVG_CHECK(first_layer_ == 0 && end_layer_ == config_.layer_count(),
            "layers that read later ones lie on one device");
  const auto is_prompt = [](const SequenceStep& step) { return step.end - step.begin > 1; };
  const bool several = std::any_of(steps_.begin(), steps_.end(), is_prompt);
  Tensor before;
  if (several) {
    before = Take(ScratchSlot::kBeforePasses, DType::kF32, {rows_, config_.hidden_size});
    ops_.rows->Convert(residual, before);
    const int64_t widest = std::max(config_.key_dim, config_.value_dim);
    const Tensor zeros =
        Take(ScratchSlot::kNoEntries, DType::kF32, {rows_ * config_.kv_heads * widest});
    ops_.memory->Clear(zeros);
    const auto none = [&](int64_t rows, int64_t dim) {
      return zeros.Slice(0, rows * config_.kv_heads * dim).Reshape({rows, config_.kv_heads, dim});
    };
    for (int64_t layer = first; layer < end; ++layer) {
      if (!config_.HasCache(layer)) continue;
      for (const SequenceStep& step : steps_) {
        const int64_t rows = step.end - step.begin;
        if (!is_prompt(step)) continue;
        step.cache->Write(config_.CacheOf(layer), none(rows, config_.key_dim),
                          none(rows, config_.value_dim));
      }
    }
  }
  // Single rows beside a prompt go through as often, to the same bits each time.
  const int64_t passes = several ? config_.prompt_passes : 1;
  for (int64_t pass = 0; pass < passes; ++pass) {
    if (pass > 0) ops_.rows->Convert(before, residual);
    shows_ = pass + 1 == passes;
    for (int64_t layer = first; layer < end; ++layer) Layer(layer, residual);
  }
}

// A row of a prompt sees the entries before its own. A single row sees none of its own either, and
// not the one before it, but an entry of zeros: LCKV's code puts that in front of the cache and
// then masks the last one, and what is published answers so.
void ForwardPass::AttendLater(int64_t layer, const Tensor& q, const Tensor& out) {
  const int64_t at = config_.CacheOf(layer);
  std::vector<AttentionItem> prompts, singles;
  int64_t row = 0;
  for (const SequenceStep& step : steps_) {
    const int64_t begin = row, rows = step.end - step.begin;
    row += rows;
    const bool single = rows == 1;
    const int64_t unseen = single ? 2 : 1;
    const int64_t blind = std::clamp<int64_t>(unseen - step.begin, 0, rows);
    if (blind > 0) ops_.memory->Clear(out.Slice(begin, begin + blind));
    if (blind == rows) continue;
    (single ? singles : prompts)
        .push_back({.first_row = begin + blind,
                    .rows = rows - blind,
                    .first_position = step.begin + blind - unseen,
                    .token_position = step.begin + blind,
                    .heads = step.cache->Layer(at)});
  }
  const KvCache& cache = *steps_[0].cache;
  AttentionShape shape = {.format = cache.format(),
                          .query_heads = config_.query_heads,
                          .kv_heads = cache.kv_heads(),
                          .scale = config_.attention_scale};
  AttentionCapture capture;
  if (!prompts.empty()) ops_.attention->Attend(shape, prompts, q, out, capture);
  if (singles.empty()) return;
  const Tensor zeros = Take(ScratchSlot::kZeroLogits, DType::kF32, {config_.query_heads});
  ops_.memory->Clear(zeros);
  shape.sinks = zeros;
  capture.log_sum_exp = Take(ScratchSlot::kLogSumExp, DType::kF32, {config_.query_heads, rows_});
  ops_.attention->Attend(shape, singles, q, out, capture);
}

}  // namespace kvgauge
