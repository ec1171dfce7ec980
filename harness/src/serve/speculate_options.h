// SPDX-License-Identifier: Apache-2.0
// What `kvgauge bench speculate` takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "harness/cli.h"
#include "src/cli/commands.h"

namespace kvgauge {

struct BenchSpeculateOptions {
  ModelFlags model;
  std::vector<std::string> forms;  // ids of configs/speculation
  std::string draft_model;         // of forms that retrieve; "": the judge's
  int64_t retrieve_tokens = 0;     // of those forms; 0: as in their files
  int64_t retrieve_chunk = 0;
  std::vector<std::string> drafts;             // methods; none, and no forms: a few of each kind
  std::vector<std::string> budgets = {"20%"};  // each draft that takes one at each of them
  std::vector<std::string> overrides;          // of every draft
  std::vector<int64_t> gammas = {1, 2, 4, 8};  // of drafts; a form has its own
  std::vector<std::string> texts;              // files: a prompt each; none: random tokens
  int64_t prompts = 2;
  int64_t prompt_tokens = 1024;  // of random ones; the most of a text, whose end counts
  int64_t answer_tokens = 64;
  int repetitions = 3;
  uint64_t seed = 1;
  std::string database;  // where answers are recorded; "": nowhere
  bool again = false;    // measure what is recorded once more
  std::string command;   // as typed
  BuildInfo build;
  bool json = false;
};

// The exit code.
Result<int> RunBenchSpeculate(const BenchSpeculateOptions& options);

}  // namespace kvgauge
