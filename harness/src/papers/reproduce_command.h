// SPDX-License-Identifier: Apache-2.0
// reproduce: a published table run again, ours beside theirs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "src/run/run_command.h"

namespace kvgauge {

struct ReproduceOptions {
  std::string paper;  // an id, or a pack's file; "": list them
  int64_t table = 0;  // from 1; 0: the one of the model, else the first
  std::string model;  // a checkpoint's directory
  std::string weights = "file", dtype = "auto";
  std::vector<std::string> from;  // compare what these databases hold; nothing is run
  std::string model_name;         // in them
  double margin = 1, alpha = 0.05;
  std::string format = "table";  // of the list: or markdown, the page docs/reproductions.md
  RunOptions run;                // database, limit, data and the like
};

// The exit code: as of `run`.
Result<int> RunReproduce(const ReproduceOptions& options);

}  // namespace kvgauge
