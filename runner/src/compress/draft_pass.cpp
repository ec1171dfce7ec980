// SPDX-License-Identifier: Apache-2.0
#include "src/compress/draft_pass.h"

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "core/guarded.h"
#include "core/strings.h"
#include "methods/tensors.h"

namespace kvgauge {

DraftPass::DraftPass(Model& model, const ViewSource& source, const Prompt& prompt)
    : model_(model), source_(source), prompt_(prompt) {
  KVG_CHECK(prompt.size() == source.cache->tokens(), "a prompt that the cache has not seen");
}

Status DraftPass::Run(const Scorer& scorer, int32_t first, int64_t valid_vocab) {
  KVG_CHECK(first >= 0, "a draft needs the token behind its prompt");
  const ModelConfig& config = model_.cache_config();
  rows_ = scorer.DraftRows();
  const int64_t tokens = prompt_.size(), most = config.max_position;
  if (most > 0 && tokens + rows_ > most) {
    return Unsupported(StrCat("a draft of ", rows_, " tokens behind a prompt of ", tokens,
                              " tokens needs ", tokens + rows_,
                              " positions; the model was made for ", most,
                              "; use a shorter draft, or a shorter prompt"));
  }
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    queries_.push_back(
        model_.ops().memory->Allocate(rows_ * config.query_heads * config.key_dim * 4));
  }
  KvCache fork = source_.cache->Fork();
  KVG_TRY(Thin(scorer, fork));
  Prompt all = prompt_;
  int32_t token = first;
  for (row_ = 0; row_ < rows_; ++row_) {
    all.AppendText(token);
    if (!prompt_.spans.empty()) fork.PlaceRope(RopePlaces::Of(all));
    KVG_TRY(fork.Append(1));
    const bool last = row_ + 1 == rows_;
    const SequenceStep step = {.cache = &fork,
                               .prompt = &all,
                               .begin = tokens + row_,
                               .end = tokens + row_ + 1,
                               .logits = last ? LogitRows::kNone : LogitRows::kLast,
                               .hook = this};
    const Tensor logits = model_.Forward({&step, 1});
    KVG_TRY(status_);
    if (!last) token = model_.BestTokens(logits, valid_vocab)[0];
  }
  return {};
}

Status DraftPass::Thin(const Scorer& scorer, KvCache& fork) const {
  const ModelShape& shape = *source_.shape;
  const int64_t tokens = prompt_.size(), kept = std::min(tokens, scorer.DraftEntries());
  if (kept == tokens) return {};
  ViewMemory memory(std::numeric_limits<int64_t>::max());
  ViewSource source = source_;
  source.memory = &memory;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    CacheView view(source, layer);
    const Tensor scores = view.Scratch(DType::kF32, {shape.kv_heads, tokens});
    scorer.ScoreForDraft(view, scores);
    std::vector<HeadPlan> plans(static_cast<size_t>(shape.kv_heads));
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      plans[static_cast<size_t>(h)].keep = Best(view, scores.Slice(h, h + 1), kept);
    }
    KVG_TRY(fork.Reduce(layer, plans));
  }
  return {};
}

void DraftPass::AfterAttend(int64_t layer, const Tensor& q, const Tensor&, const Tensor&) {
  if (!status_.ok()) return;
  status_ = Guarded([&]() -> Status {
    const int64_t width = model_.config().query_heads * model_.config().key_dim;
    const Tensor rows = queries_[static_cast<size_t>(layer)].As(DType::kF32, {rows_, width});
    model_.ops().rows->Convert(q.Reshape({1, width}), rows.Slice(row_, row_ + 1));
    return {};
  });
}

Tensor DraftPass::Queries(int64_t layer) const {
  const ModelConfig& config = model_.cache_config();
  return queries_[static_cast<size_t>(layer)].As(DType::kF32,
                                                 {rows_, config.query_heads, config.key_dim});
}

int64_t DraftPass::bytes() const {
  int64_t bytes = 0;
  for (const Buffer& buffer : queries_) bytes += buffer.size_bytes();
  return bytes;
}

int64_t DraftPass::PlannedBytes(const ModelConfig& config, const ModelShape& shape, int64_t entries,
                                int64_t rows) {
  // Two pages more: the last one of what stays is copied, and the draft's last one is begun.
  const int64_t fork =
      shape.layers * shape.kv_heads * shape.EntryBytes() * (entries + rows + 2 * kKvPageEntries);
  return fork + config.layer_count() * rows * config.query_heads * config.key_dim * 4;
}

}  // namespace kvgauge
