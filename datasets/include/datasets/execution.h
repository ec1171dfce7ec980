// SPDX-License-Identifier: Apache-2.0
// Scores that take running the model's text as a program: pass@k. Nothing here is reached unless a
// user asks for it by name and says which interpreter to run.
//
// The child has limits on time, memory, files and processes, an empty environment, and namespaces
// of its own: no network, a file system that cannot be written to, no view of other processes.
// Where the kernel gives the user no namespaces, nothing is run unless that is asked for. The child
// can read what the user can read: run what you distrust in a container or on a machine of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct SandboxLimits {
  double wall_s = 10;
  int64_t cpu_s = 10;
  int64_t memory_bytes = int64_t{1} << 30;
  int64_t file_bytes = int64_t{16} << 20;
  int64_t output_bytes = int64_t{64} << 10;  // kept; the rest is read and dropped
  bool unisolated = false;                   // run it even where there are no namespaces
};

struct SandboxRun {
  bool timed_out = false;
  int exit_code = -1;     // 128 + n: ended by signal n; -1: timed out
  bool end_told = false;  // the program gave back the secret; src/program_end.h says how
  std::string output;     // of both streams
  bool isolated = false;  // the namespaces were there
};

// Runs `command` with the path of a file that holds `program` as its last argument, in an empty
// directory of its own. An error is a fault of the machine; whatever the program does is a result.
Result<SandboxRun> RunSandboxed(const std::vector<std::string>& command, const std::string& program,
                                const SandboxLimits& limits);

struct ExecutionOptions {
  std::vector<std::string> command;  // the interpreter and its flags
  SandboxLimits limits;
  std::vector<int64_t> ks = {1};
  bool skip_bad = false;
};

struct ExecutionScores {
  struct PassAt {
    int64_t k = 1;
    double score = 0;
    int64_t problems = 0;  // those with at least k samples
    int64_t left_out = 0;  // those with fewer, which have no pass@k
  };
  std::vector<PassAt> pass;
  std::vector<int64_t> lines;  // of each program, from 1
  std::vector<bool> passed;
  std::vector<std::string> bad_lines;
  bool isolated = false;     // every run was
  bool end_checked = false;  // the interpreter is one whose programs' ends are told apart
};

// Each line of the file is one program: "prompt" (may be missing), "prediction", a newline, and the
// one text in "answers" (the test); with "entry_point" a call check(ENTRY_POINT) follows. It passes
// when it runs to its last line and ends with 0, in time; a program that exits before the end of
// its test fails, whatever it exits with. Python and shells are known to do so; with any other
// interpreter an end with 0 is all there is to go by. Lines of one "id" are samples of one problem;
// without ids, each line is a problem of its own.
Result<ExecutionScores> ScoreByExecution(const std::string& path, const ExecutionOptions& options);

}  // namespace kvgauge
