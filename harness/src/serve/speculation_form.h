// SPDX-License-Identifier: Apache-2.0
// Forms of speculative decoding that papers name: a draft with its budget and how far it drafts.
// One JSON file of configs/speculation each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "src/serve/retrieved_prompt.h"

namespace kvgauge {

struct SpeculationForm {
  std::string id, title, paper;
  int64_t version = 1;
  std::string draft;                   // a method's id
  std::vector<std::string> overrides;  // stage.param=value
  std::string budget = "none";
  int64_t gamma = 4;  // tokens that are drafted for each check
  // Set: the draft reads a shorter prompt than its judge.
  std::optional<Retrieval> retrieve = std::nullopt;
  std::vector<std::string> departures;
};

inline constexpr int64_t kMostDrafted = 64;

// The ids of what is shipped, in order.
Result<std::vector<std::string>> ListSpeculationForms();
Result<SpeculationForm> FindSpeculationForm(const std::string& id);
// An error names file, key, value, and what would be right.
Result<SpeculationForm> ReadSpeculationForm(const std::string& path);

}  // namespace kvgauge
