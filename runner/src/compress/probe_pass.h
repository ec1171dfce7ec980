// SPDX-License-Identifier: Apache-2.0
// Runs a scorer's probes behind a prompt and keeps the most that their rows attend to each entry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "methods/method.h"
#include "methods/probe.h"
#include "runner/layer_hook.h"
#include "runner/model.h"

namespace kvgauge {

// Before a prompt is read: an error where a probe of it does not fit the model. One that a draft
// answers is not known yet, and is refused by ProbePass.
Status CheckProbes(const Model& model, const StageChoice& score, const Prompt& prompt);

// Serves one prompt and the probes of one scorer. One thread, which runs the model: what an earlier
// pass left in the model's working memory is gone.
class ProbePass final : public LayerHook {
 public:
  // `prompt` is all that `cache` has seen, uncompressed; both are left as they are.
  ProbePass(Model& model, const KvCache& cache, const Prompt& prompt);

  // At most `most_rows` rows may come at a time. An error where a probe does not fit the model.
  Status Run(std::span<const Probe> probes, int64_t most_rows);
  // The maximum over all rows, as Probe says; 0 for entries over which none was measured.
  // [query_heads, tokens]
  Tensor Maxima(int64_t layer) const;

  int64_t bytes() const;
  // Bytes for a prompt of `tokens` and probes of at most `rows`, the fork's entries included.
  static int64_t PlannedBytes(const ModelConfig& config, const ModelShape& shape, int64_t tokens,
                              int64_t rows);

  bool wants_inputs() const override { return probe_->over_input_length; }
  void LayerInput(int64_t layer, const Tensor& x) override;
  void BeforeAttend(int64_t, const Tensor&) override {}
  void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                   const Tensor& out) override;

 private:
  Status RunOne(int64_t most_rows);
  void Measure(int64_t layer, const Tensor& q);

  Model& model_;
  const KvCache& cache_;
  const Prompt& prompt_;
  std::vector<Buffer> maxima_;  // [layers]
  const Probe* probe_ = nullptr;
  const KvCache* fork_ = nullptr;
  Buffer inputs_, weights_, out_, log_sums_, part_;
  Status status_;
};

}  // namespace kvgauge
