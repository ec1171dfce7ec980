// SPDX-License-Identifier: Apache-2.0
// Runs another program, and waits for it or goes on beside it. No shell is involved.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct ProgramOutput {
  int exit_code = 0;  // as WaitForProgram has it
  std::string out;    // what it wrote to its standard output
};

// A program that runs. Its starter closes the ends of the pipes and waits for it.
struct StartedProgram {
  pid_t process = 0;
  int out = -1;
  int err = -1;  // -1: standard error is this program's
};

// words[0] is looked up in PATH. What cannot be started is an error.
Result<StartedProgram> StartProgram(const std::vector<std::string>& words, bool take_errors);
// The exit code; 128 + the signal that ended it.
int WaitForProgram(const StartedProgram& program);
// Both, and standard error is this program's.
Result<ProgramOutput> RunProgram(const std::vector<std::string>& words);
// "" where PATH has no such program.
std::string FindProgram(const std::string& name);

}  // namespace kvgauge
