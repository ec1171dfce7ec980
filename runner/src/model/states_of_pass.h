// SPDX-License-Identifier: Apache-2.0
// Passes that write states from what these were are not begun again.
#pragma once

#include <algorithm>
#include <exception>
#include <new>
#include <span>

#include "runner/kv_cache.h"
#include "runner/model.h"

namespace kvgauge {

// As an allocation that fails: the sequence's result is the lack of memory.
class LostStates final : public std::bad_alloc {
 public:
  const char* what() const noexcept override {
    return "out of memory in the middle of a pass, and layers whose states have seen its rows "
           "cannot see them again";
  }
};

// Lives as long as the pass. Throws where an earlier pass of one of these found no memory in the
// middle of its states.
class StatesOfPass {
 public:
  explicit StatesOfPass(std::span<const SequenceStep> steps) : steps_(steps) {
    if (std::ranges::any_of(steps, [](const auto& step) { return step.cache->states_midway(); })) {
      throw LostStates();
    }
  }
  ~StatesOfPass() {
    if (std::uncaught_exceptions() > thrown_before_) return;
    for (const SequenceStep& step : steps_) step.cache->SetStatesMidway(false);
  }
  StatesOfPass(const StatesOfPass&) = delete;
  StatesOfPass& operator=(const StatesOfPass&) = delete;

 private:
  std::span<const SequenceStep> steps_;
  const int thrown_before_ = std::uncaught_exceptions();
};

}  // namespace kvgauge
