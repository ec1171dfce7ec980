// SPDX-License-Identifier: Apache-2.0
#include "src/engine/condensed_prefill.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/strings.h"
#include "runner/adapted_rows.h"
#include "runner/compressor.h"

namespace kvgauge {
namespace {

// What stays of a layer's heads, all of which hold `held` entries, as a plan for each of them. The
// last `moved` entries go to those from `to` on, which become (1 - share) of what they were and
// `share` of what comes.
struct Moved {
  Buffer memory;
  HeadPlan plan;

  Moved(Ops& ops, int64_t held, int64_t moved, int64_t to, float share,
        const std::vector<int32_t>& keep) {
    std::vector<int32_t> from(static_cast<size_t>(moved)), at(from.size());
    std::iota(from.begin(), from.end(), static_cast<int32_t>(held - moved));
    std::iota(at.begin(), at.end(), static_cast<int32_t>(to));
    const std::vector<float> weight(from.size(), share);
    std::vector<float> self(static_cast<size_t>(held), 1.0f);
    std::fill_n(self.begin() + to, moved, 1.0f - share);
    const int64_t kept = std::ssize(keep);
    memory = ops.memory->Allocate((kept + 3 * moved + held) * 4);
    const Tensor all = memory.As(DType::kF32, {kept + 3 * moved + held});
    int64_t next = 0;
    const auto put = [&](const Tensor& host) {
      const int64_t begin = std::exchange(next, next + host.shape[0]);
      Tensor device = all.Slice(begin, next);
      device.dtype = host.dtype;
      ops.memory->Copy(host, device);
      return device;
    };
    plan.keep = put(View(keep, {kept}));
    plan.keys.from = put(View(from, {moved}));
    plan.keys.to = put(View(at, {moved}));
    plan.keys.weight = put(View(weight, {moved}));
    plan.keys.self = put(View(self, {held}));
    plan.values = plan.keys;
  }
};

}  // namespace

std::vector<int64_t> ChunkEnds(const CondensingThin& stage, int64_t prompt_tokens, int64_t context,
                               std::span<const int64_t> passages) {
  const int64_t chunk = stage.chunk_tokens(), slots = stage.slots();
  const int64_t end =
      context > 0 ? std::min(context, prompt_tokens) : (prompt_tokens - 1) / chunk * chunk;
  std::vector<int64_t> ends;
  const auto long_enough = [&](int64_t at) {
    return ends.empty() ? at >= stage.sinks() + slots : at - ends.back() >= slots;
  };
  const auto add = [&](int64_t at) {
    if (at < end && long_enough(at)) ends.push_back(at);
  };
  for (const int64_t at : passages) add(at);
  for (int64_t at = chunk; passages.empty() && at < end; at += chunk) add(at);
  if (long_enough(end)) {
    ends.push_back(end);
  } else if (!ends.empty()) {
    ends.back() = end;
  }
  return ends;
}

CondensedPrefill::CondensedPrefill(Model& model, std::string owner, const CondensingThin& stage,
                                   const Prompt& prompt, int64_t context,
                                   std::span<const int64_t> passages, KvCache& cache)
    : model_(model),
      owner_(std::move(owner)),
      stage_(stage),
      prompt_(prompt),
      cache_(cache),
      ends_(ChunkEnds(stage, prompt.size(), context, passages)) {}

void CondensedPrefill::Begin() {
  begun_ = true;
  BeginChunk();
  if (!condensing()) return;
  const ModelShape shape = model_.shape();
  adapters_ = stage_.Load(shape, model_.ops());
  embeddings_ = stage_.Embeddings(shape);
  read_.embeddings = {{View(embeddings_, {stage_.slots(), shape.hidden_size})}};
}

void CondensedPrefill::BeginChunk() {
  chunk_end_ = condensing() ? ends_[chunk_] : prompt_.size();
  if (!condensing()) return;
  const std::vector<PromptPosition>& all = prompt_.positions;
  read_.positions.insert(read_.positions.end(), all.begin() + read_.size(),
                         all.begin() + chunk_end_);
  const int32_t last = all[static_cast<size_t>(chunk_end_ - 1)].rope_position[0];
  for (int32_t i = 0; i < stage_.slots(); ++i) {
    const int32_t at = last + 1 + i;
    read_.positions.push_back({.embedding_row = i, .rope_position = {at, at, at}});
  }
}

Status CondensedPrefill::Condense() {
  const int64_t slots = stage_.slots(), sinks = stage_.sinks(), held = cache_.length(0, 0);
  // Chunks that came before this one have left their entries behind the sinks.
  const bool joins = stage_.averages() && chunk_ > 0;
  const int64_t to = joins ? sinks : held - 2 * slots;
  int64_t stays = sinks;  // of what was there before the chunk
  if (chunk_ > 0) stays += stage_.averages() ? slots : static_cast<int64_t>(chunk_) * slots;
  std::vector<int32_t> keep(static_cast<size_t>(stays));
  std::iota(keep.begin(), keep.end(), 0);
  for (int64_t i = 0; i < slots && !joins; ++i) keep.push_back(static_cast<int32_t>(to + i));
  const float share = joins ? 1.0f / static_cast<float>(chunk_ + 1) : 1.0f;
  const Moved moved(model_.ops(), held, slots, to, share, keep);
  const std::vector<HeadPlan> plans(static_cast<size_t>(cache_.kv_heads()), moved.plan);
  for (int64_t layer = 0; layer < cache_.layer_count(); ++layer) {
    KVG_TRY(cache_.Reduce(layer, plans));
  }
  KVG_TRY(cache_.Truncate(chunk_end_));
  read_.positions.resize(static_cast<size_t>(chunk_end_));
  return {};
}

Result<Tensor> CondensedPrefill::Next() {
  KVG_CHECK(!done_, "a prefill that has ended");
  if (!prompt_.spans.empty()) {
    return Unsupported(StrCat(owner_,
                              ": reads a text chunk by chunk, and this prompt shows pictures; "
                              "expected a task of text"));
  }
  if (!begun_) Begin();
  const int64_t begin = cache_.tokens();
  const int64_t whole = chunk_end_ + (condensing() ? stage_.slots() : 0);
  const int64_t end = std::min(begin + Model::kChunkRows, whole);
  KVG_TRY(cache_.Append(end - begin));
  const bool last = chunk_end_ == prompt_.size() && end == whole;
  SequenceStep step = {.cache = &cache_,
                       .prompt = condensing() ? &read_ : &prompt_,
                       .begin = begin,
                       .end = end,
                       .logits = last ? LogitRows::kLast : LogitRows::kNone};
  std::unique_ptr<AdaptedRows> adapted;
  if (end > chunk_end_) {
    adapted = std::make_unique<AdaptedRows>(*adapters_, std::max<int64_t>(chunk_end_ - begin, 0));
    step.hook = adapted.get();
  }
  const Tensor logits = model_.Forward({&step, 1});
  if (end < whole) return Tensor();
  if (condensing()) {
    KVG_TRY(Condense());
    ++chunk_;
    if (!last) BeginChunk();
  }
  done_ = last;
  return last ? logits : Tensor();
}

int64_t CondensedPrefill::PlannedBytes(const CondensingThin& stage, const ModelShape& shape) {
  const int64_t pages = (stage.slots() + 2 * kKvPageEntries - 1) / kKvPageEntries;
  const int64_t beyond = FullCacheBytes(shape, pages * kKvPageEntries);
  return stage.WeightBytes(shape) + stage.WorkingBytes(shape) + beyond +
         beyond / std::max<int64_t>(shape.layers, 1);
}

}  // namespace kvgauge
