// SPDX-License-Identifier: Apache-2.0
// plan, run: what a configuration means, and doing it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "harness/cli.h"
#include "src/run/run_config.h"
#include "src/run/run_shorthand.h"

namespace kvgauge {

struct RunOptions {
  std::string config;                    // a path, or the name of a shipped one; "": the shorthand
  RunShorthand shorthand;                // instead of a file
  std::shared_ptr<const Json> prepared;  // instead of both; `config` names it in messages
  std::string database;                  // "": results/NAME.db
  int64_t limit = -1;
  std::string samples;  // positions, "0-9,17"
  std::vector<int64_t> seeds;
  std::optional<int64_t> draws;
  std::optional<double> temperature, top_p;
  std::string shard;  // "1/4"
  std::vector<std::string> only;
  std::string data_directory;
  std::string max_memory;
  std::string backend;
  int threads = 0;
  std::string devices;  // "0,1" or "all": a worker on each
  int processors = 0;   // that these share; 0: all there are
  std::string worker;   // of such a worker: SharedWork::Word
  bool unscored = false;
  bool skip_bad = false;
  bool retry = false;
  bool dry_run = false;
  bool quiet = false;
  bool json = false;
  std::string command;             // the whole of it, as a shell takes it
  std::vector<std::string> words;  // of it, behind the program's name
  BuildInfo build;                 // of the program
};

// The configuration, of a file or of the shorthand, with what the options put over it; wrong ones
// are errors, the choice of samples included.
Result<RunConfig> CheckedConfig(const RunOptions& options);
Status RunPlanCommand(const RunOptions& options);
// The exit code: 0; 1 where it ran something and nothing of it succeeded; 128 + the signal that
// interrupted it.
Result<int> ExecuteRunCommand(const RunOptions& options);

}  // namespace kvgauge
