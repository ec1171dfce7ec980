// SPDX-License-Identifier: Apache-2.0
// The bytes that one sequence of a contender will hold, for those who admit sequences one by one.
// The numbers are those of PlanMemory (runner/engine.h).
#pragma once

#include <cstdint>
#include <memory>

#include "runner/engine.h"

namespace kvgauge {

class SequencePlan {
 public:
  // `options`: when the contender compresses, and how many sequences decode together. The
  // contender's method and models outlive the plan. Precondition: CheckMoment.
  SequencePlan(const PlannedContender& contender, const EngineOptions& options);
  ~SequencePlan();

  // While a prompt is read and scored: its full cache, captures, scores.
  int64_t PrefillBytes(int64_t prompt_tokens) const;
  // From compression on, when `total_tokens` were seen, the prompt's among them.
  int64_t HeldBytes(int64_t prompt_tokens, int64_t total_tokens) const;
  // What of that a reader knows, beside the cache.
  int64_t IndexBytes(int64_t prompt_tokens, int64_t total_tokens) const;
  // Entries as they are made, in whole pages.
  int64_t FullBytes(int64_t tokens) const;
  // What a pass takes beside caches, the longest sequence having so many tokens.
  int64_t WorkingBytes(int64_t longest_tokens) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvgauge
