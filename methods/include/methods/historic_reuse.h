// SPDX-License-Identifier: Apache-2.0
// Reuse stages whose chunks were read in earlier prompts, behind other chunks than those that stand
// before them now, and that choose by what the chunks attended to there.
//
// Samples of a run are independent, so the earlier prompts are made up: each has the same beginning
// and the same chunks in another order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "methods/reuse.h"

namespace kvgauge {

struct EarlierPrompt {
  std::vector<int64_t> order;  // of the chunks: a permutation of 1 .. chunks
  // What each token paid to each text, there: the mean over query heads, summed over layers; 0
  // where the text stood behind the token. [texts, tokens] f32, tokens by their places now. Columns
  // of the beginning, text 0, are undefined.
  Tensor paid;
};

struct EarlierPrompts {
  Ops* ops = nullptr;
  std::span<const int64_t> edges;  // where texts begin now, and the end of the last one
  std::span<const EarlierPrompt> prompts;
};

class HistoricReuse : public Reuse {
 public:
  // The orders of the earlier prompts, at least one of them.
  virtual std::vector<std::vector<int64_t>> Orders(int64_t chunks) const = 0;
  struct Choice {
    std::vector<int64_t> prompts;  // of each chunk: the earlier prompt whose cache is used
    std::vector<int32_t> rows;     // that are computed again, ascending
  };
  virtual Choice ChooseEarlier(const EarlierPrompts& earlier) const = 0;
};

}  // namespace kvgauge
