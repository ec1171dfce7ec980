// SPDX-License-Identifier: Apache-2.0
// One recorded sample for people: what was asked, what both caches answered, what was kept.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "reports/store.h"
#include "src/results/results.h"

namespace kvgauge {

// The sample as the task makes it, where that could be done.
struct MadePrompt {
  std::string system;                  // "" for none
  std::string context;                 // everything before the first question
  std::vector<std::string> questions;  // one a turn
  std::string missing;                 // why it could not; "" where it could
};

struct ShownSample {
  const StoredCell* cell = nullptr;
  SampleRow row;
  std::optional<SampleRow> full;  // the full cache's
  MadePrompt prompt;
};

// From the task that is stored with the cell; the tokenizer is that of `flags`, or of the model
// that a run of this store names. The sample must have the content that was recorded.
MadePrompt MakePromptAgain(const StoredCell& cell, const SampleRow& row,
                           const std::vector<StoredRun>& runs, const ShowFlags& flags);

// `whole`: the context from its first to its last word.
std::string SampleText(const ShownSample& shown, bool whole, bool colour);
Json SampleToJson(const ShownSample& shown);

}  // namespace kvgauge
