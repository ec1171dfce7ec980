// SPDX-License-Identifier: Apache-2.0
#include "src/compress/question_rows.h"

#include <algorithm>

#include "core/guarded.h"

namespace kvgauge {

QuestionRows::QuestionRows(const ModelConfig& config, const ModelShape& shape, const Needs& needs,
                           const LayerDevices& devices)
    : config_(config),
      devices_(devices),
      queries_(static_cast<size_t>(config.layer_count())),
      log_sums_(static_cast<size_t>(config.layer_count())),
      gates_(config, shape, needs.gates, kMostRows, devices.first()) {}

// The first thing that a pass shows of a layer.
void QuestionRows::LayerInput(int64_t layer, const Tensor& x) {
  if (layer == 0) status_ = {};
  if (!status_.ok()) return;
  status_ = Guarded([&]() -> Status {
    KVG_CHECK(x.shape[0] <= kMostRows, "more rows of a question than are held");
    gates_.Fold(layer, x, 0);
    return {};
  });
}

void QuestionRows::AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                               const Tensor&) {
  if (layer == 0 && !wants_inputs()) status_ = {};
  if (!status_.ok()) return;
  status_ = Guarded([&]() -> Status {
    const int64_t heads = config_.query_heads, width = heads * config_.key_dim;
    const auto index = static_cast<size_t>(layer);
    rows_ = q.shape[0];
    if (queries_[index].size_bytes() < rows_ * width * 4) {
      const int64_t room = std::max(rows_, kMostRows);
      queries_[index] = devices_.of(layer).memory->Allocate(room * width * 4);
      log_sums_[index] = devices_.of(layer).memory->Allocate(room * heads * 4);
    }
    Tensor flat = q;  // rows may be strided, the heads of a row are not
    flat.rank = 2;
    flat.shape = {rows_, width, 0, 0};
    flat.stride = {q.stride[0], 1, 0, 0};
    devices_.of(layer).rows->Convert(flat, queries_[index].As(DType::kF32, {rows_, width}));
    devices_.of(layer).rows->Convert(log_sum_exp, log_sums_[index].As(DType::kF32, {heads, rows_}));
    return {};
  });
}

void RowReads::BeforeAttend(int64_t layer, const Tensor& q) {
  if (layer == 0) status_ = {};
  if (!status_.ok()) return;
  status_ = Guarded([&]() -> Status {
    KVG_CHECK(source_.prompt != nullptr, "a question of tokens that are not known");
    reads_.ChooseForRows(source_, *cache_, layer, q, source_.prompt->size(), seconds_);
    return {};
  });
}

Status QuestionRows::Age(const ViewSource& source, const Scorer& scorer, KvCache& cache) {
  KVG_TRY(status_);
  for (int64_t layer = 0; layer < config_.layer_count(); ++layer) {
    KVG_TRY(AgeLayer(source, layer, scorer, cache));
  }
  return {};
}

Status QuestionRows::AgeLayer(const ViewSource& source, int64_t layer, const Scorer& scorer,
                              KvCache& cache) {
  const auto index = static_cast<size_t>(layer);
  const int64_t heads = config_.query_heads;
  const Tensor queries = queries_[index].As(DType::kF32, {rows_, heads, config_.key_dim});
  ViewSource all = source;
  all.memory = nullptr;
  CacheView view(all, layer);
  const Tensor attention =
      view.NewestAttention(queries, log_sums_[index].As(DType::kF32, {heads, rows_}));
  const int64_t numbers = scorer.numbers(), kv_heads = source.shape->kv_heads;
  const Tensor scores = view.Scratch(DType::kF32, {numbers, kv_heads, view.width()});
  const auto own_of = [&](const Tensor& both) { return numbers == 1 ? both[0] : both; };
  cache.ReadScores(layer, own_of(scores));
  for (int64_t r = 0; r < rows_; ++r) {
    RowOfPass row = {.queries = queries[r],
                     .gates = gates_.empty() ? nullptr : &gates_,
                     .at = r,
                     .attention = attention[0],
                     .later = rows_ - 1 - r};
    row.attention.data = attention[0][r].data;
    row.attention.shape[0] = heads;
    row.attention.stride[0] = attention.stride[0];
    ViewSource then = source;
    then.row = &row;
    CacheView seen(then, layer);
    const Tensor own = seen.Scratch(DType::kF32, {numbers, kv_heads, seen.width()});
    const auto copy = [&](const Tensor& from, const Tensor& to) {
      for (int64_t i = 0; i < numbers * kv_heads; ++i) {
        const int64_t h = i % kv_heads, n = seen.lengths()[static_cast<size_t>(h)];
        if (n > 0)
          devices_.of(layer).memory->Copy(from[i / kv_heads][h].Slice(0, n),
                                          to[i / kv_heads][h].Slice(0, n));
      }
    };
    copy(scores, own);
    scorer.Age(seen, own_of(own));
    copy(own, scores);
  }
  return cache.KeepScores(layer, own_of(scores));
}

int64_t QuestionRows::PlannedBytes(const ModelConfig& config) {
  return config.layer_count() * kMostRows * config.query_heads * (config.key_dim + 1) * 4;
}

}  // namespace kvgauge
