// SPDX-License-Identifier: Apache-2.0
// Answers that were drafted, in a result store: what is recorded of this machine is not measured
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "reports/store.h"
#include "runner/speculate.h"
#include "src/model/method_flags.h"

namespace kvgauge {

// What all answers of a call have in common.
struct SpeculationSubject {
  ModelRow model;
  std::string workload;  // canonical JSON
  std::string dtype;
  std::string backend, isa;  // what else can move a token
  int64_t answer_tokens = 0;
};

// The prompts of a call as its workload says them. `texts`: names of files; none: random tokens.
std::string SpeculationWorkload(const std::vector<std::vector<int32_t>>& prompts,
                                const std::vector<std::string>& texts, int64_t answer_tokens,
                                uint64_t seed);

// The row of an answer before it is measured: all that says which one it is, but prompt and
// repetition. `variant`: what differs from the method's file.
SpeculationRow SpeculationRowOf(const SpeculationSubject& subject, const ChosenMethod& chosen,
                                const std::string& variant, const std::string& form, int64_t gamma);
// Adds what was measured, and the full cache's answer that was measured beside it.
void FillSpeculationRow(const SpeculationResult& own, const SpeculationResult& full,
                        SpeculationRow& row);

class SpeculationRecorder {
 public:
  // Opens or makes the store and begins a run in it.
  static Result<std::unique_ptr<SpeculationRecorder>> Open(const std::string& path,
                                                           const RunRow& run);

  // The newest record of that answer and repetition on this machine; null: there is none.
  const SpeculationRow* Find(const SpeculationRow& row) const;
  // Refuses an answer that differs from a recorded one of the same model and prompt: all are the
  // full cache's.
  Status Write(const SpeculationRow& row);
  // What is to be known of the run beside its rows.
  Status Tell(const std::string& kind, const std::string& message);
  Status Finish(int signal);

 private:
  SpeculationRecorder(std::unique_ptr<ResultStore> store, int64_t run,
                      std::vector<SpeculationRow> recorded)
      : store_(std::move(store)), run_(run), recorded_(std::move(recorded)) {}

  std::unique_ptr<ResultStore> store_;
  int64_t run_;
  std::vector<SpeculationRow> recorded_;  // of this machine
};

}  // namespace kvgauge
