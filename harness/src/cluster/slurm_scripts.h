// SPDX-License-Identifier: Apache-2.0
// The batch scripts of a run that is divided over a Slurm cluster. Text only; submits nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct SlurmJob {
  std::string name;  // of the run
  std::string program;
  std::string working_directory;       // what relative paths of the configuration start from
  std::string config;                  // as `kvgauge run` takes it
  std::vector<std::string> arguments;  // more of them
  std::string database;                // of the merged result
  std::string directory;               // of scripts, logs and the shards' databases
  int64_t shards = 1;
  int64_t array_limit = 0;  // shards that run at a time; 0: all
  int64_t cpus = 0;         // 0: the cluster's default; likewise the texts below when empty
  int64_t gpus = 0;         // devices of each shard, which the scheduler chooses; 0: none
  std::string partition;
  std::string time;
  std::string memory;
};

// Refuses what a script cannot hold or Slurm would not understand. Messages name the flag.
Status CheckSlurmJob(const SlurmJob& job);

// An array job, one task a shard; shard i of n lies in DIRECTORY/shard-i-of-n.db. Precondition of
// both: CheckSlurmJob.
std::string ShardScript(const SlurmJob& job);
std::string MergeScript(const SlurmJob& job);

}  // namespace kvgauge
