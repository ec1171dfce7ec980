// SPDX-License-Identifier: Apache-2.0
// Capacity cases in a result store: what is recorded of this machine is not measured again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "harness/cli.h"
#include "reports/store.h"
#include "src/serve/capacity_bench.h"

namespace kvgauge {

// What all cases of a call have in common.
struct CapacitySubject {
  ModelRow model;
  std::string variant;   // of every method
  std::string workload;  // canonical JSON
  std::string dtype;
  std::string backend, isa;  // what else can move a token
  int64_t memory_bytes = 0, host_memory_bytes = 0;
};

// The row of a case before it is measured: all that says which case it is.
CapacityRow CapacityRowOf(const CapacitySubject& subject, const ChosenMethod& chosen,
                          const ServePolicy& policy, int64_t batch, int64_t repetition);
// Adds what was measured.
void FillCapacityRow(const CapacityResult& result, CapacityRow& row);
// The same back, without single requests and answers.
CapacityResult ResultOfRow(const CapacityRow& row);

// Every answer of a result; "" where a request was not served.
std::string AnswersKey(const CapacityResult& result);

class CapacityRecorder {
 public:
  // Opens or makes the store and begins a run in it.
  static Result<std::unique_ptr<CapacityRecorder>> Open(const std::string& path, const RunRow& run);

  // The newest record of that case and repetition on this machine; null: there is none.
  const CapacityRow* Find(const CapacityRow& row) const;
  // Refuses answers that differ from those that are recorded of the same requests and method.
  Status Write(const CapacityRow& row);
  // What is to be known of the run beside its rows.
  Status Tell(const std::string& kind, const std::string& message);
  Status Finish(int signal);

 private:
  CapacityRecorder(std::unique_ptr<ResultStore> store, int64_t run,
                   std::vector<CapacityRow> recorded)
      : store_(std::move(store)), run_(run), recorded_(std::move(recorded)) {}

  std::unique_ptr<ResultStore> store_;
  int64_t run_;
  std::vector<CapacityRow> recorded_;  // of this machine
};

}  // namespace kvgauge
