// SPDX-License-Identifier: Apache-2.0
// Rows of a question behind a compressed context: they count in running scores as decoded rows do.
#pragma once

#include <vector>

#include "methods/stages.h"
#include "runner/capture.h"
#include "src/compress/view.h"

namespace kvgauge {

// The hook of the passes that append them. A pass that was begun again leaves no trace of the first
// time.
class QuestionRows final : public LayerHook {
 public:
  // The most rows of one pass, unless a picture that sees all of itself has more: what they gave to
  // each entry is held for one layer at a time.
  static constexpr int64_t kMostRows = 32;

  QuestionRows(const ModelConfig& config, Ops& ops);

  bool wants_log_sum_exp() const override { return true; }
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
  Ops& ops_;
  int64_t rows_ = 0;                        // of the newest pass
  std::vector<Buffer> queries_, log_sums_;  // [layers] of [rows, heads * key_dim], [heads, rows]
  Status status_;
};

}  // namespace kvgauge
