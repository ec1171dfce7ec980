// SPDX-License-Identifier: Apache-2.0
// Reads the earlier prompts that a stage makes up of a prompt's chunks (methods/historic_reuse.h),
// and sums what their tokens pay to each text. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/result.h"
#include "methods/historic_reuse.h"
#include "runner/model.h"

namespace kvgauge {

class EarlierReads {
 public:
  // `prompt` divides at `edges` into two texts or more; all but `edges` outlive this.
  EarlierReads(Model& model, const HistoricReuse& stage, const Prompt& prompt,
               std::vector<int64_t> edges, int64_t planned_length, CachePools& pools);
  ~EarlierReads();

  bool done() const { return reads_.size() == orders_.size() && reads_.back().ended(); }
  // The next rows of an earlier prompt. Precondition: not done.
  Status Next();

  // Precondition of the following: done.
  struct Chunk {
    int64_t prompt = 0;  // the earlier one that it comes from
    int64_t first = 0;   // its first entry there
  };
  struct Choice {
    std::vector<Chunk> chunks;  // behind the beginning
    std::vector<int32_t> rows;  // that are computed again, ascending
  };
  Choice Choose() const;
  // The earlier prompts' tokens and caches; keys are those before rotation.
  int64_t prompts() const { return std::ssize(reads_); }
  const std::vector<int32_t>& ids(int64_t prompt) const { return Of(prompt).ids; }
  const KvCache& cache(int64_t prompt) const { return *Of(prompt).cache; }

  // Bytes beside the caches, for the plan of a run: of prompts of so many tokens, in so many texts.
  static int64_t PlannedBytes(const HistoricReuse& stage, const ModelConfig& config, int64_t tokens,
                              int64_t texts);

 private:
  class Paying;
  struct Read {
    std::vector<int32_t> ids;
    std::vector<int64_t> firsts;  // where each text stands there
    std::unique_ptr<Prompt> prompt;
    std::unique_ptr<KvCache> cache;
    Buffer paid;  // [texts, tokens]

    bool ended() const { return cache->tokens() == prompt->size(); }
  };

  const Read& Of(int64_t prompt) const { return reads_[static_cast<size_t>(prompt)]; }
  int64_t texts() const { return std::ssize(edges_) - 1; }
  int64_t LengthOf(int64_t text) const {
    return edges_[static_cast<size_t>(text) + 1] - edges_[static_cast<size_t>(text)];
  }
  Tensor PaidOf(const Read& read) const {
    return read.paid.As(DType::kF32, {texts(), edges_.back()});
  }
  Status Begin();

  Model& model_;
  const HistoricReuse& stage_;
  const Prompt& prompt_;
  const std::vector<int64_t> edges_;
  const int64_t planned_length_;
  CachePools& pools_;
  std::vector<std::vector<int64_t>> orders_;
  std::vector<Read> reads_;
};

}  // namespace kvgauge
