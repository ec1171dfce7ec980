// SPDX-License-Identifier: Apache-2.0
// What `kvgauge bench capacity` takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "harness/cli.h"
#include "src/cli/commands.h"

namespace kvgauge {

struct BenchCapacityOptions {
  ModelFlags model;
  std::vector<std::string> methods = {"full", "snapkv", "kivi_2bit"};
  std::vector<std::string> budgets = {"20%"};  // each method that takes one at each of them
  std::vector<std::string> overrides;
  std::vector<std::string> policies = {"fcfs"};
  std::vector<std::string> batches = {"1", "4", "16", "max"};  // max: as many as fit
  std::string max_memory;                                      // bytes, as in "8GiB"; "": no limit
  std::string host_memory;                                     // the same of what waits on the host
  std::string disk;   // folder of caches that wait on disk; "": the system's temporary one
  std::string trace;  // file; "": generated
  int64_t first = 0;  // requests of the file; 0: all
  double length_scale = 1, time_scale = 1;
  std::string arrivals = "together";
  double per_second = 1, burstiness = 4;
  int64_t requests = 32;
  std::string prompt_tokens = "64..512", answer_tokens = "16..64";
  int64_t shared_tokens = 0, shared_groups = 1;
  int64_t turns = 1;
  double pause_s = 0;
  std::string save_trace;  // file
  bool estimate = false;   // count, without weights
  double bytes_per_s = 1e10, operations_per_s = 2e11;
  int repetitions = 1;
  uint64_t seed = 1;
  std::string database;  // where results are recorded; "": nowhere
  bool again = false;    // measure what is recorded once more
  std::string command;   // as typed
  BuildInfo build;
  bool json = false;
};

// The exit code.
Result<int> RunBenchCapacity(const BenchCapacityOptions& options);

}  // namespace kvgauge
