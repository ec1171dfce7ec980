// SPDX-License-Identifier: Apache-2.0
// What methods draft for the full cache, as tables show it: prompts and repetitions are one entry,
// and what may be compared stands together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reports/statistics.h"
#include "reports/store_rows.h"

namespace kvgauge {

// The median of what was timed, its least and its most.
struct TimedSpeculation {
  double median = 0;
  Interval range;
};

// A draft at a budget with one length.
struct SpeculationEntry {
  SpeculationRow row;  // of the first prompt: whose names and bytes are shown
  int64_t prompts = 0;
  // Sums over prompts, each once: repetitions draft the same.
  int64_t checks = 0, drafted = 0, accepted = 0, tokens = 0;
  Interval acceptance_range;  // the least and the most of a prompt
  // Over prompts and repetitions; those that other programs disturbed
  // (LatencyRow::kMaxOthersShare) are left out, unless they disturbed every one.
  TimedSpeculation tokens_per_s, full_tokens_per_s;
  TimedSpeculation speedup;  // pair by pair
  int64_t timed = 0, left_out = 0;
  bool disturbed = false;
  int64_t not_engaged = 0;  // prompts

  double acceptance() const;
  double accepted_per_check() const;
  double tokens_per_check() const;  // the full cache's own one included
  // "triforce: quest", "snapkv[score.window=8] 20%".
  std::string Name() const;
};

// One model, set of prompts and machine.
struct SpeculationBoard {
  ModelRow model;
  std::string workload, machine_facts;
  std::string numbers;                    // "bf16": what the model computes with
  bool one_of_several = false;            // there are boards of this model with other numbers
  std::vector<SpeculationEntry> entries;  // the fastest first

  int64_t prompts() const;      // of the workload; an entry that was stopped has fewer
  bool random_prompts() const;  // on which acceptance says little
  // "2 prompts of 300..812 tokens (long.txt), answers of 64"; with its numbers behind it where it
  // is one of several.
  std::string Title() const;
};

// In the order in which they were measured first.
std::vector<SpeculationBoard> SummariseSpeculation(std::span<const SpeculationRow> rows);

}  // namespace kvgauge
