// SPDX-License-Identifier: Apache-2.0
// Rows of a question behind a compressed context: they count in running scores as decoded rows do.
#pragma once

#include <vector>

#include "methods/stages.h"
#include "runner/capture.h"
#include "src/compress/reads.h"
#include "src/compress/view.h"

namespace kvgauge {

// The hook of the passes that append them. A pass that was begun again leaves no trace of the first
// time.
class QuestionRows final : public LayerHook {
 public:
  // The most rows of one pass, unless a picture that sees all of itself has more: what they gave to
  // each entry is held for one layer at a time.
  static constexpr int64_t kMostRows = 32;

  QuestionRows(const ModelConfig& config, const ModelShape& shape, const Needs& needs,
               const LayerDevices& devices);

  bool wants_log_sum_exp() const override { return true; }
  bool wants_inputs() const override { return !gates_.empty(); }
  void LayerInput(int64_t layer, const Tensor& x) override;
  void BeforeAttend(int64_t, const Tensor&) override {}
  void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                   const Tensor& out) override;

  // After such a pass: ages the scores that `cache` keeps, row by row, each as if it had been the
  // newest.
  Status Age(const ViewSource& source, const Scorer& scorer, KvCache& cache);

  static int64_t PlannedBytes(const ModelConfig& config);

 private:
  Status AgeLayer(const ViewSource& source, int64_t layer, const Scorer& scorer, KvCache& cache);

  const ModelConfig& config_;
  const LayerDevices devices_;
  int64_t rows_ = 0;                        // of the newest pass
  std::vector<Buffer> queries_, log_sums_;  // [layers] of [rows, heads * key_dim], [heads, rows]
  GateFolds gates_;
  Status status_;
};

// The hook of the same passes where a score looks back from the last rows in decode: their queries
// are kept. `inner`, which may be null, sees what it sees.
class LastRows final : public LayerHook {
 public:
  LastRows(StepCapture& step, LayerHook* inner) : step_(step), inner_(inner) {}
  // Before each pass. The cache outlives it.
  void Begin(const KvCache& cache) { cache_ = &cache; }

  bool wants_log_sum_exp() const override { return inner_ != nullptr; }
  bool wants_inputs() const override { return inner_ != nullptr && inner_->wants_inputs(); }
  void LayerInput(int64_t layer, const Tensor& x) override { inner_->LayerInput(layer, x); }
  void BeforeAttend(int64_t, const Tensor&) override {}
  void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                   const Tensor& out) override {
    if (inner_ != nullptr) inner_->AfterAttend(layer, q, log_sum_exp, out);
    step_.KeepRows(layer, q, cache_->tokens());
  }

 private:
  StepCapture& step_;
  LayerHook* inner_;
  const KvCache* cache_ = nullptr;
};

// The hook of the same passes where a reader chooses by these rows what they read.
class RowReads final : public LayerHook {
 public:
  // `seconds`: what choosing takes is added there.
  RowReads(StepReads& reads, double& seconds) : reads_(reads), seconds_(seconds) {}
  // Before each pass. The sequence's prompt ends with the question.
  void Begin(const ViewSource& source, KvCache& cache) {
    source_ = source;
    cache_ = &cache;
  }
  // What failed in the newest pass.
  const Status& status() const { return status_; }

  void BeforeAttend(int64_t layer, const Tensor& q) override;
  void AfterAttend(int64_t, const Tensor&, const Tensor&, const Tensor&) override {}

 private:
  StepReads& reads_;
  double& seconds_;
  ViewSource source_;
  KvCache* cache_ = nullptr;
  Status status_;
};

}  // namespace kvgauge
