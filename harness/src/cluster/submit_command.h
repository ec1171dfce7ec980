// SPDX-License-Identifier: Apache-2.0
// submit: a run divided over the nodes of a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "src/run/run_command.h"

namespace kvgauge {

struct SubmitOptions {
  bool slurm = false;
  std::string config;                      // a path, or the name of a shipped one
  std::vector<std::string> run_arguments;  // more for `kvgauge run`
  RunOptions run;                          // the same, read
  int64_t shards = 0;
  std::string database;
  std::string partition;
  std::string time;
  int64_t cpus = 0;
  int64_t gpus = 0;
  std::string memory;
  int64_t array_limit = 0;
  bool dry_run = false;
  bool json = false;
};

// Writes the batch scripts beside the database and, unless dry_run, gives them to sbatch.
Status RunSubmit(const SubmitOptions& options);

}  // namespace kvgauge
