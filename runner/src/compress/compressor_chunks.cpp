// SPDX-License-Identifier: Apache-2.0
// Prompts that are read in chunks, each of which is reduced before the next one is read.
#include <algorithm>
#include <limits>

#include "core/guarded.h"
#include "methods/tensors.h"
#include "src/compress/chunk_checks.h"
#include "src/compress/compressor_impl.h"

namespace kvgauge {

void Compressor::Impl::ScoreAsked(const PromptState& asked, int64_t layer,
                                  const Tensor& out) const {
  ViewSource source = Source();
  source.cache = asked.cache;
  source.prefill = asked.capture;
  source.prompt = asked.prompt;
  CacheView view(source, layer);
  const Tensor all = view.Scratch(DType::kF32, {view.shape().kv_heads, view.width()});
  pipeline_.score->Score(view, all);
  const int64_t behind = pipeline_.score->rows_behind_chunks();
  for (int64_t h = 0; h < shape_.kv_heads; ++h) {
    const int64_t own = cache_->length(layer, h);
    // Entries behind the last picture, which the rows did not see, stay.
    const int64_t scored = view.lengths()[static_cast<size_t>(h)] - behind;
    const Tensor row = out.Slice(h, h + 1);
    if (scored > 0) {
      view.ops().rows->Convert(Columns(all.Slice(h, h + 1), 0, scored), Columns(row, 0, scored));
    }
    if (scored < own) view.ops().rows->Fill(kForcedScore, Columns(row, scored, own));
  }
}

// What a chunk leaves of itself and of those before. Layers may differ in what they hold, and heads
// where the score says so.
Status Compressor::Impl::ReduceChunk(const PromptState& state, int64_t prompt_tokens) {
  const bool last = cache_->tokens() == prompt_tokens;
  ViewSource source = Source();
  source.prefill = state.capture;
  std::vector<std::unique_ptr<CacheView>> views;
  std::vector<LayerView*> view_pointers;
  int64_t width = 0;
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    views.push_back(std::make_unique<CacheView>(source, layer));
    view_pointers.push_back(views.back().get());
    width = std::max(width, views.back()->width());
    KVG_TRY(CheckEvenHeads(*views.back(), method_, *pipeline_.score));
  }
  carries_ = last ? nullptr : state.capture;
  if (!last && method_.takes_budget && width <= head_budget_.entries) {
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      carried_.Take(*state.capture, layer, {});
    }
    return {};
  }
  std::vector<Buffer> memory;
  std::vector<Tensor> scores;  // [layers] of [kv_heads, width], protected entries +inf
  ViewMemory stage_memory(std::numeric_limits<int64_t>::max());
  const bool keeps = looks_again();
  {
    const Stopwatch watch(ops_, seconds().score);
    for (const auto& view : views) {
      const LentMemory lent(*view, stage_memory, keeps);
      const Tensor own = view->Scratch(DType::kF32, {view->shape().kv_heads, view->width()});
      state.asked == nullptr ? pipeline_.score->Score(*view, own)
                             : ScoreAsked(*state.asked, view->layer(), own);
      if (last && ages()) KVG_TRY(KeepNumbers(*view, own));
      Protect(*view, own);
      scores.push_back(ScoresAtWidth(*view, own, width, memory.emplace_back()));
    }
  }
  {
    const Stopwatch watch(ops_, seconds().select);
    const bool scored = pipeline_.allocate->needs_scores();
    KVG_ASSIGN(
        allocated_,
        pipeline_.allocate->Allocate(
            {.shape = &shape_,
             .length = scored ? width : prompt_tokens,
             .per_head = scored ? std::min(width, head_budget_.entries) : head_budget_.entries,
             .protected_entries = head_budget_.sinks + head_budget_.recent,
             .window = pipeline_.score->needs().window,
             .scores = scored ? std::span<const Tensor>(scores) : std::span<const Tensor>(),
             .views = view_pointers}));
  }
  for (auto& of_layer : allocated_) {
    for (int64_t& entries : of_layer) entries = std::min(entries, cache_->tokens());
  }
  KVG_TRY(CheckAllocation());
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    {
      const LentMemory lent(*views[index], stage_memory, keeps);
      KVG_TRY(ReduceLayer(*views[index], Columns(scores[index], 0, views[index]->width()), 0));
    }
    views[index].reset();
  }
  recorder_.CountCompression();
  return last ? CheckKept() : Status();
}

Status Compressor::Impl::CompressChunk(const PromptState& state, int64_t prompt_tokens,
                                       KvCache& cache) {
  cache_ = &cache;
  seed_ = state.seed;
  prompt_ = state.prompt;
  recorder_.BeginChunk(cache);
  CountWeights();
  head_budget_ = HeadBudgetFor(method_, model_.checkpoint_shape(), budget_, prompt_tokens);
  // What is never given up is behind the chunk.
  if (state.asked != nullptr) head_budget_.recent = 0;
  growth_ = allocated_growth_ = 0;
  const bool last = cache.tokens() == prompt_tokens;
  const Status done = Guarded([&]() -> Status {
    if (step_.slides()) step_.KeepPrompt(*state.capture, cache.tokens());
    KVG_TRY(ReduceChunk(state, prompt_tokens));
    KVG_ASSIGN(const bool numbers, StoresNumbers(method_, *pipeline_.store, shape_));
    // What is coded is coded once, behind the prompt.
    if (last || numbers) KVG_TRY(StoreLayers(state));
    if (!last) return {};
    KVG_TRY(KeepForReads());
    BeginReads(state.capture);
    return Place(During::kPrompt);
  });
  if (!done.ok()) return done.error().Wrap(method_.id);
  if (last) recorder_.RecordCompressed(cache, nullptr, reader_bytes());
  return {};
}

}  // namespace kvgauge
