// SPDX-License-Identifier: Apache-2.0
// Lets a model begin its answer on a fork of a prompt's cache that holds few entries, and keeps the
// queries of the tokens it says.
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "methods/stages.h"
#include "runner/layer_hook.h"
#include "runner/model.h"
#include "src/compress/view.h"

namespace kvgauge {

// Serves one prompt and one scorer that drafts. One thread, which runs the model: what an earlier
// pass left in the model's working memory is gone.
class DraftPass final : public LayerHook {
 public:
  // `prompt` is all that the cache of `source` has seen, uncompressed, with the captures of its
  // prefill; all are left as they are.
  DraftPass(Model& model, const ViewSource& source, const Prompt& prompt);

  // `first` is the token behind the prompt; what follows is the best of `valid_vocab` tokens each
  // time, of all if that is 0. An error where the draft does not fit the model.
  Status Run(const Scorer& scorer, int32_t first, int64_t valid_vocab);
  // [rows of the draft, query_heads, key_dim], rotated, f32.
  Tensor Queries(int64_t layer) const;

  int64_t bytes() const;
  // Bytes for a draft of `rows` that holds `entries` of each head, the fork's included.
  static int64_t PlannedBytes(const ModelConfig& config, const ModelShape& shape, int64_t entries,
                              int64_t rows);

  void BeforeAttend(int64_t, const Tensor&) override {}
  void AfterAttend(int64_t layer, const Tensor& q, const Tensor& log_sum_exp,
                   const Tensor& out) override;

 private:
  // Leaves the entries of `fork` that score best.
  Status Thin(const Scorer& scorer, KvCache& fork) const;

  Model& model_;
  const ViewSource& source_;
  const Prompt& prompt_;
  std::vector<Buffer> queries_;  // [layers]
  int64_t rows_ = 0, row_ = 0;
  Status status_;
};

}  // namespace kvgauge
