// SPDX-License-Identifier: Apache-2.0
// What methods hold and serve in a memory, as tables show it: repetitions are one entry, and what
// may be compared stands together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reports/statistics.h"
#include "reports/store_rows.h"

namespace kvgauge {

// A method at a budget with one largest batch.
struct CapacityEntry {
  // The repetition whose tokens a second are the median of those that other programs did not
  // disturb (LatencyRow::kMaxOthersShare); of all, where they disturbed every one.
  CapacityRow row;
  Interval tokens_per_s;  // the least and the most of them
  int64_t repetitions = 0;
  int64_t left_out = 0;  // disturbed ones
  bool disturbed = false;

  bool ran() const { return row.refused.empty(); }
  // Its numbers are those of some of the requests.
  bool partly() const { return row.served < row.requests; }
};

// One model, workload, memory, policy and machine.
struct CapacityBoard {
  ModelRow model;
  std::string workload, policy, machine_facts;
  std::string numbers;          // "bf16": what the model computes with
  bool one_of_several = false;  // there are boards of this model with other numbers
  int64_t memory_bytes = 0, host_memory_bytes = 0;  // 0: no limit
  std::vector<CapacityEntry> entries;               // by method, budget, batch

  // "400.0 MiB, fcfs: 64 requests, prompts of 256..1024 tokens, answers of 32..64"; with its
  // numbers behind it where it is one of several.
  std::string Title() const;
  // For every method and budget the entry that served most tokens a second, of those that served
  // most requests; those that were refused at every batch are left out.
  std::vector<const CapacityEntry*> Fastest() const;
  // The same of those that could hold as many sequences as the memory has room for.
  std::vector<const CapacityEntry*> Unbounded() const;
};

// In the order in which they were measured first.
std::vector<CapacityBoard> SummariseCapacity(std::span<const CapacityRow> rows);

// Whether an entry is of the method, variant and budget of a row of a leaderboard.
bool IsCapacityOf(const CapacityRow& row, const MethodRow& method, const std::string& budget);

}  // namespace kvgauge
