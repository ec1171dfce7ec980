// SPDX-License-Identifier: Apache-2.0
// Runs another program and waits for it.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct ProgramOutput {
  int exit_code = 0;  // 128 + the signal that ended it
  std::string out;    // what it wrote to its standard output
};

// words[0] is looked up in PATH; no shell is involved. Standard error is this program's. What
// cannot be started is an error.
Result<ProgramOutput> RunProgram(const std::vector<std::string>& words);
// "" where PATH has no such program.
std::string FindProgram(const std::string& name);

}  // namespace kvgauge
